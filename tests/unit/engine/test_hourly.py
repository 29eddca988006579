"""How often a queue's groups may be evicted as wholes."""

from __future__ import annotations

import msgspec
import pytest

from kbatch.api.objects import Queue
from kbatch.engine import CycleState
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Upsert
from kbatch.times import HOUR, SECOND, rfc3339_us
from tests.unit.engine.worlds import (
    EPOCH,
    EVERYTHING,
    Decisions,
    group,
    members,
    node,
    pod,
    policy,
    queue,
    run,
    stamp,
    world,
)


def holding(gangs: int, limit: int | None, *, disruption: str = "Whole", minimum: int = 2) -> ClusterModel:
    """Queue q1 holds four nodes with gangs of two pods; q2 deserves two of them, and asks for two gangs' room."""
    names = [f"a{at}" for at in range(4)]
    return world(
        [queue("q1", evictions_per_hour=limit), queue("q2")],
        [node(f"n{at}", "2") for at in range(4)],
        [group(name, minimum, queue="q1", disruption=disruption) for name in names],
        [pod(f"{name}-{at}", of=name, on=f"n{row}") for row, name in enumerate(names) for at in range(2)],
        [group(f"b{at}", 2, queue="q2") for at in range(gangs)],
        [each for at in range(gangs) for each in members(f"b{at}", 2)],
    )


def evicted(found: Decisions) -> set[str]:
    return {name.partition("-")[0] for name in found.evicted}


@pytest.mark.parametrize(("limit", "wholes"), [(None, 2), (0, 0), (1, 1), (2, 2), (5, 2)])
def test_one_cycle_keeps_to_it(limit: int | None, wholes: int) -> None:
    found = run(holding(2, limit), policy(EVERYTHING), now=60)
    assert len(evicted(found)) == wholes
    assert found.outcome is not None
    assert found.outcome.state.evictions == ({"q1": (EPOCH + 60 * SECOND,) * wholes} if limit else {})


def test_those_of_the_last_hour_count_and_the_end_of_the_hour_is_an_instant_to_wake_at() -> None:
    before = EPOCH + 60 * SECOND - HOUR
    late = run(holding(1, 1), policy(EVERYTHING), now=60, state=CycleState(evictions={"q1": (before + 1,)}))
    assert late.evicted == []
    assert late.outcome is not None
    assert late.outcome.next_wake == before + 1 + HOUR
    assert late.outcome.state.evictions == {"q1": (before + 1,)}
    over = run(holding(1, 1), policy(EVERYTHING), now=60, state=CycleState(evictions={"q1": (before,)}))
    assert len(evicted(over)) == 1
    assert over.outcome is not None
    assert over.outcome.state.evictions == {"q1": (EPOCH + 60 * SECOND,)}


def test_pods_above_the_minimum_do_not_count() -> None:
    found = run(holding(2, 0, disruption="Surplus", minimum=1), policy(EVERYTHING), now=60)
    assert len(found.evicted) == 4
    assert found.outcome is not None
    assert found.outcome.state.evictions == {}


def test_it_is_recorded() -> None:
    state = CycleState(evictions={"q1": (EPOCH, EPOCH + 1)})
    assert msgspec.json.decode(msgspec.json.encode(state), type=CycleState) == state


def test_a_queue_made_again_has_evicted_nobody() -> None:
    """The limit is used up when another Queue takes its place; whose clock said when it was made does not matter."""

    def at(now: int, uid: str, state: CycleState) -> Decisions:
        model = holding(2, 1)
        one = queue("q1", evictions_per_hour=1)
        one.metadata.uid, one.metadata.creation_timestamp = uid, stamp(90)
        model.apply(Upsert(one))
        return run(model, policy(EVERYTHING), now=now, state=state)

    first = at(60, "old", CycleState())
    assert first.outcome is not None
    assert len(evicted(first)) == 1
    assert [len(evicted(at(62, uid, first.outcome.state))) for uid in ("old", "new")] == [0, 1]
    named = CycleState(evictions={"q1": (EPOCH + 60 * SECOND,)})
    assert not evicted(at(62, "old", named)), "as older decision logs have it"


def wrote(*instants: int, more: tuple[str, ...] = ()) -> Queue:
    """The queue q1 with a limit of two, and these instants in its status."""
    found = queue("q1", evictions_per_hour=2)
    found.status.evicted = (*map(rfc3339_us, instants), *more)
    return found


def test_what_the_queue_says_counts_too_and_nothing_counts_twice() -> None:
    before = EPOCH + 60 * SECOND - HOUR + 1
    for state in (CycleState(), CycleState(evictions={"q1": (before,)})):
        model = holding(2, 2)
        model.apply(Upsert(wrote(before)))
        found = run(model, policy(EVERYTHING), now=60, state=state)
        assert len(evicted(found)) == 1
        assert found.outcome is not None
        assert found.outcome.state.evictions == {"q1": (before, EPOCH + 60 * SECOND)}


def test_what_cannot_be_read_or_is_older_does_not_count() -> None:
    model = holding(2, 2)
    model.apply(Upsert(wrote(EPOCH + 60 * SECOND - HOUR, more=("yesterday",))))
    assert len(evicted(run(model, policy(EVERYTHING), now=60))) == 2


def test_what_a_wrong_clock_wrote_far_ahead_does_not_count() -> None:
    now = EPOCH + 60 * SECOND
    for ahead, wholes in ((HOUR - 1, 1), (HOUR, 2), (48 * HOUR, 2)):
        model = holding(2, 2)
        model.apply(Upsert(wrote(now + ahead)))
        assert len(evicted(run(model, policy(EVERYTHING), now=60))) == wholes


def test_a_plan_says_what_is_to_be_written_of_its_queue_before() -> None:
    found = run(holding(2, 5), policy(EVERYTHING), now=60)
    now = EPOCH + 60 * SECOND
    plans = [step.evicted for step in found.transactions if step.evictions]
    assert plans == [{"q1": (now,)}, {"q1": (now, now)}]
    free = run(holding(2, None), policy(EVERYTHING), now=60)
    assert [step.evicted for step in free.transactions if step.evictions] == [{}, {}]
