"""Planned starts and excessBudget: what a planned start will be charged is kept, and what ends by then comes back."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kbatch.api.objects import Pod
from kbatch.engine import Policy
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete
from tests.unit.engine.test_planned_starts import busy, planned, saying
from tests.unit.engine.worlds import group, members, node, pod, policy, queue, run, world


def flow(mode: str, told: str = "") -> Policy:
    return policy(
        f"actions: [allocate, {{name: backfill, arguments: {{mode: {mode}}}}}]\n"
        "tiers:\n- plugins: [{name: priority}, {name: gang}]\n"
        f"- plugins: [{{name: predicates}}, {{name: flow, arguments: {{{told}}}}}, {{name: nodeorder}}]"
    )


MODES = pytest.mark.parametrize("mode", ["easy", "conservative"])


def job(name: str, cpu: str, at: int, *, seconds: int = 600, expected: int | None = None) -> list[Any]:
    """A group of queue a with a lifetime."""
    one = pod(f"{name}-0", cpu, of=name, at=at)
    return [group(name, queue="a", at=at, lifetime_seconds=seconds), one if expected is None else saying(one, expected)]


def above_the_share(budget: int, *later: Any, stays: str = "10") -> ClusterModel:
    """Of 30 cores queue a has ten (`stays`) for ever; `wide` takes it five above its share when b's pod ends, for 100
    resource-minutes.
    """
    theirs = busy(100, "4", on="n1")
    theirs.metadata.labels = {"kbatch.dev/queue": "b"}
    return world(
        [queue("a", excess_budget=budget), queue("b"), *(node(f"n{at}", "10") for at in (1, 2, 3))],
        theirs, pod("b-stays", "4", on="n2", queue="b"), pod("a-stays", stays, on="n3", queue="a"),
        job("wide", "10", 1), *later,
    )  # fmt: skip


@MODES
@pytest.mark.parametrize(("budget", "binds"), [(159, {}), (160, {"y-0": "n2"})])
def test_what_it_will_be_charged_is_kept_of_the_budget(mode: str, budget: int, binds: dict[str, str]) -> None:
    found = run(above_the_share(budget, job("y", "6", 2)), flow(mode), now=10)
    assert planned(found, "wide") == 100
    assert found.binds == binds
    if not binds:
        assert found.reason("y") == "Reserved"


@MODES
def test_who_is_gone_in_time_and_who_costs_nothing_may_use_it(mode: str) -> None:
    model = above_the_share(100, job("y", "3", 2, expected=90), job("z", "3", 3, seconds=0))
    assert run(model, flow(mode), now=10).binds == {"y-0": "n1", "z-0": "n2"}


@MODES
@pytest.mark.parametrize(
    ("budget", "seconds", "binds"),
    [(139, 600, {}), (140, 600, {"y-0": "n2"}), (99, None, {}), (100, None, {"y-0": "n2"})],
)
def test_nobody_takes_the_queue_above_its_share_where_a_planned_start_could_not_be_charged_then(
    mode: str, budget: int, seconds: int | None, binds: dict[str, str]
) -> None:
    """By itself `wide` takes the queue to its share of 15, and is charged nothing; beside `y` it is."""
    y = [group("y", queue="a", at=2, lifetime_seconds=seconds), pod("y-0", "4", of="y", at=2)]
    found = run(above_the_share(budget, y, stays="5"), flow(mode), now=10)
    assert planned(found, "wide") == 100
    assert found.binds == binds
    if not binds:
        assert found.reason("y") == "Reserved"


@MODES
def test_who_keeps_the_queue_within_its_share_beside_a_planned_start_needs_no_budget(mode: str) -> None:
    free = [*job("y", "2", 2), group("z", queue="a", at=3), pod("z-0", "1", of="z", at=3)]
    found = run(above_the_share(0, free, stays="2"), flow(mode), now=10)
    assert (planned(found, "wide"), found.binds) == (100, {"y-0": "n2", "z-0": "n2"})


@pytest.mark.parametrize(("cpu", "binds"), [("9", {"y-0": "n2"}), ("10", {})])
def test_planned_starts_that_meet_at_no_instant_do_not_add_up(cpu: str, binds: dict[str, str]) -> None:
    """`soon` is on n1 from 100 to 150, then `late`; y keeps the queue within its share of 15 beside either, or not."""
    model = world(
        [queue("a", excess_budget=0), queue("b"), *(node(f"n{at}", "10") for at in (1, 2, 3))],
        of_b("b-1", "n1"), pod("b-stays", "4", on="n2", queue="b"), pod("b-too", "6", on="n3", queue="b"),
        group("soon", queue="a", at=1), saying(pod("soon-0", "8", of="soon", at=1), 50),
        job("late", cpu, 2), group("y", queue="a", at=3), pod("y-0", "6", of="y", at=3),
    )  # fmt: skip
    found = run(model, flow("conservative"), now=10)
    assert (planned(found, "soon"), planned(found, "late")) == (100, 150)
    assert found.binds == binds


@MODES
@pytest.mark.parametrize(("cpu", "binds"), [("9", {"y-0": "n2"}), ("10", {})])
@pytest.mark.parametrize("ends", [True, False])
def test_what_ends_by_a_planned_start_does_not_count_beside_it(
    mode: str, cpu: str, binds: dict[str, str], *, ends: bool
) -> None:
    """`runs` is gone when `wide` starts, and one of the two has a lifetime; so has y where `runs` has."""
    lifetime, other = (600, None) if ends else (None, 600)
    model = world(
        [queue("a", excess_budget=0), queue("b"), *(node(f"n{at}", "10") for at in (1, 2, 3))],
        group("runs", queue="a", lifetime_seconds=lifetime), saying(pod("runs-0", "8", of="runs", on="n1"), 100),
        pod("b-stays", "4", on="n2", queue="b"), pod("b-too", "6", on="n3", queue="b"),
        group("wide", queue="a", at=1, lifetime_seconds=other), pod("wide-0", cpu, of="wide", at=1),
        group("y", queue="a", at=2, lifetime_seconds=lifetime), pod("y-0", "6", of="y", at=2),
    )  # fmt: skip
    found = run(model, flow(mode), now=10)
    assert planned(found, "wide") == 100
    assert found.binds == binds


@MODES
def test_a_planned_start_that_is_charged_nothing_keeps_nobody_within_the_share(mode: str) -> None:
    """More is charged to `runs` than the budget is by now; that is no matter for groups without a lifetime."""
    runs = group("runs", queue="a", lifetime_seconds=600)
    runs.status = replace(runs.status, excess_charged="100")
    model = world(
        [queue("a", excess_budget=50), queue("b"), *(node(f"n{at}", "10") for at in (1, 2, 3))],
        of_b("b-1", "n1"), runs, pod("runs-0", "4", of="runs", on="n2"), pod("a-stays", "10", on="n3", queue="a"),
        group("wide", queue="a", at=1), pod("wide-0", "10", of="wide", at=1),
        group("y", queue="a", at=2), pod("y-0", "6", of="y", at=2),
    )  # fmt: skip
    found = run(model, flow(mode), now=10)
    assert (planned(found, "wide"), found.binds) == (100, {"y-0": "n2"})


@MODES
@pytest.mark.parametrize(("ends", "at"), [(50, 50), (None, None)])
def test_what_is_charged_to_others_comes_back_when_they_end(mode: str, ends: int | None, at: int | None) -> None:
    """The budget is used up by `runs`; with that gone `wide` still takes the queue above its share, and may."""
    runs = group("runs", queue="a", lifetime_seconds=600)
    runs.status = replace(runs.status, excess_charged="100")
    one = pod("runs-0", "6", of="runs", on="n1")
    model = world(
        [queue("a", excess_budget=100), queue("b"), *(node(f"n{at}", "10") for at in (1, 2, 3))],
        runs, saying(one, ends) if ends is not None else one, pod("a-stays", "10", on="n3", queue="a"),
        job("wide", "10", 1),
    )  # fmt: skip
    found = run(model, flow(mode), now=10)
    assert (planned(found, "wide"), found.binds) == (at, {})
    assert found.reason("wide") == "ExcessBudgetExceeded"


@MODES
@pytest.mark.parametrize(("budget", "binds"), [(159, {"x-0": "n1"}), (160, {"x-0": "n1", "y-0": "n2"})])
def test_what_is_charged_to_those_that_start_in_the_same_cycle_comes_back_when_they_end(
    mode: str, budget: int, binds: dict[str, str]
) -> None:
    """`x` is charged 60 until it has ended in time; then `wide` is charged 100, beside `y` with 60."""
    model = above_the_share(budget, job("x", "6", 2, expected=50), job("y", "6", 3))
    found = run(model, flow(mode), now=10)
    assert planned(found, "wide") == 100
    assert found.binds == binds


def test_what_is_kept_of_the_budget_goes_from_cycle_to_cycle() -> None:
    model = above_the_share(100)
    first = run(model, flow("conservative"), now=10)
    assert first.outcome is not None
    (promise,) = first.outcome.state.planned
    assert promise.charge == 100_000_000
    later = above_the_share(100, job("y", "6", 2))
    assert run(later, flow("conservative"), now=11, state=first.outcome.state).binds == {}


def of_b(name: str, on: str) -> Pod:
    found = busy(100, on=on, name=name)
    found.metadata.labels = {"kbatch.dev/queue": "b"}
    return found


def ended_early(wide: Any, budget: int | None = None) -> tuple[ClusterModel, Pod]:
    """Of 16 cores a deserves eight and has four until 300; a pod of b that keeps room from `wide` is gone before its
    time.
    """
    one = of_b("b-1", "n3")
    return world(
        [queue("a", excess_budget=budget), queue("b"), *(node(f"n{at}") for at in (1, 2, 3, 4))],
        saying(pod("a-runs", "4", on="n1", queue="a"), 300), one, of_b("b-2", "n4"), wide,
    ), one  # fmt: skip


def test_who_was_promised_a_start_stays_within_the_factor_when_anything_has_ended() -> None:
    model, one = ended_early([group("wide", 2, queue="a", at=1), *members("wide", 2, "4", at=1)])
    by = flow("conservative", "infiniteFactor: 1")
    first = run(model, by, now=10)
    assert (planned(first, "wide"), first.binds) == (300, {})
    model.apply(Delete(Pod, "ns", one.metadata.name))
    assert first.outcome is not None
    second = run(model, by, now=20, state=first.outcome.state)
    assert (planned(second, "wide"), second.binds) == (300, {})


@pytest.mark.parametrize(("budget", "at", "charged"), [(80, 100, 80_000_000), (79, 300, 0)])
def test_who_was_promised_a_start_is_charged_when_anything_has_ended(budget: int, at: int, charged: int) -> None:
    wide = [group("wide", 2, queue="a", at=1, lifetime_seconds=600), *members("wide", 2, "4", at=1)]
    model, one = ended_early(wide, budget)
    by = flow("conservative")
    first = run(model, by, now=10)
    assert (planned(first, "wide"), first.binds) == (at, {})
    model.apply(Delete(Pod, "ns", one.metadata.name))
    assert first.outcome is not None
    second = run(model, by, now=20, state=first.outcome.state)
    assert set(second.binds) == ({"wide-0", "wide-1"} if charged else set())
    assert second.verdicts["ns/wide"].charged == charged
