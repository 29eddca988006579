"""Which nodes count for which queue's share."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch.api.objects import (
    Affinity,
    Node,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodGroup,
    PodSpec,
    SubGroup,
    Taint,
    Toleration,
)
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Upsert
from kbatch.model.node_classes import NodeClasses, usable
from kbatch.model.selections import SelectionTable
from tests.unit.engine.worlds import group, members, node, pod, queue, world

SPECIAL = Taint(key="special", effect="NoSchedule")
ANYWAY = (Toleration(key="special", operator="Exists"),)
HOSTNAME = "kubernetes.io/hostname"


def required(*terms: NodeSelectorTerm) -> Affinity:
    return Affinity(node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=terms)))


def is_in(key: str, *values: str) -> NodeSelectorRequirement:
    return NodeSelectorRequirement(key=key, operator="In", values=values)


def cores(model: ClusterModel, *names: str) -> list[int]:
    """What queues deserve of cpu, in cores."""
    model.validate()
    deserved = model.deserved()
    return [deserved[name].get("cpu", 0) // 1000 for name in names]


def two_pools() -> ClusterModel:
    """4 CPU for everybody, 4 behind a taint."""
    return world(queue("a"), queue("b"), node("n1"), node("n2", taints=(SPECIAL,)))


def apply(model: ClusterModel, *objects: Any) -> None:
    for obj in objects:
        model.apply(Upsert(obj))


def test_room_behind_a_taint_is_for_those_who_tolerate_it() -> None:
    model = two_pools()
    apply(model, *(pod(f"p{at}", queue="a") for at in range(8)), *(pod(f"q{at}", queue="b") for at in range(8)))
    assert cores(model, "a", "b") == [2, 2]
    apply(model, *(pod(f"r{at}", queue="b", tolerations=ANYWAY) for at in range(8)))
    assert cores(model, "a", "b") == [4, 4]
    assert model.capacity["cpu"] == 8000, "what nodes offer stays what it is"


def test_what_a_selector_chooses_is_for_those_who_choose_it() -> None:
    model = world(queue("a"), queue("b", 3), node("n1", labels={"pool": "x"}), node("n2", labels={"pool": "y"}))
    apply(model, *(pod(f"p{at}", queue="a") for at in range(8)))
    apply(model, *(pod(f"q{at}", queue="b", node_selector={"pool": "x"}) for at in range(8)))
    assert cores(model, "a", "b") == [4, 4]
    apply(model, pod("r", "3", queue="b", affinity=required(NodeSelectorTerm(match_expressions=(is_in("pool", "y"),)))))
    assert cores(model, "a", "b") == [2, 6]


def test_what_names_single_nodes_does_not_divide_the_cluster() -> None:
    model = world(queue("a"), queue("b"), *(node(name, labels={HOSTNAME: name}) for name in ("n1", "n2")))
    by_name = NodeSelectorTerm(match_fields=(is_in("metadata.name", "n1"),))
    for at in range(4):
        apply(model, pod(f"p{at}", queue="a", node_selector={HOSTNAME: "n1"}))
        apply(model, pod(f"q{at}", queue="a", affinity=required(by_name)))
        apply(model, pod(f"r{at}", "2", queue="b"))
    assert cores(model, "a", "b") == [4, 4]
    assert len(model.queues["a"].parts) == 1, "all of them ask for the same"


def test_nodes_that_take_no_pods_are_nobodys() -> None:
    model = world(queue("a"), node("n1"), node("n2", unschedulable=True), pod("p", "9", queue="a"))
    assert cores(model, "a") == [4]


def test_a_pod_counts_where_it_stands_though_it_could_not_come_there_now() -> None:
    model = world(queue("a"), queue("b"), node("n1"), node("n2"))
    apply(
        model, *(pod(f"p{at}", queue="a", on="n2") for at in range(3)), *(pod(f"q{at}", queue="a") for at in range(4))
    )
    apply(model, *(pod(f"r{at}", queue="b") for at in range(4)))
    assert cores(model, "a", "b") == [4, 4]
    apply(model, node("n2", taints=(SPECIAL,)))
    # 3 on the tainted node are its own; of the 4 that both may use, 4 - x for b, until both have the same: 7 / 2.
    assert model.deserved() == {"a": {"cpu": 3500}, "b": {"cpu": 3500}}
    model.validate()
    apply(model, pod("p3", queue="a", on="n2"))
    assert cores(model, "a", "b") == [4, 4]
    model.evicting("ns/p3", "u-p3")
    assert model.deserved() == {"a": {"cpu": 3500}, "b": {"cpu": 3500}}, "it holds nothing any more"
    apply(model, node("n2"))
    assert cores(model, "a", "b") == [4, 4]
    model.apply(Delete(Node, "", "n2"))
    assert cores(model, "a", "b") == [2, 2]


def test_a_closed_queue_asks_for_what_it_holds() -> None:
    model = world(queue("a", state="Closed"), queue("b"), node("n1"), node("n2", taints=(SPECIAL,)))
    apply(model, pod("p", "2", queue="a", on="n1"), pod("q", "4", queue="a"), pod("r", "8", queue="b"))
    apply(model, pod("s", "4", queue="a", tolerations=ANYWAY))
    assert cores(model, "a", "b") == [2, 2]


def test_pods_of_a_group_that_is_gone_ask_for_nothing() -> None:
    """Whatever nodes they would need: their queue deserves what they hold."""
    model = two_pools()
    apply(model, group("x", queue="a"), group("y", queue="b"))
    apply(model, pod("x-0", of="x", on="n1"), pod("x-1", "3", of="x"), pod("x-2", "4", of="x", tolerations=ANYWAY))
    apply(model, *members("y", 8, tolerations=ANYWAY))
    assert cores(model, "a", "b") == [4, 4]
    model.apply(Delete(PodGroup, "ns", "x"))
    assert cores(model, "a", "b") == [1, 7]


def test_a_group_asks_ahead_of_its_pods_by_those_that_it_has() -> None:
    model = two_pools()
    apply(model, group("g", 8, queue="a", min_resources={"cpu": "8"}), pod("q", "8", queue="b"))
    apply(model, *members("g", 1, tolerations=ANYWAY))
    assert cores(model, "a", "b") == [4, 4]
    apply(model, *members("g", 1))
    assert cores(model, "a", "b") == [2, 2]


def test_a_group_without_pods_asks_for_nodes_that_some_work_may_use() -> None:
    """Not for those that nobody tolerates, however much room they have."""
    model = two_pools()
    apply(model, group("g", 8, queue="a", min_resources={"cpu": "8"}), pod("q", "8", queue="b"))
    assert cores(model, "a", "b") == [2, 2]
    apply(model, pod("r", "1", queue="b", tolerations=ANYWAY))
    assert cores(model, "a", "b") == [4, 4]


def test_a_group_without_pods_asks_for_all_nodes_where_no_others_have_what_it_needs() -> None:
    model = world(queue("a"), node("n1"), node("n2", taints=(SPECIAL,), extra={"gpu": "2"}))
    apply(model, group("g", 2, queue="a", min_resources={"cpu": "8", "gpu": "2"}))
    assert model.deserved() == {"a": {"cpu": 4000, "gpu": 2}}


def test_templates_tell_what_a_group_will_ask_for() -> None:
    def roles(**spec: Any) -> Any:
        made = group("g", 8, queue="a", min_resources={"cpu": "8"})
        made.spec.sub_groups = (SubGroup(name="w", min_member=8, template={"spec": {"containers": [], **spec}}),)
        return made

    model = two_pools()
    apply(model, pod("q", "8", queue="b"), pod("r", "1", queue="b", tolerations=ANYWAY))
    apply(model, roles(tolerations=[{"key": "special", "operator": "Exists"}]))
    assert cores(model, "a", "b") == [4, 4]
    apply(model, roles())
    # 1 behind the taint and 1.5 of the others' 4 are as much as 2.5 of these.
    assert model.deserved() == {"a": {"cpu": 2500}, "b": {"cpu": 2500}}
    apply(model, roles(nodeSelector={"pool": "{{ role }}"}))
    assert cores(model, "a", "b") == [4, 4], "that depends on the pod: as if nothing were known"
    apply(model, roles(tolerations="nonsense"))
    assert cores(model, "a", "b") == [4, 4]
    made = roles()
    made.spec.sub_groups = (*made.spec.sub_groups, SubGroup(name="x", min_member=1))
    apply(model, made)
    assert cores(model, "a", "b") == [4, 4], "nothing is known of one of its roles"


keys = st.sampled_from(("zone", "pool"))
values = st.sampled_from(("x", "y", "z"))
taints = st.builds(
    Taint, key=keys, value=values, effect=st.sampled_from(("NoSchedule", "NoExecute", "PreferNoSchedule"))
)
nodes = st.tuples(st.dictionaries(keys, values), st.lists(taints, max_size=2))
requirements = st.builds(
    NodeSelectorRequirement,
    key=st.sampled_from(("zone", "pool", HOSTNAME)),
    operator=st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist")),
    values=st.lists(values, max_size=2).map(tuple),
)
terms = st.builds(
    NodeSelectorTerm,
    match_expressions=st.none() | st.lists(requirements, max_size=2).map(tuple),
    match_fields=st.none() | st.just((is_in("metadata.name", "n1"),)),
)
specs = st.builds(
    PodSpec,
    node_selector=st.none() | st.dictionaries(st.sampled_from(("zone", HOSTNAME)), values),
    affinity=st.none() | st.lists(terms, min_size=1, max_size=2).map(lambda each: required(*each)),
    tolerations=st.none()
    | st.lists(
        st.builds(
            Toleration, key=keys, operator=st.sampled_from(("Exists", "Equal")), value=values,
            effect=st.sampled_from(("", "NoSchedule", "PreferNoSchedule")),
        ),
        max_size=2,
    ).map(tuple),
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(nodes, max_size=6), st.lists(specs, min_size=1, max_size=5))
def test_nodes_of_one_class_are_alike_and_columns_say_what_single_nodes_say(
    cluster: list[tuple[dict[str, str], list[Taint]]], pods: list[PodSpec]
) -> None:
    names = [f"n{at}" for at in range(len(cluster))]
    model = world(
        *(node(name, labels=labels, taints=tuple(each)) for name, (labels, each) in zip(names, cluster, strict=True))
    )
    table = model.table
    known = SelectionTable()
    selections = list(dict.fromkeys(known.read(spec) for spec in pods))
    classes = NodeClasses(table, selections)
    for selection, reach in zip(selections, classes.reach, strict=True):
        said = [selection.admits(table.node(row)) for row in range(len(table))]
        assert usable(table, selection).tolist() == said
        assert [bool(reach >> int(at) & 1) for at in classes.of_row] == said
    alike = {tuple(bool(usable(table, each)[row]) for each in selections) for row in range(len(table))}
    assert classes.count == len(alike)
    total = sum(each.get("cpu", 0) for each in classes.capacities(table))
    assert total == int(np.sum(table.capacity.get("cpu", np.zeros(0, np.int64))))
