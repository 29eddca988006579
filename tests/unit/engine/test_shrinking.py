"""Who goes first of those that may go: pods above a minimum, from the role furthest above its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from kbatch.api.names import LAST_CHECKPOINT_ANNOTATION
from kbatch.api.objects import Pod
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.shrinking import working_out
from tests.unit.engine.test_growth import EQUAL, elastic
from tests.unit.engine.worlds import EVERYTHING, group, members, node, pod, policy, priority_class, queue, run, world

QUEUES = [queue("q1"), queue("q2")]


def of_role(role: str, count: int, *, at: int = 0, **more: Any) -> list[Pod]:
    return [pod(f"{role}-{number}", of="g", role=role, on="n1", at=at, **more) for number in range(count)]


def evicted(room: int, claims: int, *standing: Any, now: int = 60) -> list[str]:
    """Who goes of q1 for so many pods of q2, on a node of so many pods that is full."""
    asked = [group("claim", claims, queue="q2", at=50), members("claim", claims, at=50)]
    return run(world(QUEUES, node("n1", str(room)), *standing, *asked), EQUAL, now=now).evicted


def roles_of(names: Sequence[str]) -> Counter[str]:
    return Counter(name.partition("-")[0] for name in names)


def test_the_role_furthest_above_its_minimum_gives_first() -> None:
    g = elastic("g", 3, ("a", 2, 9), ("b", 1, 9), queue="q1")
    standing = [g, of_role("a", 5, at=9), of_role("b", 5)]  # a is 3 above, and the younger; b is 4 above
    assert roles_of(evicted(10, 1, *standing)) == {"b": 1}
    assert roles_of(evicted(10, 3, *standing)) == {"a": 1, "b": 2}


@pytest.mark.parametrize("claims", range(1, 5))
def test_roles_come_down_together_and_end_as_near_as_can_be(claims: int) -> None:
    g = elastic("g", 3, ("a", 2, 9), ("b", 1, 9), queue="q1")
    gone = roles_of(evicted(8, claims, g, of_role("a", 4), of_role("b", 4)))
    above = {"a": 2 - gone["a"], "b": 3 - gone["b"]}
    assert sum(gone.values()) == claims
    assert abs(above["a"] - above["b"]) <= 1


def test_of_a_role_the_youngest_goes() -> None:
    g = elastic("g", 2, ("a", 1, 9), ("b", 1, 9), queue="q1")
    b = [pod(f"b-{at}", of="g", role="b", on="n1", at=at) for at in range(4)]
    assert evicted(6, 1, g, of_role("a", 2, at=20), b) == ["b-3"]


def test_pods_of_a_lower_priority_go_before_the_role_is_looked_at() -> None:
    g = elastic("g", 2, ("a", 1, 9), ("b", 1, 9), queue="q1")
    gone = evicted(6, 1, g, of_role("a", 2, priority=1), of_role("b", 4, priority=2))
    assert roles_of(gone) == {"a": 1}


def test_pods_of_a_role_that_is_not_declared_are_above_their_minimum() -> None:
    g = elastic("g", 2, ("a", 2, 9), queue="q1")
    assert roles_of(evicted(6, 2, g, of_role("a", 3, at=9), of_role("x", 3))) == {"x": 2}


def test_a_group_is_shrunk_before_another_ends() -> None:
    """The single pod is the youngest, and all that there is of its group."""
    alone = [group("s", 1, queue="q1", at=9), pod("s-0", of="s", on="n1", at=9)]
    whole = [group("g", 2, queue="q1"), [pod(f"g-{at}", of="g", on="n1") for at in range(5)]]
    assert roles_of(evicted(6, 3, *alone, *whole)) == {"g": 3}


def test_the_last_pod_of_a_group_goes_after_those_that_leave_others_behind() -> None:
    several = [group("m", 1, queue="q1", at=9), [pod(f"m-{at}", of="m", on="n1", at=9 + at) for at in range(2)]]
    whole = [group("g", 2, queue="q1"), [pod(f"g-{at}", of="g", on="n1") for at in range(4)]]
    assert roles_of(evicted(6, 3, *several, *whole)) == {"m": 1, "g": 2}


def test_of_elastic_groups_that_gives_first_which_is_furthest_above_its_minimum() -> None:
    """The smaller one is the younger; both end as near as can be, the younger below at last."""
    large = [group("g", 2, queue="q1"), [pod(f"g-{at}", of="g", on="n1") for at in range(7)]]
    small = [group("h", 3, queue="q1", at=9), [pod(f"h-{at}", of="h", on="n1", at=9) for at in range(5)]]
    assert roles_of(evicted(12, 3, *large, *small)) == {"g": 3}
    assert roles_of(evicted(12, 4, *large, *small)) == {"g": 3, "h": 1}


def test_a_group_that_declares_a_minimum_gives_before_one_that_does_not() -> None:
    """The other is the larger and the younger; when both are one above, age decides."""
    declared = [group("g", 2, queue="q1"), [pod(f"g-{at}", of="g", on="n1") for at in range(4)]]
    plain = [group("m", 1, queue="q1", at=9), [pod(f"m-{at}", of="m", on="n1", at=9) for at in range(6)]]
    assert roles_of(evicted(10, 1, *declared, *plain)) == {"g": 1}
    assert roles_of(evicted(10, 3, *declared, *plain)) == {"g": 1, "m": 2}


def test_a_single_pod_of_lower_priority_goes_before_a_group_is_shrunk() -> None:
    classes = [priority_class("low", 1), priority_class("high", 9)]
    alone = [group("s", 1, queue="q1", priority_class_name="low"), pod("s-0", of="s", on="n1")]
    whole = [
        group("g", 2, queue="q1", priority_class_name="high"),
        [pod(f"g-{at}", of="g", on="n1") for at in range(5)],
    ]
    assert evicted(6, 1, classes, *alone, *whole) == ["s-0"]


def saved(found: Pod, second: int) -> Pod:
    told = {LAST_CHECKPOINT_ANNOTATION: f"2026-01-01T00:00:{second:02}Z"}
    found.metadata.annotations = {**(found.metadata.annotations or {}), **told}
    return found


def test_the_role_goes_before_lost_work_and_lost_work_says_whose_group_is_next() -> None:
    g = elastic("g", 2, ("a", 1, 9), ("b", 1, 9), queue="q1")
    a = [saved(pod(f"a-{at}", of="g", role="a", on="n1"), 59) for at in range(2)]
    b = [saved(pod(f"b-{at}", of="g", role="b", on="n1"), 10 * at) for at in range(3)]
    assert evicted(5, 1, g, a, b) == ["b-2"], "of role b the one that loses least, although a's lose less"
    other = [group("h", 1, queue="q1"), [saved(pod(f"h-{at}", of="h", on="n1"), 30 + at) for at in range(2)]]
    assert evicted(7, 1, g, a, b, *other) == ["h-1"], "the group would have to give b-2 first, which loses more"


def test_a_group_is_shrunk_before_another_ends_however_little_is_lost_with_that() -> None:
    alone = [group("s", 1, queue="q1"), saved(pod("s-0", of="s", on="n1"), 59)]
    whole = [group("g", 2, queue="q1"), [pod(f"g-{at}", of="g", on="n1") for at in range(3)]]
    assert roles_of(evicted(4, 1, *alone, *whole)) == {"g": 1}


def test_the_order_of_a_large_group_is_worked_out_in_pieces_and_once() -> None:
    pods = [pod(f"g-{at}", of="g", on="n1", at=at % 7) for at in range(1000)]
    model = world(queue("q1"), node("n1", "1000"), group("g", 2, queue="q1"), pods)
    job = JobState(model.jobs["ns/g"], "q1", {})
    assert len(list(working_out(job))) > 5
    assert job.turns is not None
    assert len(job.turns) == 1000
    assert not list(working_out(job))


def test_inside_a_queue_surplus_goes_from_the_role_furthest_above_its_minimum() -> None:
    classes = [priority_class("low", 1), priority_class("high", 9)]
    g = elastic("g", 2, ("a", 1, 9), ("b", 1, 9), priority_class_name="low")
    urgent = [group("u", 2, at=50, priority_class_name="high"), members("u", 2, at=50)]
    model = world(classes, queue(), node("n1", "6"), g, of_role("a", 2, at=9), of_role("b", 4), *urgent)
    assert roles_of(run(model, policy(EVERYTHING), now=60).evicted) == {"b": 2}
