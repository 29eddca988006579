"""What counts against `evictionsPerHour` is evictions for others; and whoever waits for it is woken in time."""

from __future__ import annotations

from typing import Any

import pytest

from kbatch.engine import CycleState
from kbatch.times import HOUR, SECOND
from tests.unit.engine.test_hourly import evicted, holding
from tests.unit.engine.worlds import EPOCH, EVERYTHING, Simulation, group, members, node, pod, policy, queue, run, world


def test_a_gang_that_is_taken_back_for_its_own_sake_takes_nobodys_turn() -> None:
    """A bind of it failed: nothing was evicted for another group (docs/reference/queue.md, evictionsPerHour)."""
    rest = [pod("g-0", of="g", on="n1"), pod("g-1", of="g")]
    sim = Simulation(world(queue(evictions_per_hour=1), node("n1", "1"), group("g", 2), rest), recreate=False)
    sim.cycle()
    sim.now = 60
    found = sim.cycle()
    assert sim.evictions == [(60, "ns/g-0")]
    assert [step.evicted for step in found.transactions] == [{}]
    assert sim.state.evictions == {}


def test_of_several_in_the_last_hour_the_oldest_is_the_one_to_wait_for() -> None:
    now = EPOCH + 60 * SECOND
    before = now - HOUR + SECOND, now - SECOND
    late = run(holding(1, 2), policy(EVERYTHING), now=60, state=CycleState(evictions={"q1": before}))
    assert late.evicted == []
    assert late.outcome is not None
    assert late.outcome.next_wake == before[0] + HOUR
    over = run(holding(1, 2), policy(EVERYTHING), now=61, state=late.outcome.state)
    assert len(evicted(over)) == 1


@pytest.mark.parametrize("low", [{"disruption": "Whole"}, {"lifetime_seconds": 0}])
@pytest.mark.parametrize(("limit", "gone"), [(None, ["low-0", "low-1"]), (0, [])])
def test_it_holds_for_preemption_too_and_for_groups_that_have_exceeded_their_lifetime(
    low: dict[str, Any], limit: int | None, gone: list[str]
) -> None:
    """By any action (docs/reference/queue.md, evictionsPerHour)."""
    model = world(
        [queue(evictions_per_hour=limit), node("n1", "2"), group("low", 2, **low), group("high", 2, at=1)],
        members("low", 2, on="n1", priority=0), members("high", 2, at=1, priority=10),
    )  # fmt: skip
    assert run(model, policy(EVERYTHING), now=60).evicted == gone
