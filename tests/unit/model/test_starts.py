"""Since when a group runs, by what its objects say: what minRuntimeSeconds and lifetimeSeconds count from."""

from __future__ import annotations

from msgspec.structs import replace

from kbatch.api.objects import Condition, Pod, PodCondition, PodStatus, timestamp_us
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Upsert
from kbatch.model.image import build_model, take_image
from tests.unit.scheduler.fakes import group, node, pod

MINUTE = "2026-01-01T00:%02d:00Z"
BEGIN = timestamp_us(MINUTE % 0) or 0


def told(type_: str, minute: int, status: str = "True") -> Condition:
    return Condition(type=type_, status=status, reason="Told", last_transition_time=MINUTE % minute)


def member(name: str, minute: int, phase: str = "Running") -> Pod:
    """A member that came to its node in that minute."""
    bound = PodCondition(type="PodScheduled", status="True", last_transition_time=MINUTE % minute)
    return replace(pod(name, node="n1"), status=PodStatus(phase=phase, conditions=(bound,)))


def started(model: ClusterModel) -> int | None:
    """The minute in which the group started; the same after a restart."""
    found = model.jobs["ns/g"].started
    assert build_model(take_image(model)).jobs["ns/g"].started == found
    return None if found is None else (found - BEGIN) // ((timestamp_us(MINUTE % 1) or 0) - BEGIN)


def world(*conditions: Condition) -> ClusterModel:
    model = ClusterModel()
    model.apply(Upsert(node("n1")))
    model.apply(Upsert(group("g", conditions=conditions)))
    return model


def test_it_goes_on_while_members_are_replaced() -> None:
    model = world(told("Enqueued", 1), told("Scheduled", 2))
    model.apply(Upsert(member("a", 2)))
    assert started(model) == 2
    model.apply(Upsert(member("b", 5)))
    model.apply(Delete(Pod, "ns", "a"))
    assert started(model) == 2


def test_it_goes_on_where_the_condition_flips_under_the_others() -> None:
    model = world(told("Enqueued", 1), told("Scheduled", 9))
    model.apply(Upsert(member("a", 3)))
    assert started(model) == 3


def test_it_counts_members_that_have_ended_since_it_was_let_in() -> None:
    model = world(told("Enqueued", 4), told("Scheduled", 9))
    model.apply(Upsert(member("before", 2, "Failed")))
    model.apply(Upsert(member("since", 5, "Failed")))
    model.apply(Upsert(member("now", 8)))
    assert started(model) == 5


def test_it_begins_anew_after_the_whole_was_evicted() -> None:
    model = world(told("Enqueued", 1), told("Scheduled", 2))
    model.apply(Upsert(member("a", 2)))
    model.apply(Delete(Pod, "ns", "a"))
    assert started(model) is None
    model.apply(Upsert(group("g", conditions=(told("Enqueued", 6), told("Scheduled", 3, "False")))))
    model.apply(Upsert(member("b", 7)))
    assert started(model) == 7


def test_a_bind_under_way_is_no_start() -> None:
    model = world(told("Enqueued", 1))
    model.apply(Upsert(pod("a")))
    model.assume("ns/a", "uid-a", "n1")
    assert started(model) is None
    model.apply(Upsert(member("a", 7)))
    assert started(model) == 7
