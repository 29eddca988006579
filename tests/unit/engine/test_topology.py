"""The plugin `topology`: how close the pods of groups and roles stand."""

from __future__ import annotations

from typing import Any
from unittest import mock

import msgspec

from kbatch.api import conditions
from kbatch.api.objects import (
    Affinity,
    GroupTopology,
    LabelSelector,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
)
from kbatch.api.reasons import ClusterTooSmall, NotEnoughResources, Reason, TopologyUnsatisfied
from kbatch.engine import CycleState
from kbatch.engine.placement import gang
from kbatch.engine.state.cycle_state import GatheredRoom
from kbatch.model.events import Upsert
from tests.unit.engine.closeness import TREE, close, nodes_at, racks, wired
from tests.unit.engine.worlds import (
    ALLOCATE,
    EVERYTHING,
    Simulation,
    group,
    members,
    node,
    pod,
    priority_class,
    queue,
    run,
    stamp,
    world,
)


def _reason(found: Any, name: str = "ns/g") -> Reason | None:
    reason: Reason | None = found.verdicts[name].reason
    return reason


def test_a_gang_stands_in_one_rack_if_one_holds_it() -> None:
    found = run(world(queue(), nodes_at(*TREE), close(group("g", 2), 2), members("g", 2)), wired())
    assert len(racks(found.binds.values())) == 1


def test_without_topology_pods_are_not_kept_together() -> None:
    nodes = nodes_at("z1/b1/r1/a1", "z1/b1/r1/a2", "z2/b2/r2/b1", "z2/b2/r2/b2", a2="2", b1="2", a1="1", b2="1")
    found = run(world(queue(), nodes, group("g", 2), members("g", 2)), wired())
    assert set(found.binds.values()) == {"a2", "b1"}


def test_required_waits_rather_than_stand_further_apart() -> None:
    found = run(world(queue(), nodes_at(*TREE), close(group("g", 3), 2), members("g", 3)), wired())
    assert found.binds == {}
    assert _reason(found) == TopologyUnsatisfied(3, 2, 2, "", "z1/b1/r1", "rack", emptied=True)
    assert not found.verdicts["ns/g"].pods_unschedulable


def test_an_odd_number_counts_as_the_even_one_below() -> None:
    found = run(world(queue(), nodes_at(*TREE), close(group("g", 3), 3), members("g", 3)), wired())
    assert _reason(found) == TopologyUnsatisfied(3, 2, 2, "", "z1/b1/r1", "rack", emptied=True)
    found = run(world(queue(), nodes_at(*TREE), close(group("g", 3), 5), members("g", 3)), wired())
    assert racks(found.binds.values()) == {"a", "b"}


def test_preferred_takes_what_there_is() -> None:
    found = run(world(queue(), nodes_at(*TREE), close(group("g", 7), 2, "Preferred"), members("g", 7)), wired())
    assert len(found.binds) == 7


def test_no_hops_is_the_same_node() -> None:
    nodes = nodes_at(*TREE, c1="2")
    found = run(world(queue(), nodes, close(group("g", 2), 0), members("g", 2)), wired())
    assert list(found.binds.values()) == ["c1", "c1"]


def test_too_large_for_the_cluster_even_without_topology() -> None:
    found = run(world(queue(), nodes_at(*TREE), close(group("g", 8), 2), members("g", 8)), wired())
    assert isinstance(_reason(found), ClusterTooSmall)


def test_no_room_now_even_without_topology() -> None:
    busy = [pod(f"x-{at}", on=name) for at, name in enumerate(("a1", "b1", "b2", "c1", "c2", "d1"))]
    found = run(world(queue(), nodes_at(*TREE), busy, close(group("g", 2), 2), members("g", 2)), wired(ALLOCATE))
    assert type(_reason(found)) is NotEnoughResources


def test_room_now_but_too_far_apart() -> None:
    busy = [pod(f"x-{at}", on=name) for at, name in enumerate(("a1", "b1", "c1"))]
    found = run(world(queue(), nodes_at(*TREE), busy, close(group("g", 2), 2), members("g", 2)), wired())
    assert _reason(found) == TopologyUnsatisfied(2, 1, 2, "", "z1/b1/r1", "rack")


def test_the_rack_that_is_left_with_least_room_is_taken() -> None:
    nodes = nodes_at(*TREE, a1="2", a2="2", b1="2", b2="1", c1="2", c2="2")
    found = run(world(queue(), nodes, close(group("g", 3), 2), members("g", 3)), wired())
    assert racks(found.binds.values()) == {"b"}


def test_of_equal_racks_that_in_the_fuller_block_is_taken() -> None:
    nodes = nodes_at("z1/b1/r1/a1", "z1/b1/r2/b1", "z1/b2/r3/c1", cpu="2")
    found = run(world(queue(), nodes, close(group("g", 2), 2), members("g", 2)), wired())
    assert set(found.binds.values()) == {"c1"}


def test_a_single_pod_takes_the_node_with_the_least_room_without_a_look_at_other_sets() -> None:
    nodes = nodes_at("z1/b1/r1/a1", "z1/b1/r1/a2", "z1/b2/r3/c1", "z1/b2/r4/d1", a1="3", a2="2", c1="2", d1="4")
    with mock.patch.object(gang, "Together", side_effect=AssertionError):
        found = run(world(queue(), nodes, close(group("g", 1)), members("g", 1)), wired())
    assert found.binds == {"g-0": "c1"}  # as much room is on a2, but more in its rack


def test_domains_of_one_name_in_different_parents_are_different() -> None:
    nodes = nodes_at("z1/b1/r1/a1", "z1/b2/r1/b1", "z1/b2/r1/b2")
    found = run(world(queue(), nodes, close(group("g", 2), 2), members("g", 2)), wired())
    assert set(found.binds.values()) == {"b1", "b2"}


def test_a_node_without_a_label_is_a_domain_of_its_own() -> None:
    nodes = nodes_at("z1/b1//a1", "z1/b1//a2", "z1/b1/r1/b1", "z1/b1/r1/b2")
    found = run(world(queue(), nodes, close(group("g", 2), 2), members("g", 2)), wired())
    assert set(found.binds.values()) == {"b1", "b2"}
    found = run(world(queue(), nodes[:2], close(group("g", 2), 4), members("g", 2)), wired())
    assert set(found.binds.values()) == {"a1", "a2"}


def _roles(w: int, m: int) -> list[Any]:
    return [
        *(pod(f"w-{at}", of="g", role="w") for at in range(w)),
        *(pod(f"m-{at}", of="g", role="m") for at in range(m)),
    ]


def test_each_role_stands_together() -> None:
    made = close(group("g", 4, roles={"w": 2, "m": 2}), w=(2, ""), m=(2, ""))
    found = run(world(queue(), nodes_at(*TREE), made, _roles(2, 2)), wired())
    assert len(racks(found.binds[name] for name in ("w-0", "w-1"))) == 1
    assert len(racks(found.binds[name] for name in ("m-0", "m-1"))) == 1


def test_a_gang_of_roles_of_which_one_waits_for_room_binds_none() -> None:
    """There is room for the small role at once, beside those that are tried first and have to wait."""
    ends = pod("x", on="n", scheduler="other")
    ends.metadata.deletion_timestamp = stamp(5)
    made = close(group("g", 3, roles={"m": 1, "w": 2}), m=(None, "Required"), w=(6, ""))
    pods = [pod("m-0", "0", of="g", role="m"), pod("w-0", "1", of="g", role="w"), pod("w-1", "0", of="g", role="w")]
    for one in (pods[0], pods[2]):
        one.spec.containers = pod("y", "0", memory="1Gi").spec.containers
    found = run(world(queue(), nodes_at("z1/b1/r1/n"), ends, made, pods), wired(), now=1)
    assert found.binds == {}
    assert found.nominated == {"m-0": "n", "w-0": "n", "w-1": "n"}


def test_roles_within_the_bound_of_the_group() -> None:
    busy = pod("x", on="b1")
    made = close(group("g", 4, roles={"w": 2, "m": 2}), 4, w=(2, ""), m=(2, ""))
    found = run(world(queue(), nodes_at(*TREE), busy, made, _roles(2, 2)), wired())
    assert found.binds == {}
    reason = _reason(found)
    assert isinstance(reason, TopologyUnsatisfied)
    found = run(world(queue(), nodes_at(*TREE), made, _roles(2, 2)), wired())
    assert racks(found.binds.values()) == {"a", "b"}


def test_members_that_join_later_stand_within_the_bound() -> None:
    standing = [pod("g-0", of="g", on="b1")]
    busy = [pod("x", on="b2")]
    objects = (queue(), nodes_at(*TREE), standing, busy, close(group("g", 2), 2), pod("g-1", of="g"))
    found = run(world(*objects), wired())
    assert "g-1" not in found.binds
    assert isinstance(_reason(found), TopologyUnsatisfied)
    found = run(world(*objects[:-2], close(group("g", 2), 4), objects[-1]), wired())
    assert racks([found.binds["g-1"]]) == {"a"}


def test_pods_above_the_minimum_stand_within_the_bound() -> None:
    sim = Simulation(world(queue(), nodes_at(*TREE), close(group("g", 2), 2), members("g", 4)), wired())
    sim.settle()
    assert len(sim.running()) == 2
    sim = Simulation(world(queue(), nodes_at(*TREE), close(group("g", 3), 4), members("g", 5)), wired())
    sim.settle()
    assert len(sim.running()) == 4


def test_preferred_ones_above_the_minimum_stand_anywhere_in_the_end() -> None:
    sim = Simulation(world(queue(), nodes_at(*TREE), close(group("g", 2), 2, "Preferred"), members("g", 7)), wired())
    sim.settle()
    assert len(sim.running()) == 7


def test_required_without_a_number_is_bound_by_what_the_emptied_cluster_allows() -> None:
    busy = [pod(f"x-{at}", on=name) for at, name in enumerate(("a1", "b1", "c1"))]
    objects = (queue(), nodes_at(*TREE), close(group("g", 2), mode="Required"), members("g", 2))
    assert run(world(*objects, busy), wired()).binds == {}
    assert _reason(run(world(*objects, busy), wired())) == TopologyUnsatisfied(2, 1, 2, "", "z1/b1/r1", "rack")
    assert len(racks(run(world(*objects), wired()).binds.values())) == 1


def test_the_annotation_says_the_same_for_plain_pods() -> None:
    made = group("g", 3)
    made.metadata.annotations = {"kbatch.dev/max-hops": "2"}
    found = run(world(queue(), nodes_at(*TREE), made, members("g", 3)), wired())
    assert _reason(found) == TopologyUnsatisfied(3, 2, 2, "", "z1/b1/r1", "rack", emptied=True)


def _low(*places: str) -> list[Any]:
    """A pod of low priority that may go, on each of these nodes."""
    return [pod(f"low-{at}", on=name, priority=1) for at, name in enumerate(places)]


def _high(*, count: int = 2) -> list[Any]:
    return [pod(f"g-{at}", of="g", priority=100) for at in range(count)]


def test_victims_are_sought_in_the_domain_where_the_fewest_have_to_go() -> None:
    objects = (queue(), nodes_at(*TREE), _low("a1", "a2", "b1", "c1", "c2", "d1"), close(group("g", 2), 2), _high())
    found = run(world(*objects), wired())
    assert found.evicted == ["low-2"]
    assert set(found.nominated.values()) == {"b1", "b2"}


def test_nobody_is_evicted_where_the_domain_cannot_be_had() -> None:
    objects = (queue(), nodes_at(*TREE), _low("a1", "b1", "c1", "d1"), close(group("g", 3), 2), _high(count=3))
    found = run(world(*objects), wired())
    assert found.evicted == []
    assert isinstance(_reason(found), TopologyUnsatisfied)


def test_preferred_never_evicts_for_closeness() -> None:
    busy = _low("a1", "b1", "c1")
    found = run(world(queue(), nodes_at(*TREE), busy, close(group("g", 2), 2, "Preferred"), _high()), wired())
    assert found.evicted == []
    assert len(found.binds) == 2
    full = _low("a1", "a2", "b1", "c1", "c2", "d1")
    found = run(world(queue(), nodes_at(*TREE), full, close(group("g", 2), 2, "Preferred"), _high()), wired())
    assert len(found.evicted) == 1


def test_reclaim_keeps_to_the_domain() -> None:
    mine = [pod(f"x-{at}", on=name, of="x") for at, name in enumerate(("a1", "a2", "b1", "c1", "c2", "d1"))]
    taker = close(group("g", 2, queue="other"), 2)
    objects = (queue(), queue("other"), nodes_at(*TREE), group("x", 1), mine, taker, members("g", 2))
    found = run(world(*objects), wired())
    assert found.evicted == ["x-2"]
    assert set(found.nominated.values()) == {"b1", "b2"}


def test_a_pod_above_the_minimum_evicts_within_the_bound() -> None:
    standing = [pod("g-0", of="g", on="a1", priority=100)]
    objects = (queue(), nodes_at(*TREE), standing, _low("a2", "b1"), close(group("g", 1), 2))
    found = run(world(*objects, pod("g-1", of="g", priority=100)), wired())
    assert found.evicted == ["low-0"]


def test_what_is_cleared_in_a_domain_is_taken_there() -> None:
    objects = (queue(), nodes_at(*TREE), _low("a1", "a2", "b1", "c1", "c2", "d1"), close(group("g", 2), 2), _high())
    sim = Simulation(world(*objects), wired())
    sim.run(5)
    assert sim.running("g-") == ["g-0", "g-1"]
    tasks = sim.model.tasks
    assert {tasks[f"ns/g-{at}"].node for at in range(2)} == {"b1", "b2"}
    assert len(sim.evictions) == 1


def test_room_gathers_for_the_aged_in_one_domain() -> None:
    busy = [pod(f"x-{at}", on=name) for at, name in enumerate(("a1", "b1", "b2", "c1"))]
    coming = pod("new", at=690)
    objects = (queue(), nodes_at(*TREE), busy, close(group("g", 2), 2), members("g", 2), coming)
    found = run(world(*objects), wired(ALLOCATE), now=700)
    assert found.outcome is not None
    gathered = found.outcome.state.gathered
    assert gathered is not None
    assert {node for _, node in gathered.places} == {"a1", "a2"}
    assert found.binds["new"] in {"c2", "d1"}  # not a2, which is free


def test_a_required_minimum_that_lost_members_keeps_their_surroundings() -> None:
    standing = [pod(f"g-{at}", of="g", on=name) for at, name in enumerate(("a1", "a2"))]
    objects = (queue(), nodes_at(*TREE), standing, close(group("g", 3), 4), pod("g-2", of="g"))
    found = run(world(*objects), wired())
    assert found.binds["g-2"] in {"b1", "b2"}


def test_pods_above_the_minimum_join_those_of_their_role() -> None:
    made = close(group("g", 1, roles={"m": 1, "w": 0}), w=(None, "Preferred"))
    sim = Simulation(world(queue(), nodes_at(*TREE[:-1], a1="2"), made, _roles(3, 1)), wired())
    sim.settle()
    nodes = [sim.model.tasks[f"ns/w-{at}"].node for at in range(3)]
    assert all(nodes)
    assert nodes[0][0] == nodes[1][0] != nodes[2][0]


def test_members_that_run_too_far_apart_are_joined_by_none() -> None:
    standing = [pod(f"g-{at}", of="g", on=name) for at, name in enumerate(("a1", "c1"))]
    objects = (queue(), nodes_at(*TREE, a2="2"), standing, close(group("g", 3), 2), pod("g-2", of="g"))
    found = run(world(*objects), wired())
    assert "g-2" not in found.binds
    assert _reason(found) == TopologyUnsatisfied(3, 2, 2, "", "", "rack")


def test_what_did_not_fit_fits_when_the_emptied_cluster_allows_less() -> None:
    standing = pod("old", on="a1")
    nodes = nodes_at("z/b/r1/a1", "z/b/r1/a2", "z/b/r2/b1")
    model = world(queue(), nodes, standing, close(group("g", 2), mode="Required"), members("g", 2))
    before = run(model, wired(ALLOCATE))
    assert isinstance(_reason(before), TopologyUnsatisfied)  # rack r1 would hold it
    model.apply(Upsert(pod("foreign", on="a1", scheduler="other")))
    assert before.outcome is not None
    after = run(model, wired(ALLOCATE), memo=before.outcome.memo)
    assert set(after.binds.values()) == {"a2", "b1"}


def test_a_role_of_an_exclusive_group_finds_its_domain_among_many_that_are_shared() -> None:
    many = 300  # more than are tried
    nodes = [*(node(f"b{at}", "2") for at in range(many)), node("y1", "1"), node("y2", "1")]
    made = close(group("g", 2, roles={"a": 1, "b": 1}), a=(0, "Required"), b=(0, "Required"))
    made.spec = msgspec.structs.replace(made.spec, exclusive=True)
    pods = [pod(f"g-{role}", of="g", role=role) for role in ("a", "b")]
    others = [pod(f"x{at}", on=f"b{at}") for at in range(many)]
    found = run(world(queue(), nodes, others, made, pods), wired(ALLOCATE))
    assert found.binds == {"g-a": "y1", "g-b": "y2"}


def test_preferred_ones_above_the_minimum_stand_anywhere_however_many_nodes_refuse_them() -> None:
    many = 70
    apart = PodAffinityTerm(topology_key="host", label_selector=LabelSelector(match_labels={"app": "db"}))
    nodes = [node(f"b{at}", labels={"host": f"b{at}", "rack": "r1"}) for at in range(many)]
    nodes.append(node("y", labels={"host": "y", "rack": "r2"}))
    others = [pod(f"x{at}", on=f"b{at}", labels={"app": "db"}) for at in range(many)]
    made = close(group("g", 1, roles={"a": 1, "w": 0}), a=(None, "Preferred"), w=(None, "Preferred"))
    shy = pod("g-w", of="g", role="w", affinity=Affinity(pod_anti_affinity=PodAffinity(required=(apart,))))
    found = run(world(queue(), nodes, others, made, pod("g-a", of="g", role="a"), shy), wired(ALLOCATE))
    assert found.binds["g-w"] == "y"


def test_room_goes_on_gathering_in_a_domain_where_others_still_stand() -> None:
    nodes = nodes_at("z/b/r1/a1", "z/b/r2/b1", cpu="4")
    standing = [pod("x", on="a1"), *(pod(f"y-{at}", on="b1") for at in range(2))]
    made = close(group("g"), 0)
    made.spec = msgspec.structs.replace(made.spec, exclusive=True)
    kept = GatheredRoom("ns/g", (("ns/g-0", "b1"),))
    model = world(queue(), nodes, standing, made, members("g", 1, "4"))
    found = run(model, wired(ALLOCATE), now=700, state=CycleState(gathered=kept))
    assert found.outcome is not None
    assert found.outcome.state.gathered == kept


def test_victims_for_a_role_without_topology_are_sought_outside_the_domain_of_another() -> None:
    classes = [priority_class("low", 0), priority_class("high", 10)]
    nodes = nodes_at("z/b/r1/a1", "z/b/r1/a2", "z/b/r2/b1", "z/b/r2/b2")
    standing = [
        group("x", priority_class_name="low"),
        *(pod(f"x-{on}", of="x", on=on) for on in ("a1", "a2", "b1", "b2")),
    ]
    made = close(group("g", 3, at=5, roles={"a": 2, "b": 1}, priority_class_name="high"), a=(2, "Required"))
    pods = [*(pod(f"g-a{at}", of="g", role="a", at=5) for at in range(2)), pod("g-b", of="g", role="b", at=5)]
    model = world(queue(), classes, nodes, standing, made, pods)
    found = run(model, wired(EVERYTHING.replace("enqueue, ", "")))
    assert len(found.evicted) == 3
    assert len(racks(str(found.nominated[f"g-a{at}"]) for at in range(2))) == 1


def test_victims_are_sought_although_pods_of_another_role_that_nobody_needs_fit_nowhere() -> None:
    classes = [priority_class("low", 0), priority_class("high", 10)]
    nodes = nodes_at("z/b/r1/a1", "z/b/r1/a2", "z/b/r2/b1", "z/b/r2/b2")
    standing = [
        group("x", priority_class_name="low"),
        *(pod(f"x-{on}", of="x", on=on) for on in ("a1", "a2", "b1", "b2")),
    ]
    made = group("g", 2, at=5, roles={"a": 2, "b": 0}, priority_class_name="high")
    made = close(made, a=(2, "Required"), b=(2, "Required"))
    pods = [pod(f"g-a{at}", of="g", role="a", at=5) for at in range(2)]
    pods.append(pod("g-b", of="g", role="b", at=5, node_selector={"no": "where"}))
    model = world(queue(), classes, nodes, standing, made, pods)
    assert len(run(model, wired(EVERYTHING.replace("enqueue, ", ""))).evicted) == 2


def test_a_role_that_the_minimum_needs_nothing_of_keeps_no_group_from_its_domain() -> None:
    """The pods of role b have room in the second rack alone, and those of role a in the first."""
    made = close(group("g", 2, roles={"a": 2, "b": 0}), b=(0, ""))
    made.spec = msgspec.structs.replace(made.spec, topology=GroupTopology(max_hops=2))
    other = [pod(f"g-b{at}", "500m", of="g", role="b", node_selector={"rack": "r2"}) for at in range(2)]
    pods = [*members("g", 2, role="a"), *other]
    found = run(world(queue(), nodes_at("z1/b1/r1/a1", "z1/b1/r1/a2", "z1/b1/r2/b1"), made, pods), wired(ALLOCATE))
    assert sorted(found.binds) == ["g-0", "g-1"]
    assert racks(found.binds.values()) == {"a"}


def test_roles_that_are_spread_as_one_stand_each_in_its_own_domain() -> None:
    """Those of the one role let those of the other follow in their zone: by themselves they would be too uneven."""
    alike = LabelSelector(match_labels={"app": "g"})
    spread = TopologySpreadConstraint(
        max_skew=1, topology_key="zone", when_unsatisfiable="DoNotSchedule", label_selector=alike
    )
    nodes = [node("n0", "1", labels={"zone": "z1"}), node("n1", "4", "1Gi", labels={"zone": "z1"})]
    nodes.append(node("n2", "1", labels={"zone": "z2"}))
    large: dict[str, Any] = {"labels": {"app": "g"}, "topology_spread_constraints": (spread,)}
    pods = [pod(f"g-a{at}", "2", of="g", role="a", **large) for at in range(2)]
    pods += [pod(f"g-b{at}", "100m", of="g", role="b", memory="2Gi", **large) for at in range(2)]
    made = close(group("g", 4, roles={"a": 2, "b": 2}), a=(0, ""), b=(0, ""))
    found = run(world(queue(), nodes, made, pods), wired(ALLOCATE, levels="zone"))
    assert found.binds == {"g-a0": "n1", "g-a1": "n1", "g-b0": "n2", "g-b1": "n2"}


def _alone(*others: object, **spec: Any) -> Any:
    """A group of three, that may stand two hops apart, on the tree in which no rack has more than two nodes."""
    made = close(group("g", 3, **spec), 2)
    return run(world(queue(), nodes_at(*TREE), made, members("g", 3), *others), wired())


def test_a_group_for_which_no_rack_is_large_enough_does_not_come_in_queue() -> None:
    found = _alone()
    assert not found.verdicts["ns/g"].enqueued
    assert found.reason("g") == "TopologyUnsatisfied"
    message = found.verdicts["ns/g"].reason.message
    assert "2 of 3 pods fit within 2 hops of one another, in rack z1/b1/r1, even without kbatch's other pods" in message
    assert "free nodes" not in message


def test_what_could_never_stand_together_keeps_no_room_from_others() -> None:
    """The seven nodes hold both groups; the first of which holds on to nothing."""
    later = [group("h", 6, at=1, min_resources={"cpu": "6"})]
    found = _alone(later, min_resources={"cpu": "3"})
    assert not found.verdicts["ns/g"].enqueued
    assert found.verdicts["ns/h"].enqueued


def test_a_level_that_no_node_carries_is_named() -> None:
    policy = wired(levels="zone, block, rack4")
    found = run(world(queue(), nodes_at(*TREE), close(group("g", 2), 2), members("g", 2)), policy)
    assert not found.verdicts["ns/g"].enqueued
    reason = found.verdicts["ns/g"].reason
    assert reason is not None
    assert reason.code == "TopologyUnsatisfied"
    assert "no node carries the label rack4" in reason.message


def test_an_outer_level_that_no_node_carries_is_named_too() -> None:
    policy = wired(levels="zone, row, rack")
    found = run(world(queue(), nodes_at(*TREE), close(group("g", 2), 2), members("g", 2)), policy)
    reason = found.verdicts["ns/g"].reason
    assert reason is not None
    assert "no node carries the label row" in reason.message


def test_whom_the_backlog_holds_stays_out_until_a_rack_is_large_enough() -> None:
    """The group is asked again each cycle, as a row that is compared with the sums; a third node opens its rack."""
    sim = Simulation(world(queue(), nodes_at(*TREE), close(group("g", 3), 2), members("g", 3)), wired())
    for now in (0, 1, 2):
        sim.now = now
        assert not sim.cycle().verdicts["ns/g"].enqueued
    assert not sim.model.jobs["ns/g"].is_true(conditions.ENQUEUED)
    sim.model.apply(Upsert(nodes_at("z1/b1/r1/a3")[0]))
    sim.now = 3
    assert racks(sim.cycle().binds.values()) == {"a"}
