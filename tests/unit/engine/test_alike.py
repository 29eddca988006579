"""Groups of one pod that are alike are judged as one; of those in queue to which nothing happens nothing is asked."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from kbatch.api.conditions import merge
from kbatch.api.objects import Job, JobSpec, Metadata, Pod, PodTemplate
from kbatch.api.reasons import ClusterTooSmall, NotEnoughTasks
from kbatch.engine import Verdict, verdict_conditions
from kbatch.engine.actions.allocate import _Line
from kbatch.engine.session.session import Session
from kbatch.model.events import Delete, Upsert
from kbatch.times import SECOND
from tests.unit.engine.worlds import EPOCH, EVERYTHING, Simulation, group, node, pod, policy, queue, run, stamp, world

TIERS = """
tiers:
- plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: nodeorder}]
"""
EASY = policy("actions: [allocate, {name: backfill, arguments: {mode: easy}}]" + TIERS)
PREEMPTS = policy("actions: [allocate, preempt]" + TIERS)
FACTOR = policy(
    'actions: "enqueue, allocate"'
    + TIERS.replace("{name: predicates}", "{name: flow, arguments: {infiniteFactor: 1}}, {name: predicates}")
)


def one(name: str, cpu: int, *, at: int = 0, on: str = "", seconds: int | None = None, **spec: Any) -> list[Any]:
    """A group of one pod; `seconds`: for how long its user says that it runs."""
    made = group(name, at=at, queue="q", **spec)
    if seconds is not None:
        made.metadata.annotations = {"kbatch.dev/expected-seconds": str(seconds)}
    return [made, pod(f"{name}-0", str(cpu), of=name, at=at, on=on)]


def halves(*more: Any) -> list[Any]:
    """Two nodes of 8 cores, on each of which 4 are taken; so there is as much as 7 in all, and on no node."""
    return [queue("q"), node("n0", "8"), node("n1", "8"), *one("r0", 4, on="n0"), *one("r1", 4, on="n1"), *more]


def resting(sim: Simulation) -> set[str]:
    """The names of the groups of which the next cycle asks nothing."""
    assert sim.memo.backlog is not None
    return {key.removeprefix("ns/") for key in sim.memo.backlog[0].resting}


def something_happens(sim: Simulation) -> None:
    """What concerns nobody who waits."""
    sim.now += 1
    sim.model.apply(Upsert(node("other", "1", unschedulable=True, labels={"at": str(sim.now)})))


def at_rest(*objects: Any) -> Simulation:
    """A simulation in which g is in queue, waits and rests."""
    sim = Simulation(world(*halves(*objects)), policy(EVERYTHING))
    for _ in range(3):
        sim.settle()
        something_happens(sim)
    assert resting(sim) == {"g"}
    return sim


def test_a_group_in_queue_to_which_nothing_happens_rests() -> None:
    sim = at_rest(*one("g", 7))
    assert sim.last.reason("g") == "NotEnoughResources"
    something_happens(sim)
    with patch.object(Session, "_state", side_effect=AssertionError("it is known")):
        found = sim.cycle()
    assert found.reason("g") == "NotEnoughResources"
    assert resting(sim) == {"g"}


def test_who_rests_starts_when_there_is_room() -> None:
    sim = at_rest(*one("g", 7))
    sim.model.apply(Delete(Pod, "ns", "r1-0"))
    assert sim.cycle().binds == {"g-0": "n1"}
    assert not resting(sim)


def test_who_has_changed_rests_no_longer() -> None:
    """Its pod was made again, and asks for less."""
    sim = at_rest(*one("g", 7))
    sim.model.apply(Delete(Pod, "ns", "g-0"))
    sim.model.apply(Upsert(pod("g-1", "4", of="g")))
    assert list(sim.cycle().binds) == ["g-1"]


def test_who_has_rested_for_too_long_is_sent_back() -> None:
    sim = at_rest(*one("g", 7, schedule_timeout_seconds=20))
    found = sim.cycle()
    assert found.outcome is not None
    assert found.outcome.next_wake == EPOCH + 20 * SECOND  # it came in queue at 0
    assert found.verdicts["ns/g"].enqueued
    sim.now = 20
    assert not sim.cycle().verdicts["ns/g"].enqueued
    assert not resting(sim)


def test_who_rests_in_vain_keeps_nobody_from_room_that_is_too_small_for_it() -> None:
    sim = at_rest(*one("g", 7))
    for obj in one("h", 4, at=2):
        sim.model.apply(Upsert(obj))
    sim.settle()
    assert "h-0" in sim.running()


def test_whose_queue_closes_rests_no_longer() -> None:
    sim = at_rest(*one("g", 7))
    sim.model.apply(Upsert(queue("q", state="Closed")))
    assert sim.cycle().reason("g") == "QueueClosed"
    assert not resting(sim)


def test_a_clock_that_goes_back_ends_the_rest() -> None:
    sim = at_rest(*one("g", 7))
    sim.now = -120
    sim.model.apply(Upsert(node("other", "1", unschedulable=True)))
    sim.cycle()
    assert not resting(sim)


@pytest.mark.parametrize("count", [2, 30])
def test_of_those_that_are_alike_one_is_tried(count: int) -> None:
    jobs = [one(f"g{at:02}", 7, at=at) for at in range(count)]
    sim = Simulation(world(*halves(*[obj for job in jobs for obj in job])), PREEMPTS)
    with patch.object(_Line, "_minimum", autospec=True, side_effect=_Line._minimum) as tried:
        sim.cycle()
    assert tried.call_count == 1
    assert {sim.last.reason(f"g{at:02}") for at in range(count)} == {"NotEnoughResources"}
    assert all(sim.last.verdicts[f"ns/g{at:02}"].pods_unschedulable for at in range(count))


def test_who_asks_for_less_is_tried_behind_those_that_are_alike() -> None:
    sim = Simulation(world(*halves(*one("a", 7), *one("b", 7, at=1), *one("c", 4, at=2), *one("d", 7, at=3))), PREEMPTS)
    assert list(sim.cycle().binds) == ["c-0"]


def test_who_is_gone_in_time_starts_although_others_like_it_may_not() -> None:
    """The start of a is planned for 100 s, when r ends; b would delay it, and c is gone by then."""
    sim = Simulation(
        world(
            queue("q"), node("n0", "8"), one("r", 4, on="n0", seconds=100),
            one("a", 8, seconds=10), one("b", 4, at=1, seconds=500), one("c", 4, at=2, seconds=50),
        ),
        EASY,
    )  # fmt: skip
    found = sim.cycle()
    assert list(found.binds) == ["c-0"]
    assert found.reason("b") == "Reserved"


def test_room_is_made_for_who_asks_for_less_behind_one_for_which_none_can_be() -> None:
    """Nobody goes for a, as what runs on its node matters as much; for b r goes."""
    pods = [
        (group(name, at=at, queue="q"), pod(f"{name}-0", cpu, of=name, at=at, on=on, priority=priority))
        for name, at, cpu, on, priority in (
            ("r", 0, "8", "n0", 0), ("s", 0, "16", "n1", 10), ("a", 1, "16", "", 10), ("b", 2, "8", "", 10),
        )
    ]  # fmt: skip
    sim = Simulation(world(queue("q"), node("n0", "8"), node("n1", "16"), *pods), PREEMPTS)
    assert sim.cycle().evicted == ["r-0"]


def test_each_is_told_what_it_lacks_itself() -> None:
    sim = Simulation(world(*halves(*one("a", 7), *one("b", 6, at=1), *one("c", 7, at=2))), PREEMPTS)
    told = {name: sim.cycle().verdicts[f"ns/{name}"].reason for name in "abc"}
    assert told["a"] == told["c"] != told["b"]


def test_who_was_promised_more_than_one_that_is_alike_starts_within_the_factor() -> None:
    """Of the 8 that groups without a lifetime may use, b was promised all, and a 4: so a is beyond it, and b is not."""
    jobs = [one("a", 4), one("b", 4, at=1, min_resources={"cpu": "8"})]
    for made, _ in jobs:
        in_queue = Verdict(f"ns/{made.metadata.name}", shadow=False, enqueued=True, scheduled=False,
                           reason=NotEnoughTasks(0, 1), job=f"ns/{made.metadata.name}")  # fmt: skip
        made.status.conditions = merge((), verdict_conditions(in_queue, 1), stamp(0))
    sim = Simulation(world(queue("q"), queue("other"), node("n0", "16"), *jobs), FACTOR)
    found = sim.cycle()
    assert list(found.binds) == ["b-0"]
    assert found.reason("a") == "InfiniteShareExceeded"


def test_who_may_have_other_pods_in_place_of_its_own_is_told_that() -> None:
    """No node would ever hold what a and b have; b's next pod, which a Job makes, asks for less."""
    made_by = Metadata(annotations={"scheduling.k8s.io/group-name": "b"})
    coming = JobSpec(parallelism=1, template=PodTemplate(metadata=made_by, spec=pod("", "4").spec))
    job = Job(metadata=Metadata(name="b", namespace="ns"), spec=coming)
    model = world(queue("q"), node("n0", "8"), one("r", 6, on="n0"), one("a", 16), one("b", 16, at=1), job)
    told = {name: run(model, PREEMPTS).verdicts[f"ns/{name}"].reason for name in "ab"}
    assert isinstance(told["a"], ClusterTooSmall)
    assert not isinstance(told["b"], ClusterTooSmall)
