"""Conditions: the time of a transition moves when the status flips, and only then."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbatch.api import conditions
from kbatch.api.objects import Condition

OLD, NOW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def _condition(type_: str = conditions.SCHEDULED, status: str = "False", **more: object) -> Condition:
    return Condition(type=type_, status=status, **more)  # type: ignore[arg-type]


def test_a_new_condition_gets_the_time_and_comes_last() -> None:
    merged = conditions.merge((_condition("A", last_transition_time=OLD),), (_condition("B"),), NOW)
    assert [(one.type, one.last_transition_time) for one in merged] == [("A", OLD), ("B", NOW)]


def test_a_changed_message_keeps_the_time() -> None:
    before = _condition(reason="NotEnoughResources", message="3 of 6", last_transition_time=OLD, observed_generation=1)
    (after,) = conditions.merge((before,), (_condition(reason="Gated", message="x", observed_generation=2),), NOW)
    assert after == _condition(reason="Gated", message="x", last_transition_time=OLD, observed_generation=2)


def test_a_flip_moves_the_time() -> None:
    (after,) = conditions.merge((_condition(last_transition_time=OLD),), (_condition(status="True"),), NOW)
    assert (after.status, after.last_transition_time) == ("True", NOW)


def test_a_condition_that_never_had_a_time_gets_one() -> None:
    (after,) = conditions.merge((_condition(),), (_condition(),), NOW)
    assert after.last_transition_time == NOW


def test_the_time_is_the_mergers_business_not_the_wanted_ones() -> None:
    (after,) = conditions.merge((_condition(last_transition_time=OLD),), (_condition(last_transition_time=NOW),), NOW)
    assert after.last_transition_time == OLD


def test_a_type_wanted_twice_is_an_error() -> None:
    with pytest.raises(ValueError, match="Scheduled is wanted twice"):
        conditions.merge((), (_condition(), _condition()), NOW)


def test_of_types_and_is_true() -> None:
    all_ = (_condition("Scheduled", "True"), _condition("Failed", "False"), _condition("Other", "True"))
    assert [one.type for one in conditions.of_types(all_, conditions.SCHEDULER_TYPES)] == ["Scheduled"]
    assert conditions.of_types(None, conditions.SCHEDULER_TYPES) == ()
    assert conditions.is_true(all_, "Scheduled")
    assert not conditions.is_true(all_, "Failed")
    assert not conditions.is_true(all_, "Absent")
    assert not conditions.is_true(None, "Scheduled")


def test_the_two_writers_own_different_types() -> None:
    assert not set(conditions.SCHEDULER_TYPES) & set(conditions.PODGROUP_TYPES)


_types = st.sampled_from(["A", "B", "C", "D"])
_some = st.dictionaries(_types, st.sampled_from(["True", "False", "Unknown"])).map(
    lambda found: tuple(_condition(type_, status) for type_, status in found.items())
)


@given(existing=_some, wanted=_some)
def test_merging_twice_changes_nothing_and_loses_no_type(
    existing: tuple[Condition, ...], wanted: tuple[Condition, ...]
) -> None:
    once = conditions.merge(existing, wanted, OLD)
    assert conditions.merge(once, wanted, NOW) == once
    assert {one.type for one in once} == {one.type for one in existing} | {one.type for one in wanted}
    assert {one.type: one.status for one in once} == {
        **{one.type: one.status for one in existing},
        **{one.type: one.status for one in wanted},
    }


def test_enqueued_of_a_life_before_counts_for_nothing_until_it_is_said_again() -> None:
    enqueued = _condition(conditions.ENQUEUED, "True", last_transition_time="2026-11-20T12:00:00Z")
    ended = _condition(conditions.COMPLETED, "True", last_transition_time="2026-11-20T13:00:00Z")
    back = _condition(conditions.COMPLETED, "False", last_transition_time="2026-11-20T14:00:00Z")
    assert conditions.let_in([enqueued])
    assert conditions.let_in([enqueued, ended]), "it is over: there is nothing to take back"
    assert not conditions.let_in([enqueued, back])
    assert not conditions.let_in([_condition(conditions.ENQUEUED, "False"), ended])

    said = _condition(conditions.ENQUEUED, "True")
    anew = conditions.merge([enqueued, back], [said], "2026-11-20T15:00:00Z")
    assert conditions.let_in(anew)
    assert anew[0].last_transition_time == "2026-11-20T15:00:00Z"
    assert conditions.merge(anew, [said], "2026-11-20T16:00:00Z") == anew
    behind = conditions.merge([enqueued, back], [said], "2026-11-20T13:30:00Z")
    assert conditions.let_in(behind), "whoever says it may have a clock that is behind"
