"""Cases of who is in queue, and keeps room from others by it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.simulator.invariants import CASES, MOST_CYCLES, assert_settled


def _bound(outcome: Any, prefix: str) -> list[float]:
    return [bind["time"] for bind in outcome.binds if bind["pod"].startswith(f"default/{prefix}-")]


@pytest.mark.parametrize("held", [True, False])
def test_an_evicted_gang_keeps_no_room(simulate: Callable[..., Any], held: bool) -> None:
    """Whether its Job is held until it comes in queue, or its pods are there."""
    case = (CASES / "evicted-gang-keeps-no-room.yaml").read_text("utf-8")
    case = case if held else case.replace("suspend: true\n    parallelism: 8", "parallelism: 8")
    outcome = simulate(case, max_cycles=MOST_CYCLES, until=500)
    assert {each["time"] for each in outcome.evictions} == {40.0}
    assert (_bound(outcome, "other"), _bound(outcome, "other2")) == ([41.0] * 2, [60.0] * 2)
    assert (outcome.phase("life"), outcome.reason("life")) == ("Pending", "WaitingInQueue")
    assert_settled(outcome)


def test_who_lost_all_its_pods_is_not_late_by_the_time_it_ran(simulate: Callable[..., Any]) -> None:
    """There is room for it, and so it stays in queue; its time in queue begins anew."""
    outcome = simulate("lost-gang-is-not-late", max_cycles=MOST_CYCLES)
    assert _bound(outcome, "life") == [0.0] * 8 + [400.0] * 8
    assert [cycle["time"] for cycle in outcome.cycles if "default/life" in cycle["enqueued"]] == [0.0]
    assert_settled(outcome)


def test_a_reclaimed_gang_keeps_no_room(simulate: Callable[..., Any]) -> None:
    outcome = simulate("reclaimed-gang-keeps-no-room", max_cycles=MOST_CYCLES, until=500)
    assert {(each["action"], each["time"]) for each in outcome.evictions} == {("reclaim", 40.0)}
    assert (_bound(outcome, "b1"), _bound(outcome, "a3")) == ([41.0] * 3, [60.0])
    assert (outcome.phase("a2"), outcome.reason("a2")) == ("Pending", "WaitingInQueue")
    assert_settled(outcome)


def test_what_cannot_be_reclaimed_lets_nobody_in(simulate: Callable[..., Any]) -> None:
    """Nor is it sent back meanwhile: it starts as soon as there is room."""
    outcome = simulate("what-cannot-be-reclaimed-lets-nobody-in", max_cycles=MOST_CYCLES)
    assert outcome.evictions == []
    assert [cycle["time"] for cycle in outcome.cycles if "default/wait" in cycle["enqueued"]] == [200.0]
    assert _bound(outcome, "wait") == [200.0] * 4
    assert_settled(outcome)


@pytest.mark.parametrize(("minimum", "disruption"), [(4, "Whole"), (4, "Surplus, lifetimeSeconds: 10"), (2, "Surplus")])
def test_what_can_be_reclaimed_does(simulate: Callable[..., Any], minimum: int, disruption: str) -> None:
    """As a whole, after a lifetime, or pod by pod."""
    case = (CASES / "what-cannot-be-reclaimed-lets-nobody-in.yaml").read_text("utf-8")
    old = "{minMember: 4, minResources: {cpu: '4'}, queue: research, disruption: Surplus}"
    assert case.count(old) == 2
    case = case.replace(old, f"{{minMember: {minimum}, queue: research, disruption: {disruption}}}")
    outcome = simulate(case, max_cycles=MOST_CYCLES, until=100)
    assert {(each["action"], each["time"], len(outcome.evictions)) for each in outcome.evictions} == {
        ("reclaim", 40.0, 4)
    }
    assert _bound(outcome, "wait") == [41.0] * 4


@pytest.mark.parametrize("until", [650, 700])
def test_who_waits_is_told_what_is_reserved_beyond_the_room(simulate: Callable[..., Any], until: int) -> None:
    """From 600 s room gathers for the evicted gang by its age: 8 CPU are reserved, and 6 are free. The first to come
    after that is told so at once, and as one of those that wait.
    """
    case = (CASES / "evicted-gang-keeps-no-room.yaml").read_text("utf-8").replace("arrival: '60'", "arrival: '650'")
    outcome = simulate(case, max_cycles=MOST_CYCLES, until=until)
    assert outcome.phase("life") == "InQueue"
    assert outcome.message("other2") == (
        "waits in Queue research: asks for 2 cpu, 0 cpu is available (8 cpu is reserved for groups that are in "
        "queue); it continues when another 4 cpu is free"
    )


def test_who_waits_is_told_how_many_come_before_it(simulate: Callable[..., Any]) -> None:
    """Those that were told earlier that they wait count too, and of nobody nothing is said."""
    case = (CASES / "evicted-gang-keeps-no-room.yaml").read_text("utf-8")
    case = case.replace("lifetimeSeconds: 5, ", "").replace("arrival: '60'", "arrival: '50'")
    outcome = simulate(case, max_cycles=MOST_CYCLES, until=50)
    assert outcome.message("other").startswith("waits in Queue research: ")
    assert outcome.message("other2").startswith("waits in Queue research behind 1 group: ")


def test_a_surplus_pod_of_one_role_keeps_nobody_out_for_the_lack_of_another(simulate: Callable[..., Any]) -> None:
    outcome = simulate("role-without-pods-beside-surplus", max_cycles=MOST_CYCLES)
    assert outcome.phase("g") == "InQueue"
    assert outcome.message("g").startswith("0 of 1 pods of role m exist")
