"""Who grows next beyond a minimum: groups of equal order, and the roles of a group, by the part of their growth."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kbatch.api.objects import PodGroup, SubGroup
from tests.unit.engine.worlds import (
    EVERYTHING,
    Decisions,
    group,
    members,
    node,
    pod,
    policy,
    priority_class,
    queue,
    run,
    world,
)

EQUAL = policy("""
actions: "enqueue, reclaim, allocate, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: predicates}, {name: proportion}]
""")
"""Here groups are equal in order that are equal in priority and have their minimum."""


def elastic(name: str, least: int, *roles: tuple[str, int, int | None], **more: Any) -> PodGroup:
    found = group(name, least, **more)
    found.spec.sub_groups = tuple(SubGroup(name=role, min_member=low, max_member=most) for role, low, most in roles)
    return found


def placed(found: Decisions) -> Counter[str]:
    """How many pods of each prefix were bound."""
    return Counter(name.rpartition("-")[0] for name in found.binds)


def test_the_group_with_the_smallest_part_of_its_growth_is_next() -> None:
    small, large = [group("a", 2), members("a", 4)], [group("b", 2, at=1), members("b", 10)]
    found = run(world(queue(), node("n1", "9"), *small, *large), EQUAL)
    assert placed(found) == {"a": 2 + 1, "b": 2 + 4}


def test_a_maximum_counts_even_where_fewer_pods_exist_and_not_what_is_made_beyond_it() -> None:
    # Of b's role 3 pods may be above the minimum, and more exist; of a's 20, and 5 exist: 3 of 20 is less than 1 of 3.
    a = [elastic("a", 1, ("w", 1, 21)), members("a", 6, role="w")]
    b = [elastic("b", 1, ("w", 1, 4), at=1), members("b", 13, role="w")]
    found = run(world(queue(), node("n1", "6"), *a, *b), EQUAL)
    assert placed(found) == {"a": 1 + 3, "b": 1 + 1}


def test_no_group_passes_its_maximum_for_want_of_others() -> None:
    found = run(world(queue(), node("n1", "9"), elastic("a", 1, ("w", 1, 4)), members("a", 9, role="w")), EQUAL)
    assert placed(found) == {"a": 4}


def test_what_orders_groups_goes_before_their_growth() -> None:
    low, high = priority_class("low", 1), priority_class("high", 9)
    a = [group("a", 1, priority_class_name="low"), members("a", 4)]
    b = [group("b", 1, at=1, priority_class_name="high"), members("b", 4)]
    found = run(world([low, high, queue(), node("n1", "5")], *a, *b), EQUAL)
    assert placed(found) == {"a": 1, "b": 4}


def test_shares_that_drf_compares_go_before_growth() -> None:
    a, b = [group("a", 1), members("a", 3)], [group("b", 1, at=1), members("b", 11)]
    found = run(world(queue(), node("n1", "6"), *a, *b), policy(EVERYTHING))
    assert placed(found) == {"a": 3, "b": 3}


def test_minimums_come_before_growth() -> None:
    a, b = [group("a", 1), members("a", 6)], [group("b", 3, at=1), members("b", 3)]
    found = run(world(queue(), node("n1", "5"), *a, *b), EQUAL)
    assert placed(found) == {"a": 2, "b": 3}


def test_the_role_with_the_smallest_part_of_its_growth_is_next() -> None:
    g = elastic("g", 2, ("a", 1, 3), ("b", 1, 9))
    pods = [pod(f"a-{at}", of="g", role="a") for at in range(3)] + [pod(f"b-{at}", of="g", role="b") for at in range(9)]
    found = run(world(queue(), node("n1", "7"), g, pods), EQUAL)
    assert placed(found) == {"a": 1 + 1, "b": 1 + 4}


def test_among_pods_of_a_group_what_orders_them_goes_before_their_roles_growth() -> None:
    g = elastic("g", 2, ("a", 1, 5), ("b", 1, 5))
    pods = [pod(f"a-{at}", of="g", role="a", priority=9) for at in range(5)]
    pods += [pod(f"b-{at}", of="g", role="b", priority=1) for at in range(5)]
    found = run(world(queue(), node("n1", "5"), g, pods), EQUAL)
    assert placed(found) == {"a": 4, "b": 1}


def test_a_role_that_finds_no_room_leaves_the_rest_to_others() -> None:
    g = elastic("g", 2, ("a", 1, 3), ("b", 1, 9))
    pods = [pod("a-0", of="g", role="a"), pod("a-1", "8", of="g", role="a"), pod("a-2", "8", of="g", role="a")]
    pods += [pod(f"b-{at}", of="g", role="b") for at in range(9)]
    found = run(world(queue(), node("n1", "7"), g, pods), EQUAL)
    assert placed(found) == {"a": 1, "b": 6}


def test_a_group_of_which_all_exists_is_measured_by_what_exists() -> None:
    # Pods that no maximum bounds, of a role and of none: three may be added to each.
    a = [elastic("a", 1, ("w", 1, None)), members("a", 4, role="w")]
    b = [group("b", 1, at=1), members("b", 4)]
    found = run(world(queue(), node("n1", "6"), *a, *b), EQUAL)
    assert placed(found) == {"a": 3, "b": 3}


@pytest.mark.parametrize("room", [4, 5, 6])
def test_room_that_another_queue_gives_back_goes_to_the_same_group(room: int) -> None:
    """Reclaim fetches room for growth in the order in which allocate gives it."""
    nodes = [queue("q1"), queue("q2"), node("n1", str(2 * room))]
    theirs = [group("o", 1, queue="q2"), [pod(f"o-{at}", of="o", on="n1") for at in range(2 * room - 2)]]
    a = [group("a", 1, queue="q1"), pod("a-0", of="a", on="n1"), [pod(f"a-{at}", of="a", at=9) for at in range(1, 3)]]
    b = [group("b", 1, queue="q1", at=1), pod("b-0", of="b", on="n1")]
    more = [pod(f"b-{at}", of="b", at=9) for at in range(1, 9)]
    found = run(world(nodes, *theirs, *a, *b, more), EQUAL, now=20)
    waits = Counter(name.rpartition("-")[0] for name in found.nominated)
    assert sum(waits.values()) == room - 2
    growth = {"a": 2, "b": 8}
    order: list[str] = []
    for _ in range(room - 2):
        order.append(min("ab", key=lambda name: (order.count(name) / growth[name], name)))
    assert waits == Counter(order)


@pytest.mark.parametrize("room", [4, 5, 6])
def test_room_that_another_queue_gives_back_goes_to_the_same_role(room: int) -> None:
    nodes = [queue("q1"), queue("q2"), node("n1", str(2 * room))]
    theirs = [group("o", 1, queue="q2"), [pod(f"o-{at}", of="o", on="n1") for at in range(2 * room - 2)]]
    g = elastic("g", 2, ("a", 1, 3), ("b", 1, 9), queue="q1")
    stands = [pod("a-0", of="g", role="a", on="n1"), pod("b-0", of="g", role="b", on="n1")]
    waits = [pod(f"a-{at}", of="g", role="a", at=5) for at in range(1, 3)]
    waits += [pod(f"b-{at}", of="g", role="b", at=9) for at in range(1, 9)]
    found = run(world(nodes, *theirs, g, stands, waits), EQUAL, now=20)
    nominated = Counter(name.rpartition("-")[0] for name in found.nominated)
    growth = {"a": 2, "b": 8}
    order: list[str] = []
    for _ in range(room - 2):
        order.append(min("ab", key=lambda name: (order.count(name) / growth[name], name)))
    assert nominated == Counter(order)
