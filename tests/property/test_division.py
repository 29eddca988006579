"""Division under constraints: against the plain division, and against a linear programme."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from kbatch.engine.cooperative import finish
from kbatch.model import division, unions, unions_many
from kbatch.model.division import divide
from kbatch.model.division_again import LastDivision
from kbatch.model.shares import Claim, water_fill
from tests.examples import examples
from tests.property.test_shares import amounts, claim_lists, vectors

MOST_CLASSES = 4

Parts = dict[int, dict[str, int]]


@st.composite
def constrained(draw: st.DrawFn) -> tuple[list[int], list[Claim], list[Parts]]:
    """Rooms of classes, claims, and what each asks of which classes; one dimension."""
    small = st.one_of(st.integers(0, 12), st.integers(0, 1000))
    rooms = draw(st.lists(small, min_size=1, max_size=MOST_CLASSES))
    reach = st.integers(0, 2 ** len(rooms) - 1)
    equal = draw(st.booleans())
    claims, parts = [], []
    for name in "abcde"[: draw(st.integers(1, 5))]:
        claims.append(
            Claim(
                name,
                1 if equal else draw(st.integers(1, 5)),
                {},
                capability=draw(st.none() | st.fixed_dictionaries({"cpu": small})),
                holds={"cpu": draw(small)},
                oldest_waiting=draw(st.none() | st.tuples(st.integers(0, 3), st.just(name))),
            )
        )
        parts.append({each: {"cpu": draw(small)} for each in draw(st.lists(reach, max_size=3, unique=True))})
    return rooms, claims, parts


def shares_of(rooms: list[int], claims: list[Claim], parts: list[Parts]) -> list[int]:
    found = divide([{"cpu": room} for room in rooms], claims, parts)
    return [found[claim.name].get("cpu", 0) for claim in claims]


@given(constrained(), st.data())
def test_what_came_out_before_is_said_again_only_where_it_would_come_out_again(
    drawn: tuple[list[int], list[Claim], list[Parts]], data: st.DataObject
) -> None:
    rooms, claims, parts = drawn
    capacities = [{"cpu": room} for room in rooms]
    demands = [{reach: dict(amounts) for reach, amounts in part.items()} for part in parts]
    last = LastDivision()
    for _ in range(3):
        assert finish(last.dividing(capacities, claims, demands)) == divide(capacities, claims, demands)
        holds, waits = (
            data.draw(st.integers(0, 1000)),
            data.draw(st.none() | st.tuples(st.integers(0, 3), st.just("g"))),
        )
        at = data.draw(st.integers(0, len(claims) - 1))
        claims = [*claims[:at], replace(claims[at], holds={"cpu": holds}, oldest_waiting=waits), *claims[at + 1 :]]


class Programme:
    """The same division as linear programmes: raise all together, fix those who can rise no more, go on."""

    def __init__(self, rooms: list[int], claims: list[Claim], parts: list[Parts]) -> None:
        self.claims = claims
        asked = [(at, reach, amounts["cpu"]) for at, each in enumerate(parts) for reach, amounts in each.items()]
        flows = [(i, k) for i, (_, reach, _) in enumerate(asked) for k in range(len(rooms)) if reach >> k & 1]
        self.width = len(flows) + 1  # the last variable is the level
        rows, bounds = [], []
        for k, room in enumerate(rooms):
            rows.append([float(flow[1] == k) for flow in flows] + [0.0])
            bounds.append(float(room))
        for i, (_, _, amount) in enumerate(asked):
            rows.append([float(flow[0] == i) for flow in flows] + [0.0])
            bounds.append(float(amount))
        self.of = np.array([[float(asked[i][0] == at) for i, _ in flows] + [0.0] for at in range(len(claims))]).reshape(
            len(claims), self.width
        )
        for at, claim in enumerate(claims):
            rows.append(list(self.of[at]))
            bounds.append(float((claim.capability or {}).get("cpu", 10**9)))
        self.rows, self.bounds = np.array(rows).reshape(-1, self.width), np.array(bounds)

    def best(self, goal: Any, least: dict[int, float], rising: dict[int, int]) -> float:
        """The most of a goal, where some get at least so much and the rising the level times their weight."""
        rows, bounds = [self.rows], [self.bounds]
        for at, amount in least.items():
            rows.append(-self.of[at][None])
            bounds.append(np.array([-amount]))
        for at, weight in rising.items():
            row = -self.of[at].copy()
            row[-1] = weight
            rows.append(row[None])
            bounds.append(np.zeros(1))
        solve: Any = optimize.linprog
        found = solve(-goal, A_ub=np.concatenate(rows), b_ub=np.concatenate(bounds), method="highs")
        assert found.status == 0, found.message
        return float(-found.fun)

    def shares(self) -> list[float]:
        """What each queue gets, in fractions."""
        fixed: dict[int, float] = {}
        level = np.zeros(self.width)
        level[-1] = 1.0
        while len(fixed) < len(self.claims):
            rising = {at: claim.weight for at, claim in enumerate(self.claims) if at not in fixed}
            top = self.best(level, _eased(fixed), rising)
            reached = {at: top * weight for at, weight in rising.items()}
            stuck = [
                at
                for at, amount in reached.items()
                if self.best(self.of[at], _eased({**fixed, **{o: a for o, a in reached.items() if o != at}}), {})
                <= amount + 1e-4
            ]
            assert stuck, "somebody cannot rise any more, or the level would be higher"
            fixed |= {at: reached[at] for at in stuck}
        return [fixed[at] for at in range(len(self.claims))]


def _eased(amounts: dict[int, float]) -> dict[int, float]:
    """A little less, so that rounding makes no programme impossible."""
    return {at: max(0.0, amount - 1e-6) for at, amount in amounts.items()}


@settings(deadline=None, max_examples=examples(30))
@given(constrained())
def test_constrained_shares_are_those_of_a_linear_programme(case: tuple[list[int], list[Claim], list[Parts]]) -> None:
    as_by_programme(*case)


@pytest.mark.many
@settings(deadline=None, max_examples=examples(300))
@given(constrained())
def test_many_constrained_shares_are_those_of_a_linear_programme(
    case: tuple[list[int], list[Claim], list[Parts]],
) -> None:
    as_by_programme(*case)


def as_by_programme(rooms: list[int], claims: list[Claim], parts: list[Parts]) -> None:
    """Within a unit each, but for queues of different weights that are raised together, to one level.

    If they share all their classes, the rounds of the plain division give what each of them is short of by a fraction,
    together less than a unit for each, by weight. All together they get as much as they can.
    """
    got, wanted = shares_of(rooms, claims, parts), Programme(rooms, claims, parts).shares()
    levels = [share / claim.weight for share, claim in zip(wanted, claims, strict=True)]
    for at, level in enumerate(levels):
        together = [other for other, each in enumerate(levels) if abs(each - level) < 1e-3]
        slack = len(together) - 1 if len({claims[other].weight for other in together}) > 1 else 1
        assert abs(got[at] - wanted[at]) < max(1, slack) + 0.01
    assert abs(sum(got) - sum(wanted)) < 0.01


@settings(deadline=None)
@given(constrained(), st.data())
def test_each_dimension_is_divided_as_if_there_were_no_other(
    case: tuple[list[int], list[Claim], list[Parts]], data: st.DataObject
) -> None:
    """So what holds of one dimension, as compared with the linear programme, holds of two."""
    rooms, claims, parts = case
    small = st.integers(0, 1000)
    capacities = [{"cpu": room, "memory": data.draw(small)} for room in rooms]
    claims = [
        replace(
            claim,
            capability={**(claim.capability or {}), **data.draw(st.fixed_dictionaries({}, optional={"memory": small}))},
            holds={**claim.holds, "memory": data.draw(small)},
        )
        for claim in claims
    ]
    reach = st.integers(0, 2 ** len(rooms) - 1)
    asked = [
        {
            **of,
            **{
                each: {**of.get(each, {}), "memory": data.draw(small)} for each in data.draw(st.sets(reach, max_size=2))
            },
        }
        for of in parts
    ]
    both = divide(capacities, claims, asked)
    for name in ("cpu", "memory"):
        alone = divide(
            [{name: capacity[name]} for capacity in capacities],
            [
                replace(
                    claim,
                    capability={key: most for key, most in (claim.capability or {}).items() if key == name},
                    holds={name: claim.holds[name]},
                )
                for claim in claims
            ],
            [{each: {name: amounts[name]} for each, amounts in of.items() if name in amounts} for of in asked],
        )
        for claim in claims:
            assert both[claim.name].get(name) == alone[claim.name].get(name)


@settings(deadline=None, max_examples=examples(60))
@given(constrained(), st.booleans())
def test_the_division_is_the_same_whether_flows_or_unions_of_sets_tell_what_can_be_served(
    case: tuple[list[int], list[Claim], list[Parts]], large: bool
) -> None:
    """With large numbers, products with weights and denominators leave the range of a column."""
    rooms, claims, parts = case
    if large:
        rooms = [room * (2**46 + 1) for room in rooms]
        claims = [replace(claim, weight=claim.weight * 10**8 + at, capability=None) for at, claim in enumerate(claims)]
        parts = [{reach: {"cpu": each["cpu"] * (2**46 + 1)} for reach, each in part.items()} for part in parts]
    wanted = None
    for several, few, decided, widths in (
        (10**9, 0, 0, ()),  # flows
        (0, 10**9, 0, ()),  # unions one by one
        (0, 0, 10**9, (4, 8)),  # collections of all sets
        (0, 0, 0, (4, 8)),  # of those that are not decided before
        (0, 0, 10**9, (1,)),  # demands of several sets looked at for each collection
        (0, 0, 0, (1,)),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(division, "SEVERAL", several)
            patch.setattr(unions, "FEW_UNIONS", few)
            patch.setattr(unions_many, "DECIDED_AT_ONCE", decided)
            patch.setattr(unions_many, "WIDTHS", widths)
            found = shares_of(rooms, claims, parts)
            wanted = wanted or found
            assert found == wanted


@settings(deadline=None)
@given(vectors, claim_lists(), st.lists(st.integers(0, 2**50), max_size=3))
def test_where_all_may_use_all_the_division_is_the_plain_one(
    capacity: dict[str, int], claims: list[Claim], cuts: list[int]
) -> None:
    classes: list[dict[str, int]] = [{} for _ in range(len(cuts) + 1)]
    for name, amount in capacity.items():
        rest = amount
        for at, cut in enumerate(cuts):
            classes[at][name] = min(rest, cut)
            rest -= classes[at][name]
        classes[-1][name] = rest
    parts = [{2 ** len(classes) - 1: claim.request} for claim in claims]
    assert divide(classes, claims, parts) == water_fill(capacity, claims)


@settings(deadline=None)
@given(constrained(), st.randoms(use_true_random=False))
def test_what_is_granted_can_be_served_and_nothing_that_could_is_left(
    case: tuple[list[int], list[Claim], list[Parts]], mixer: Any
) -> None:
    rooms, claims, parts = case
    got = shares_of(rooms, claims, parts)
    programme = Programme(rooms, claims, parts)
    total = programme.of.sum(axis=0)
    assert abs(programme.best(total, _eased(dict(enumerate(map(float, got)))), {}) - sum(got)) < 0.01
    order = list(range(len(claims)))
    mixer.shuffle(order)
    mixed = shares_of(rooms, [claims[at] for at in order], [parts[at] for at in order])
    assert mixed == [got[at] for at in order], "the order of queues does not matter"


@settings(deadline=None)
@given(constrained(), amounts)
def test_classes_that_nobody_may_use_change_nothing(
    case: tuple[list[int], list[Claim], list[Parts]], room: int
) -> None:
    rooms, claims, parts = case
    assert shares_of([*rooms, room], claims, parts) == shares_of(rooms, claims, parts)
