"""How many pods of a row must go at least, and how many of them take their queues below their shares."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kbatch.engine.preemption.candidates import Candidate
from kbatch.engine.preemption.fewest import fewest, fewest_lowering
from kbatch.engine.state.jobs import JobState
from tests.unit.engine.worlds import group, node, pod, queue, world


def _never_asked(key: str) -> JobState:
    raise AssertionError(key)


def _candidates(found: Sequence[tuple[str, str]]) -> list[Candidate]:
    """Pods of groups of these queues that ask for so much."""
    names = dict.fromkeys(name for name, _ in found)
    groups = [group(f"g{at}", queue=name) for at, (name, _) in enumerate(found)]
    pods = [pod(f"g{at}-0", cpu, of=f"g{at}", on="n") for at, (_, cpu) in enumerate(found)]
    model = world(node("n", "100"), [queue(name) for name in names], groups, pods)
    jobs = sorted(model.jobs.values(), key=lambda job: job.key)
    return [Candidate(job, _never_asked, next(iter(job.tasks.values())), (), 0, 0) for job in jobs]


@pytest.mark.parametrize(
    ("cpus", "gap", "count"), [("11", 2000, 2), ("13", 3000, 1), ("13", 3001, 2), ("13", 4001, None)]
)
def test_no_fewer_than_it_takes_of_the_largest(cpus: str, gap: int, count: int | None) -> None:
    assert fewest(_candidates([("q", cpu) for cpu in cpus]), {"cpu": gap}) == count


@pytest.mark.parametrize(
    ("above", "count"),
    [
        ({"q": 3000, "p": 0}, 0),
        ({"q": 1000, "p": 2000}, 0),
        ({"q": 1000, "p": 1000}, 1),
        ({"q": 2000, "p": -5000}, 1),
        ({"q": 0, "p": 0}, 3),
        ({"q": 0, "p": None}, 1),
        ({"q": None, "p": None}, 0),
    ],
)
def test_what_queues_have_above_their_shares_is_all_that_goes_without_lowering_any(
    above: dict[str, int | None], count: int
) -> None:
    candidates = _candidates([("q", "1"), ("q", "1"), ("q", "1"), ("p", "1"), ("p", "1")])
    spare = {name: None if amount is None else {"cpu": amount} for name, amount in above.items()}
    assert fewest_lowering(candidates, {"cpu": 3000, "memory": 5}, {"cpu"}, spare.__getitem__) == count


def test_a_dimension_that_the_preemptor_does_not_lack_lowers_nobody() -> None:
    assert fewest_lowering(_candidates([("q", "1")]), {"cpu": 1000}, {"memory"}, lambda _: {"cpu": 0}) == 0
