"""What must hold of flow, whatever was used and when; and of decisions by it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbatch.api.objects import Pod, PodGroup, PodStatus, Queue
from kbatch.engine import Policy
from kbatch.engine.plugins.flow.arguments import FlowArguments
from kbatch.engine.plugins.flow.instants import Curve, Pairs, first
from kbatch.engine.plugins.flow.state import Flows
from kbatch.model.events import Upsert
from kbatch.model.usage import Anchor
from kbatch.resources import MILLION
from kbatch.times import HOUR, SECOND
from tests.property.test_engine import Checked, World, relaxed, worlds
from tests.unit.engine.test_flow import flow
from tests.unit.engine.worlds import group, node, pod, queue, run, world

pytestmark = pytest.mark.many

START = 1_767_225_600 * SECOND
amounts = st.one_of(st.integers(0, 20), st.integers(0, 10**6 * MILLION))
spans = st.one_of(st.integers(1, 1000), st.integers(1, 100 * HOUR))
histories = st.lists(st.tuples(spans, amounts), min_size=1, max_size=8)
half_lives = st.one_of(st.integers(1, 100), st.integers(1, 1000 * HOUR))


def replayed(history: Sequence[tuple[int, int]], half_life: int) -> tuple[Anchor, int]:
    """The anchor after these changes of the usage, each so long after the one before; and the instant of the last."""
    now, anchor = START, Anchor()
    for span, usage in history:
        now += span
        anchor = anchor.moved(now, half_life, usage, usage // 2)
    return anchor, now


@given(histories, half_lives, spans)
def test_the_flow_is_never_below_the_usage_and_comes_down_to_it(
    history: list[tuple[int, int]], half_life: int, span: int
) -> None:
    anchor, now = replayed(history, half_life)
    before = anchor.at(now, half_life)
    assert before >= (anchor.usage, 0)
    assert before[1] >= anchor.unlimited_usage
    after = anchor.at(now + span, half_life)
    assert anchor.usage <= after[0] <= before[0]
    assert anchor.unlimited_usage <= after[1] <= before[1]
    assert anchor.at(now + 80 * half_life, half_life) == (anchor.usage, anchor.unlimited_usage)


@given(histories, half_lives, st.lists(spans, max_size=5))
def test_looking_in_between_changes_nothing(history: list[tuple[int, int]], half_life: int, looks: list[int]) -> None:
    anchor, _ = replayed(history, half_life)
    now, looked = START, Anchor()
    for span, usage in history:
        for look in looks:
            instant = now + min(look, span)
            looked = looked.moved(instant, half_life, looked.usage, looked.unlimited_usage)
            looked.at(instant, half_life)
        now += span
        looked = looked.moved(now, half_life, usage, usage // 2)
    assert looked == anchor


@given(histories, half_lives, st.lists(st.integers(1, 10**9), min_size=2, max_size=5), st.data())
def test_the_order_of_changes_at_one_instant_does_not_matter(
    history: list[tuple[int, int]], half_life: int, changes: list[int], data: st.DataObject
) -> None:
    before, now = replayed(history, half_life)
    shuffled = data.draw(st.permutations(changes))
    found = []
    for order in (changes, shuffled):
        anchor = before
        for change in order:
            anchor = anchor.moved(now + SECOND, half_life, anchor.usage + change, anchor.unlimited_usage)
        found.append(anchor)
    assert found[0] == found[1]


@given(histories, half_lives, spans)
def test_the_error_is_at_most_one_unit_for_each_change(
    history: list[tuple[int, int]], half_life: int, span: int
) -> None:
    anchor, now = replayed(history, half_life)
    with localcontext() as context:
        context.prec = 80

        def faded(excess: Decimal, elapsed: int) -> Decimal:
            return max(excess, Decimal(0)) * Decimal(2) ** (-Decimal(elapsed) / half_life)

        exact, usage = Decimal(0), 0
        for elapsed, following in history:
            exact = usage + faded(exact - usage, elapsed)
            exact, usage = max(exact, Decimal(following)), following
        exact = usage + faded(exact - usage, span)
        assert 0 <= exact - anchor.at(now + span, half_life)[0] <= len(history) + 1


numbers = st.one_of(st.integers(0, 10), st.integers(0, 10**12))


@st.composite
def curves(draw: st.DrawFn, half_life: int) -> Curve:
    usage = draw(numbers)
    anchor = Anchor(usage + draw(numbers), 0, usage, 0, draw(st.integers(0, 50)))
    return Curve(draw(st.sampled_from("ab")), anchor, half_life, draw(numbers), draw(st.integers(1, 3)))


@given(st.data(), st.sampled_from([1, 7, 3600 * SECOND]))
def test_the_first_of_many_pairs_is_that_of_each_pair_by_itself(data: st.DataObject, half_life: int) -> None:
    now = 40
    some = data.draw(st.lists(curves(half_life), min_size=1, max_size=4))
    others = data.draw(st.lists(curves(half_life), min_size=1, max_size=4))
    every = [(one, len(some) + other) for one in range(len(some)) for other in range(len(others))]

    def gives(one: Curve, other: Curve, instant: int) -> bool:
        return one.ratio(instant) <= other.ratio(instant)

    expected = []
    for one, other in ((one, other) for one in some for other in others):
        end = max(one.end(now), other.end(now))
        turns = [turn for each in (one, other) if (turn := each.turn(now, each.end(now))) is not None]
        at = first(now, (*turns, end), partial(gives, one, other))
        expected += [at] if at is not None else []
    found = Pairs(now, [*some, *others], gives).first([one for one, _ in every], [other for _, other in every])
    assert found == min(expected, default=None)


# --- progressive filling ----------------------------------------------------------------------------------------------


@st.composite
def contests(draw: st.DrawFn) -> tuple[int, dict[str, tuple[int, int]]]:
    """Room in cores, and by queue its weight and how many jobs of one core it has."""
    names = draw(st.lists(st.sampled_from("abcd"), unique=True, min_size=1, max_size=4))
    room = draw(st.integers(1, 8))
    return room, {name: (draw(st.integers(1, 4)), draw(st.integers(0, 5))) for name in sorted(names)}


def fairest(room: int, queues: dict[str, tuple[int, int]]) -> list[Fraction]:
    """The weighted max-min fair division of equal jobs, by trying all: of those that use as much room as can be used,
    that with the smallest largest part, then the smallest second largest, and so on.
    """
    most = min(room, sum(count for _, count in queues.values()))
    divisions = [
        sorted((Fraction(got, weight) for got, (weight, _) in zip(given_, queues.values(), strict=True)), reverse=True)
        for given_ in product(*(range(count + 1) for _, count in queues.values()))
        if sum(given_) == most
    ]
    return min(divisions)


@relaxed
@given(contests(), st.sampled_from(["enqueue, allocate", "allocate"]))
def test_progressive_filling_is_weighted_max_min_fairness(
    contest: tuple[int, dict[str, tuple[int, int]]], actions: str
) -> None:
    room, queues = contest
    model = world(
        node("n", str(room)),
        [queue(name, weight) for name, (weight, _) in queues.items()],
        [
            each
            for name, (_, count) in queues.items()
            for at in range(count)
            for each in (group(f"{name}{at}", queue=name, at=at), pod(f"{name}{at}-0", of=f"{name}{at}"))
        ],
    )
    binds = run(model, flow(actions=actions)).binds
    got = sorted(
        (Fraction(sum(name.startswith(each) for name in binds), weight) for each, (weight, _) in queues.items()),
        reverse=True,
    )
    assert got == fairest(room, queues)


# --- whole cycles -----------------------------------------------------------------------------------------------------

FLOWS: list[Policy] = [
    flow("halfTime: 5"),
    flow("halfTime: 2, infiniteFactor: 1.5"),
    flow("halfTime: 0, infiniteFactor: 1, weights: {memory: 1}"),
    flow("halfTime: 3, weights: {memory: 0.5}, score: Dominant"),
    flow("halfTime: 4, infiniteFactor: 2", "reclaim, allocate, backfill, preempt"),
]


@st.composite
def with_lifetimes(draw: st.DrawFn, *, disruptions: bool = True) -> World:
    """A world in which some groups have lifetimes, and some queues budgets."""
    objects = copy.deepcopy(draw(worlds(disruptions=disruptions)).objects)
    for obj in objects:
        if isinstance(obj, PodGroup):
            obj.spec.lifetime_seconds = draw(st.sampled_from([None, None, 0, 5, 60, 600]))
        elif isinstance(obj, Queue):
            obj.spec.weight = max(1, obj.spec.weight)
            obj.spec.excess_budget = draw(st.sampled_from([None, None, 0, 1, 10, 100]))
    return World(objects)


class Limited(Checked):
    """A simulation whose every cycle, besides, must keep what the plugin flow promises."""

    def cycle(self) -> Any:
        before = {name: record.charged for name, record in self.model.queues.items()}
        found = super().cycle()
        self.model.refresh()
        for name, record in self.model.queues.items():
            if record.excess_budget is not None:
                assert record.charged <= max(record.excess_budget * MILLION, before.get(name, 0))
        kept = self.state.plugins["flow"]
        assert isinstance(kept, Flows)
        for anchor in kept.queues.values():
            assert anchor.unlimited_usage <= anchor.usage
        return found


@relaxed
@given(with_lifetimes(), st.sampled_from(FLOWS), st.data())
def test_decisions_are_the_same_with_and_without_the_memo_and_budgets_hold(
    found: World, by: Policy, data: st.DataObject
) -> None:
    sim = Limited(found.model(), by)
    for round_ in range(4):
        sim.settle()
        what = data.draw(st.sampled_from(["nothing", "a group", "a pod", "time", "an end"]))
        if what == "a group":
            lifetime = data.draw(st.sampled_from([None, 30]))
            sim.model.apply(Upsert(group(f"new{round_}", 1, at=1000 + round_, queue="q0", lifetime_seconds=lifetime)))
            sim.model.apply(Upsert(pod(f"new{round_}-0", of=f"new{round_}", at=1000 + round_)))
        elif what == "a pod":
            sim.model.apply(Upsert(pod(f"late{round_}", "1", at=1000 + round_, queue="q0")))
        elif what == "an end":
            running = [task.pod for _, task in sorted(sim.model.tasks.items()) if task.holds]
            if running:
                done = copy.deepcopy(data.draw(st.sampled_from(running)))
                done.status.phase = "Succeeded"
                sim.model.apply(Upsert(done))
        else:
            sim.tick()


@relaxed
@given(with_lifetimes(), st.sampled_from(FLOWS[:4]))
def test_a_static_world_comes_to_rest(found: World, by: Policy) -> None:
    """Evictions go to zero and stay there, also while the past fades."""
    sim = Limited(found.model(), by, recreate=False)
    sim.run(40)
    before = len(sim.evictions)
    sim.run(5)
    assert len(sim.evictions) == before


@relaxed
@given(with_lifetimes(disruptions=False), st.sampled_from(FLOWS[1:3]))
def test_groups_without_a_lifetime_never_go_beyond_the_factor(found: World, by: Policy) -> None:
    """Where nothing ran before: what they hold and were promised is within it in every cycle."""
    objects = copy.deepcopy(found.objects)
    for obj in objects:
        if isinstance(obj, Pod):
            obj.spec.node_name, obj.status = "", PodStatus(phase="Pending")
    (factor,) = (
        part.arguments.infinite_factor for part in by.plugins if isinstance(part.arguments, FlowArguments)
    )  # fmt: skip
    assert factor is not None
    sim = Limited(world(objects), by, recreate=False)
    for _ in range(5):
        sim.settle()
        outcome = sim.cycle().outcome
        assert outcome is not None
        for name, standing in (outcome.queues or {}).items():
            if standing.flow is not None:
                # The share is rounded down before it is multiplied here.
                assert standing.flow.unlimited_usage <= factor * (standing.fair_share + 1), name
        sim.tick()
