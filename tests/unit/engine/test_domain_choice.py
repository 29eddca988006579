"""Which domain is taken of several, and who says how close pods are to stand."""

from __future__ import annotations

from typing import Any

import pytest

from kbatch.api.names import MAX_HOPS_ANNOTATION
from kbatch.api.reasons import TopologyUnsatisfied
from tests.unit.engine.closeness import LEVELS, TREE, close, nodes_at, racks, wired
from tests.unit.engine.worlds import ALLOCATE, group, members, pod, queue, run, world

TWO_RACKS = ("z/b/r1/a1", "z/b/r1/a2", "z/b/r2/b1", "z/b/r2/b2")


def _annotated(obj: Any, text: str) -> Any:
    obj.metadata.annotations = {**(obj.metadata.annotations or {}), MAX_HOPS_ANNOTATION: text}
    return obj


def test_of_racks_that_are_left_alike_that_with_the_better_nodes_is_taken() -> None:
    """Each rack holds two pods. Of the nodes of rack a the pods of others use some, so they would be fuller."""
    nodes = nodes_at(*TWO_RACKS, a1="4", a2="4", b1="3", b2="3")
    busy = [pod(f"x-{name}", on=name) for name in ("a1", "a2")]
    found = run(world(queue(), nodes, busy, close(group("g", 2), 2), members("g", 2, "2")), wired(ALLOCATE))
    assert set(found.binds.values()) == {"b1", "b2"}


def test_of_racks_that_are_alike_the_first_by_name_is_taken() -> None:
    found = run(world(queue(), nodes_at(*TWO_RACKS), close(group("g", 2), 2), members("g", 2)), wired(ALLOCATE))
    assert set(found.binds.values()) == {"a1", "a2"}


def test_room_left_over_is_counted_in_pods_of_the_largest_kind() -> None:
    """Rack a holds one large pod, or ten small ones; rack b two, or eight."""
    nodes = nodes_at("z/b/r1/a1", "z/b/r1/a2", "z/b/r1/a3", "z/b/r2/b1", "z/b/r2/b2", cpu="4", a2="3", a3="3")
    pods = [pod("g-0", "1", of="g"), pod("g-1", "4", of="g")]
    found = run(world(queue(), nodes, close(group("g", 2), 2), pods), wired(ALLOCATE))
    assert racks(found.binds.values()) == {"a"}


def test_the_largest_role_chooses_first() -> None:
    """Each would take rack a, which has fewer nodes; the role that is named last asks for more of them."""
    nodes = nodes_at(*TWO_RACKS, "z/b/r2/b3", cpu="2")
    made = close(group("g", 4, roles={"small": 2, "large": 2}), small=(2, ""), large=(2, ""))
    pods = [
        pod(f"{role}-{at}", cpu, of="g", role=role) for role, cpu in (("small", "1"), ("large", "2")) for at in "01"
    ]
    found = run(world(queue(), nodes, made, pods), wired(ALLOCATE))
    assert racks(found.binds[f"large-{at}"] for at in "01") == {"a"}
    assert racks(found.binds[f"small-{at}"] for at in "01") == {"b"}


def test_without_a_number_the_mode_is_preferred() -> None:
    for count, most in ((2, 1), (7, 4)):
        found = run(world(queue(), nodes_at(*TREE), close(group("g", count)), members("g", count)), wired())
        assert len(found.binds) == count
        assert len(racks(found.binds.values())) == most


@pytest.mark.parametrize(("third", "bound"), [((), set()), (("z1/b1/r2/b3",), {"b3"})])
def test_who_joins_where_no_number_is_given_keeps_the_hops_of_those_that_stand(
    third: tuple[str, ...], bound: set[str]
) -> None:
    """Two stand in rack b, which is full but for a third node, if it has one; there is room everywhere else."""
    standing = [pod(f"g-{at}", of="g", on=name) for at, name in enumerate(("b1", "b2"))]
    made = close(group("g", 2), mode="Required")
    found = run(world(queue(), nodes_at(*TREE, *third), standing, made, pod("g-2", of="g")), wired())
    assert set(found.binds.values()) == bound


def test_who_joins_a_preferred_group_comes_as_close_as_there_is_room() -> None:
    standing = [pod("g-0", of="g", on="b1"), pod("x", on="b2")]
    made = close(group("g", 1), mode="Preferred")
    found = run(world(queue(), nodes_at(*TREE), standing, made, pod("g-1", of="g")), wired())
    assert racks(found.binds.values()) == {"a"}, "the other rack of the block"


def test_the_annotation_counts_on_the_podgroup_only() -> None:
    pods = [_annotated(one, "2") for one in members("g", 3)]
    assert len(run(world(queue(), nodes_at(*TREE), group("g", 3), pods), wired()).binds) == 3


def test_what_the_spec_says_goes_before_the_annotation() -> None:
    made = _annotated(close(group("g", 3), 4), "2")
    assert len(run(world(queue(), nodes_at(*TREE), made, members("g", 3)), wired()).binds) == 3


@pytest.mark.parametrize("text", ["", "near", "-2", "2.0", "65", "٢"])
def test_an_annotation_that_is_no_number_of_hops_says_nothing(text: str) -> None:
    made = _annotated(group("g", 7), text)
    assert len(run(world(queue(), nodes_at(*TREE), made, members("g", 7)), wired()).binds) == 7


@pytest.mark.parametrize("levels", [f"{LEVELS}, kubernetes.io/hostname", f"kubernetes.io/hostname, {LEVELS}"])
def test_the_node_is_the_last_level_whether_it_is_named_or_not(levels: str) -> None:
    made = close(group("g", 3), 2)
    found = run(world(queue(), nodes_at(*TREE), made, members("g", 3)), wired(levels=levels))
    assert found.verdicts["ns/g"].reason == TopologyUnsatisfied(3, 2, 2, "", "z1/b1/r1", "rack", emptied=True)


def test_more_hops_than_the_network_has_bind_nobody() -> None:
    found = run(world(queue(), nodes_at(*TREE), close(group("g", 7), 64), members("g", 7)), wired())
    assert len(found.binds) == 7


def test_no_role_stands_far_apart_for_the_sake_of_the_others() -> None:
    """With all of role a on n1, those of role b are six hops apart, which makes six in all; else each has four."""
    nodes = nodes_at("z/b1/r1/n1", "z/b1/r2/n2", "z/b1/r3/n3", "z/b2/r4/n4", n1="2")
    for one, kinds in zip(nodes, ("ab", "a", "b", "b"), strict=True):
        one.metadata.labels = {**(one.metadata.labels or {}), **dict.fromkeys(kinds, "yes")}
    made = close(group("g", 4, roles={"a": 2, "b": 2}), a=(None, "Preferred"), b=(None, "Preferred"))
    pods = [pod(f"{role}-{at}", of="g", role=role, node_selector={role: "yes"}) for role in "ab" for at in "01"]
    found = run(world(queue(), nodes, made, pods), wired(ALLOCATE))
    assert sorted(found.binds[f"a-{at}"] for at in "01") == ["n1", "n2"]
    assert sorted(found.binds[f"b-{at}"] for at in "01") == ["n1", "n3"]


def test_who_joins_those_that_stand_further_apart_than_they_would_have_to_stands_between_them() -> None:
    """Empty, the cluster would hold the two in one rack. They stand in two racks of a block, and so may the third."""
    standing = [pod("g-0", of="g", on="a1"), pod("g-1", of="g", on="b1")]
    made = close(group("g", 2), mode="Required")
    found = run(world(queue(), nodes_at(*TREE), standing, made, pod("g-2", of="g")), wired())
    assert set(found.binds.values()) in ({"a2"}, {"b2"})


def test_two_nodes_without_a_label_are_not_in_one_rack() -> None:
    nodes = nodes_at("z1/b1//a1", "z1/b1//a2")
    found = run(world(queue(), nodes, close(group("g", 2), 2), members("g", 2)), wired())
    assert found.binds == {}
    assert found.verdicts["ns/g"].reason == TopologyUnsatisfied(
        2, 1, 2, "", "z1/b1/a1", "rack", emptied=True, unlabelled="rack"
    )


def test_nobody_is_evicted_for_who_would_be_near_to_one_and_far_from_another() -> None:
    standing = [pod(f"g-{at}", of="g", on=on, priority=100) for at, on in enumerate(("a1", "c1"))]
    low = pod("low", on="a2", priority=1)
    made = close(group("g", 1), 2)
    found = run(world(queue(), nodes_at(*TREE), standing, low, made, pod("g-2", of="g", priority=100)), wired())
    assert found.evicted == []
    assert "g-2" not in found.binds
