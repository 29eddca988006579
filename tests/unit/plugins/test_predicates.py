"""predicates, demand by demand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from kbatch.api.objects import (
    AnyObject,
    CsiNode,
    Namespace,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    StorageClass,
)
from kbatch.engine.plugin import Scope
from kbatch.engine.plugins.predicates import Predicates
from kbatch.engine.session.session import Session
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Upsert
from tests.unit.engine.worlds import group, members, queue, run, world
from tests.unit.plugins.views import class_of, conf, node, plugin_of, pod, refusals, session_of

CONF = conf("predicates")
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def refused(*objects: AnyObject, of: str = "ns/p", text: str = CONF, later: bool = False) -> dict[str, str]:
    session = session_of(world(*objects), text)
    return refusals(session, plugin_of(session, Predicates), of, later=later)


def opened(*objects: AnyObject) -> tuple[Session, Predicates]:
    session = session_of(world(*objects), CONF)
    return session, plugin_of(session, Predicates)


# --- the node alone ---------------------------------------------------------------------------------------------------


def test_node_selector_and_required_affinity_must_both_hold() -> None:
    far = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["7"]}]}]}
    demanding = pod("p", nodeSelector={"zone": "a"}, affinity={"nodeAffinity": {REQUIRED: far}})
    machines = (
        node("fits", {"zone": "a", "cores": "8"}),
        node("small", {"zone": "a", "cores": "7"}),
        node("far", {"zone": "b", "cores": "8"}),
        node("plain"),
    )
    assert refused(demanding, *machines) == dict.fromkeys(("small", "far", "plain"), "node selector")


@pytest.mark.parametrize(
    ("spec", "feature"),
    [
        ({"hostNetwork": True, "hostUsers": False}, "UserNamespacesHostNetworkSupport"),
        (
            {"initContainers": [{"restartPolicyRules": [{"action": "RestartAllContainers"}]}]},
            "RestartAllContainersOnContainerExits",
        ),
    ],
)
def test_a_kubelet_must_have_declared_what_the_pod_needs_of_it(spec: dict[str, Any], feature: str) -> None:
    """It would refuse the pod, again and again."""
    old, older, new = node("old"), node("other"), node("new")
    older.status.declared_features = ("Another",)
    new.status.declared_features = ("Another", feature)
    machines = (old, older, new)
    assert refused(pod("p", **spec), *machines) == dict.fromkeys(("old", "other"), "feature missing")
    others: list[dict[str, Any]] = [
        {},
        {"hostNetwork": True},
        {"hostUsers": False},
        {"hostNetwork": True, "hostUsers": True},
        {"initContainers": [{"restartPolicyRules": [{"action": "Restart"}]}]},
    ]
    for other in others:
        assert refused(pod("p", **other), *machines) == {}


def test_a_kubelet_that_learns_a_feature_takes_the_pod() -> None:
    model = world(node("n"), pod("p", hostNetwork=True, hostUsers=False), pod("q", hostNetwork=True))
    assert model.tasks["ns/p"].cls is not model.tasks["ns/q"].cls
    session = session_of(model, CONF)
    assert refusals(session, plugin_of(session, Predicates), "ns/p") == {"n": "feature missing"}
    upgraded = node("n")
    upgraded.status.declared_features = ("UserNamespacesHostNetworkSupport",)
    before = model.room_generation
    model.apply(Upsert(upgraded))
    assert model.room_generation > before
    session = session_of(model, CONF)
    assert refusals(session, plugin_of(session, Predicates), "ns/p") == {}


def test_match_fields_choose_by_name() -> None:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2", "gone"]}]}
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}}
    assert refused(pod("p", affinity=affinity), node("n1"), node("n2")) == {"n1": "node selector"}


def test_no_term_or_an_empty_one_chooses_no_node() -> None:
    choices: tuple[list[dict[str, Any]], ...] = ([], [{}])
    for terms in choices:
        affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
        assert refused(pod("p", affinity=affinity), node("n1")) == {"n1": "node selector"}


def test_taints_are_named_and_soft_ones_keep_nobody_away() -> None:
    machines = (
        node("a", taints=[{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]),
        node("b", taints=[{"key": "broken", "effect": "NoExecute"}]),
        node("c", taints=[{"key": "dusty", "effect": "PreferNoSchedule"}]),
    )
    assert refused(pod("p"), *machines) == {"a": "taint dedicated", "b": "taint broken"}
    tolerant = pod("p", tolerations=[{"key": "dedicated", "operator": "Equal", "value": "x", "effect": "NoSchedule"}])
    assert refused(tolerant, *machines) == {"b": "taint broken"}
    assert refused(pod("p", tolerations=[{"operator": "Exists"}]), *machines) == {}


def test_cordoned_and_not_ready() -> None:
    broken = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
    machines = (node("cordoned", unschedulable=True), node("broken", status=broken), node("fine"))
    assert refused(pod("p"), *machines) == {"cordoned": "unschedulable", "broken": "not ready"}
    patient = pod("p", tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}])
    assert refused(patient, *machines) == {"broken": "not ready"}


@pytest.mark.parametrize(("status", "taint"), [("False", "not-ready"), ("Unknown", "unreachable")])
def test_a_node_that_is_not_ready_takes_who_tolerates_its_taint(status: str, taint: str) -> None:
    machine = node("broken", status={"conditions": [{"type": "Ready", "status": status}]})
    for effect, answer in (("NoSchedule", {}), ("NoExecute", {"broken": "not ready"})):
        tolerations = [{"key": f"node.kubernetes.io/{taint}", "operator": "Exists", "effect": effect}]
        assert refused(pod("p", tolerations=tolerations), machine) == answer


@pytest.mark.parametrize(
    ("argument", "condition", "short"),
    [
        ("predicate.MemoryPressureEnable", "MemoryPressure", "memory pressure"),
        ("predicate.DiskPressureEnable", "DiskPressure", "disk pressure"),
        ("predicate.PIDPressureEnable", "PIDPressure", "pid pressure"),
    ],
)
def test_pressure_counts_where_it_is_asked_for(argument: str, condition: str, short: str) -> None:
    machines = (node("n1", status={"conditions": [{"type": condition, "status": "True"}]}), node("n2"))
    frugal = pod("p", requests={})
    assert refused(frugal, *machines) == {}
    assert refused(frugal, *machines, text=conf("predicates", **{argument: "true"})) == {"n1": short}
    spared = {} if condition == "MemoryPressure" else {"n1": short}
    assert refused(pod("p"), *machines, text=conf("predicates", **{argument: "true"})) == spared


# --- volumes ----------------------------------------------------------------------------------------------------------


def claim(
    name: str,
    volume: str = "",
    *,
    storage_class: str = "",
    selected: str = "",
    mode: str = "ReadWriteOnce",
    deleted: str | None = None,
    phase: str = "",
) -> PersistentVolumeClaim:
    meta: dict[str, Any] = {"name": name, "namespace": "ns", "deletionTimestamp": deleted}
    if selected:
        meta["annotations"] = {"volume.kubernetes.io/selected-node": selected}
    spec = {"volumeName": volume, "storageClassName": storage_class, "accessModes": [mode]}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": {"phase": phase}}, PersistentVolumeClaim)


def volume(name: str, zone: str = "", driver: str = "") -> PersistentVolume:
    spec: dict[str, Any] = {}
    if zone:
        expression = {"key": "zone", "operator": "In", "values": [zone]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    if driver:
        spec["csi"] = {"driver": driver}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, PersistentVolume)


def test_a_volume_is_not_used_from_another_zone() -> None:
    zone = "topology.kubernetes.io/zone"
    held = volume("v")
    held.metadata.labels = {"failure-domain.beta.kubernetes.io/zone": "a__b"}
    machines = (node("a", {zone: "a"}), node("b", {zone: "b"}), node("c", {zone: "c"}), node("silent"))
    assert refused(using("p", "c"), claim("c", "v"), held, *machines) == {"c": "volume"}


def using(name: str, *claims: str, on: str = "", **more: Any) -> Any:
    volumes = [{"name": f"v{at}", "persistentVolumeClaim": {"claimName": each}} for at, each in enumerate(claims)]
    return pod(name, on, volumes=volumes, **more)


ZONES = (node("a", {"zone": "a"}), node("b", {"zone": "b"}))


def storage_class(
    name: str, mode: str = "WaitForFirstConsumer", *, provisioner: str = "d", zones: Sequence[str] = ()
) -> StorageClass:
    raw: dict[str, Any] = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode}
    if zones:
        raw["allowedTopologies"] = [{"matchLabelExpressions": [{"key": "zone", "values": list(zones)}]}]
    return msgspec.convert(raw, StorageClass)


@pytest.mark.parametrize(
    ("objects", "want"),
    [
        ([claim("c", "v"), volume("v", "a")], {"b": "volume"}),
        ([claim("c", "v"), volume("v")], {}),
        ([claim("c", "v")], {"a": "volume", "b": "volume"}),
        ([claim("other")], {"a": "claim c not found", "b": "claim c not found"}),
        ([], {}),
        ([claim("c", storage_class="s"), storage_class("s", "WaitForFirstConsumer")], {}),
        ([claim("c", storage_class="s", selected="b"), storage_class("s", "WaitForFirstConsumer")], {"a": "volume"}),
        ([claim("c", storage_class="s"), storage_class("s", "Immediate")], {"a": "volume", "b": "volume"}),
        ([claim("c", storage_class="s"), storage_class("s", zones=["b", "c"])], {"a": "volume"}),
        (
            [claim("c", storage_class="s"), storage_class("s", provisioner="kubernetes.io/no-provisioner")],
            {"a": "volume", "b": "volume"},
        ),
        ([claim("c", "v", deleted="2026-01-01T00:00:00Z"), volume("v")], {"a": "volume", "b": "volume"}),
        ([claim("c", "v", phase="Lost"), volume("v")], {"a": "volume", "b": "volume"}),
    ],
    ids=[
        "bound, in one zone",
        "bound, anywhere",
        "bound to a volume that is gone",
        "the claim is not there",
        "no claims are known at all",
        "waits for its first consumer",
        "being made for a node",
        "not bound yet",
        "can be made in some zones only",
        "made by hand, and not yet",
        "being deleted",
        "its volume is lost",
    ],
)
def test_where_a_volume_can_be_reached(objects: list[AnyObject], want: dict[str, str]) -> None:
    assert refused(using("p", "c"), *ZONES, *objects) == want


def test_an_ephemeral_volume_has_a_claim_of_the_pods_own() -> None:
    lender = pod("p", volumes=[{"name": "scratch", "ephemeral": {}}])
    assert refused(lender, *ZONES, claim("p-scratch", "v"), volume("v", "b")) == {"a": "volume"}


def test_a_cluster_whose_claims_are_known_has_none() -> None:
    model = ClusterModel()
    model.objects[PersistentVolumeClaim] = {}
    for each in (*ZONES, using("p", "c")):
        model.apply(Upsert(each))
    session = session_of(model, conf("predicates"))
    assert refusals(session, plugin_of(session, Predicates), "ns/p") == dict.fromkeys("ab", "claim c not found")


def test_a_volume_not_made_yet_keeps_its_pods_on_one_node() -> None:
    """One node can use it at a time, so wherever the first pod goes the others must follow."""
    session, plugin = opened(
        *ZONES, claim("c", storage_class="s"), storage_class("s"), using("p", "c"), using("q", "c")
    )
    assert refusals(session, plugin, "ns/q") == {}
    undo = plugin.placed(session.model.tasks["ns/p"], 1)
    assert refusals(session, plugin, "ns/q") == {"a": "volume"}
    undo()
    assert refusals(session, plugin, "ns/q") == {}
    standing = (using("p", "c", on="a"), using("q", "c"))
    session, plugin = opened(*ZONES, claim("c", storage_class="s"), storage_class("s"), *standing)
    assert refusals(session, plugin, "ns/q") == {"b": "volume"}, "its bind is under way"


def test_a_volume_for_many_nodes_lets_its_pods_go_anywhere() -> None:
    shared = claim("c", storage_class="s", mode="ReadWriteMany")
    session, plugin = opened(*ZONES, shared, storage_class("s"), using("p", "c"), using("q", "c"))
    plugin.placed(session.model.tasks["ns/p"], 1)
    assert refusals(session, plugin, "ns/q") == {}
    assert plugin.predicate_scope(class_of(session, "ns/q")) is Scope.STATIC


def test_a_claim_for_one_pod_takes_no_second() -> None:
    lonely = (claim("c", "v", mode="ReadWriteOncePod"), volume("v"))
    nowhere = {"a": "volume", "b": "volume"}
    session, plugin = opened(*ZONES, *lonely, using("p", "c"), using("q", "c"))
    assert refusals(session, plugin, "ns/q") == {}
    plugin.placed(session.model.tasks["ns/p"], 0)
    assert refusals(session, plugin, "ns/q") == nowhere
    session, plugin = opened(*ZONES, *lonely, using("p", "c", on="a"), using("q", "c"))
    assert refusals(session, plugin, "ns/q") == nowhere
    plugin.removed(session.model.tasks["ns/p"], 0)
    assert refusals(session, plugin, "ns/q") == nowhere, "while it terminates"
    assert refusals(session, plugin, "ns/q", later=True) == {}


@pytest.mark.parametrize(("mode", "nodes"), [("ReadWriteOnce", [1]), ("ReadWriteMany", [2]), ("ReadWriteOncePod", [])])
def test_a_gang_shares_a_volume_not_made_yet(mode: str, nodes: list[int]) -> None:
    """On how many nodes a gang of two is placed where preferences would spread it."""
    pods = [using(name, "c", labels={"app": "g"}) for name in ("p", "q")]
    for each in pods:
        each.metadata.annotations = {"scheduling.k8s.io/group-name": "g"}
    shared = claim("c", storage_class="s", mode=mode)
    found = run(world(queue(), *ZONES, shared, storage_class("s"), group("g", 2), pods))
    assert [len({bind.node for bind in made.binds}) for made in found.transactions if made.binds] == nodes


def limit(name: str, count: int) -> CsiNode:
    drivers = [{"name": "d", "allocatable": {"count": count}}]
    return msgspec.convert({"metadata": {"name": name}, "spec": {"drivers": drivers}}, CsiNode)


def test_attach_limits_count_each_volume_once() -> None:
    volumes = [volume(f"v{at}", driver="d") for at in range(4)]
    claims = [claim(f"c{at}", f"v{at}") for at in range(4)]
    busy = (using("q", "c0", "c1", on="a"), using("r", "c0", on="a"), using("s", "c0", on="b"))
    world_of = (*ZONES, *volumes, *claims, *busy, limit("a", 2))
    assert refused(using("p", "c2"), *world_of) == {"a": "volume"}
    assert refused(using("p", "c0", "c1"), *world_of) == {}, "attached there already"
    assert refused(using("p", "c1", "c2"), *world_of) == {"a": "volume"}


def test_attach_limits_follow_the_session() -> None:
    volumes = [volume(f"v{at}", driver="d") for at in range(3)]
    claims = [claim(f"c{at}", f"v{at}") for at in range(3)]
    session, plugin = opened(
        node("a"), *volumes, *claims, limit("a", 1), using("p", "c0"), using("q", "c1"), using("r", "c2", on="a")
    )
    assert refusals(session, plugin, "ns/p") == {"a": "volume"}
    undo = plugin.removed(session.model.tasks["ns/r"], 0)
    assert refusals(session, plugin, "ns/p") == {"a": "volume"}, "still attached"
    assert refusals(session, plugin, "ns/p", later=True) == {}
    plugin.placed(session.model.tasks["ns/q"], 0)
    assert refusals(session, plugin, "ns/p", later=True) == {"a": "volume"}
    undo()
    assert plugin.predicate_scope(class_of(session, "ns/p")) is Scope.NODE


def test_elsewhere_only_a_claim_that_both_want_matters() -> None:
    """Ports, and how much a node attaches, are a node's own affair; so are claims that may be used everywhere."""
    claims = [claim("one", mode="ReadWriteOncePod"), claim("free", "v")]
    waiting = [using("p", "one", "free"), using("q", "one"), using("r", "free"), serving("s", 80), serving("t", 80)]
    session, plugin = opened(node("a"), volume("v", driver="d"), limit("a", 1), *claims, *waiting)
    of = {name: class_of(session, f"ns/{name}") for name in "pqrst"}
    near = {pair for pair in ("pq", "pr", "qr", "st", "ps") if plugin.heeds(of[pair[0]], of[pair[1]])}
    far = {pair for pair in ("pq", "pr", "qr", "st", "ps") if plugin.heeds_elsewhere(of[pair[0]], of[pair[1]])}
    assert (near, far) == ({"pq", "pr", "qr", "st", "ps"}, {"pq"})


# --- pods on the node -------------------------------------------------------------------------------------------------


def serving(name: str, port: int, on: str = "", **more: Any) -> Any:
    return pod(name, on, containers=[{"name": "c", "ports": [{"containerPort": 1, "hostPort": port}]}], **more)


def test_host_ports_follow_the_session() -> None:
    session, plugin = opened(
        node("n1"), node("n2"), serving("p", 80), serving("q", 80, on="n1"), serving("r", 80), serving("s", 81, on="n2")
    )
    assert refusals(session, plugin, "ns/p") == {"n1": "host port taken"}
    undo = plugin.placed(session.model.tasks["ns/r"], 1)
    assert refusals(session, plugin, "ns/p") == dict.fromkeys(("n1", "n2"), "host port taken")
    undo()
    plugin.removed(session.model.tasks["ns/q"], 0)
    assert refusals(session, plugin, "ns/p") == {"n1": "host port taken"}
    assert refusals(session, plugin, "ns/p", later=True) == {}


def test_a_terminating_pod_holds_its_ports_only_from_those_that_bind_now() -> None:
    objects = (node("n1"), serving("p", 80), serving("q", 80, on="n1", terminating=True))
    assert refused(*objects) == {"n1": "host port taken"}
    assert refused(*objects, later=True) == {}


def test_a_gang_with_host_ports_gets_a_node_each() -> None:
    machines = [node(f"n{at}") for at in range(3)]
    pods = [msgspec.structs.replace(each, spec=serving("x", 80).spec) for each in members("g", 3)]
    found = run(world(queue(), *machines, group("g", 3), pods))
    assert sorted(found.binds.values()) == ["n0", "n1", "n2"]


# --- pods elsewhere ---------------------------------------------------------------------------------------------------


def near(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"podAffinity": {REQUIRED: list(terms)}}


def apart(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"podAntiAffinity": {REQUIRED: list(terms)}}


def term(key: str = "zone", app: str = "web", **more: Any) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}


WEB = {"app": "web"}


def test_affinity_wants_a_partner_in_the_domain() -> None:
    objects = (*ZONES, node("b2", {"zone": "b"}), node("nowhere"), pod("w", "b", labels=WEB))
    assert refused(pod("p", affinity=near(term())), *objects) == dict.fromkeys(("a", "nowhere"), "pod affinity")


def test_a_partner_must_match_all_terms() -> None:
    both = near(term(), term("host", "db"))
    objects = (*ZONES, pod("w", "a", labels=WEB), pod("d", "a", labels={"app": "db"}))
    assert refused(pod("p", affinity=both), *objects) == dict.fromkeys(("a", "b"), "pod affinity")


def test_the_first_of_its_kind_may_stand_anywhere_with_the_label() -> None:
    objects = (*ZONES, node("nowhere"))
    assert refused(pod("p", labels=WEB, affinity=near(term())), *objects) == {"nowhere": "pod affinity"}
    stranger = pod("p", affinity=near(term()))
    assert refused(stranger, *objects) == dict.fromkeys(("a", "b", "nowhere"), "pod affinity")


def test_a_gang_that_wants_to_be_together_stays_in_one_zone() -> None:
    machines = [node(f"{zone}{at}", {"zone": zone}) for zone in "ab" for at in range(2)]
    spec = pod("x", requests={"cpu": "4"}, affinity=near(term())).spec
    pods = []
    for each in members("g", 4):
        each.metadata.labels = WEB
        pods.append(msgspec.structs.replace(each, spec=spec))
    found = run(world(queue(), *machines, group("g", 4), pods))
    assert len(found.binds) == 4
    assert len({name[0] for name in found.binds.values()}) == 1


def test_the_first_of_a_gang_goes_where_the_others_can_follow() -> None:
    """The emptiest node would be best for one pod, and too small for six."""
    machines = [
        node("large", status={"allocatable": {"cpu": "16", "pods": "99"}}),
        *(node(f"s{at}") for at in range(3)),
    ]
    for machine in machines[1:]:
        machine.status.allocatable = {"cpu": "5", "pods": "99"}
    spec = pod("x", requests={"cpu": "1"}, affinity=near(term("host"))).spec
    pods = []
    for each in members("g", 6):
        each.metadata.labels = WEB
        pods.append(msgspec.structs.replace(each, spec=spec))
    other = pod("busy", "large", requests={"cpu": "10"})
    found = run(world(queue(), *machines, other, group("g", 6), pods))
    assert set(found.binds.values()) == {"large"}


def test_anti_affinity_binds_both_ways() -> None:
    keeps_off = pod("k", "a", affinity=apart(term()))
    assert refused(pod("p", labels=WEB), *ZONES, keeps_off) == {"a": "pod anti-affinity"}
    assert refused(pod("p", labels={"app": "db"}), *ZONES, keeps_off) == {}
    assert refused(pod("p", affinity=apart(term())), *ZONES, pod("w", "b", labels=WEB)) == {"b": "pod anti-affinity"}


def test_anti_affinity_of_a_pod_placed_in_this_cycle_counts() -> None:
    session, plugin = opened(*ZONES, pod("k", affinity=apart(term())), pod("p", labels=WEB))
    assert plugin.predicate_scope(class_of(session, "ns/p")) is Scope.CLUSTER, "one that waits may come to face it"
    undo = plugin.placed(session.model.tasks["ns/k"], 0)
    assert refusals(session, plugin, "ns/p") == {"a": "pod anti-affinity"}
    undo()
    assert refusals(session, plugin, "ns/p") == {}


def test_a_pod_placed_before_anybody_looked_counts() -> None:
    session, plugin = opened(*ZONES, pod("w", labels=WEB), pod("p", affinity=near(term())))
    plugin.placed(session.model.tasks["ns/w"], 1)
    assert refusals(session, plugin, "ns/p") == {"a": "pod affinity"}


def test_evicting_the_pod_in_the_way_opens_the_domain_for_who_waits() -> None:
    session, plugin = opened(*ZONES, pod("p", affinity=apart(term())), pod("w", "a", labels=WEB))
    plugin.removed(session.model.tasks["ns/w"], 0)
    assert refusals(session, plugin, "ns/p") == {"a": "pod anti-affinity"}
    assert refusals(session, plugin, "ns/p", later=True) == {}


def test_namespaces_of_a_term() -> None:
    team = msgspec.convert({"metadata": {"name": "other", "labels": {"team": "x"}}}, Namespace)
    objects = (*ZONES, team, pod("w", "a", labels=WEB, namespace="other"))
    for more, want in (
        ({}, {}),
        ({"namespaces": ["other"]}, {"a": "pod anti-affinity"}),
        ({"namespaceSelector": {}}, {"a": "pod anti-affinity"}),
        ({"namespaceSelector": {"matchLabels": {"team": "x"}}}, {"a": "pod anti-affinity"}),
        ({"namespaceSelector": {"matchLabels": {"team": "y"}}}, {}),
    ):
        assert refused(pod("p", affinity=apart(term(**more))), *objects) == want, more


def spread(**more: Any) -> dict[str, Any]:
    told = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **more}
    return {"labelSelector": {"matchLabels": WEB}, **told}


def test_spread_keeps_domains_within_the_skew() -> None:
    objects = (*ZONES, node("nowhere"), pod("w", "a", labels=WEB))
    uneven = {"a": "topology spread", "nowhere": "topology spread"}
    assert refused(pod("p", labels=WEB, topologySpreadConstraints=[spread()]), *objects) == uneven
    assert refused(pod("p", labels=WEB, topologySpreadConstraints=[spread(maxSkew=2)]), *objects) == {
        "nowhere": "topology spread"
    }
    soft = spread(whenUnsatisfiable="ScheduleAnyway")
    assert refused(pod("p", labels=WEB, topologySpreadConstraints=[soft]), *objects) == {}


def test_min_domains_asks_for_more_of_them() -> None:
    both = (pod("w", "a", labels=WEB), pod("v", "b", labels=WEB))
    few = pod("p", labels=WEB, topologySpreadConstraints=[spread(minDomains=3)])
    assert refused(few, *ZONES, *both) == dict.fromkeys(("a", "b"), "topology spread")
    enough = pod("p", labels=WEB, topologySpreadConstraints=[spread(minDomains=2)])
    assert refused(enough, *ZONES, *both) == {}


def test_spread_policies_say_which_nodes_take_part() -> None:
    tainted = node("c", {"zone": "c"}, taints=[{"key": "t", "effect": "NoSchedule"}])
    objects = (*ZONES, tainted, pod("w", "a", labels=WEB), pod("v", "b", labels=WEB))
    blind = pod("p", labels=WEB, topologySpreadConstraints=[spread()])
    assert refused(blind, *objects) == {"a": "topology spread", "b": "topology spread", "c": "taint t"}
    seeing = pod("p", labels=WEB, topologySpreadConstraints=[spread(nodeTaintsPolicy="Honor")])
    assert refused(seeing, *objects) == {"c": "taint t"}


def test_a_gang_spreads_evenly() -> None:
    machines = [node(f"{zone}{at}", {"zone": zone}) for zone in "abc" for at in range(2)]
    spec = pod("x", topologySpreadConstraints=[spread()]).spec
    pods = []
    for each in members("g", 9):
        each.metadata.labels = WEB
        pods.append(msgspec.structs.replace(each, spec=spec))
    found = run(world(queue(), *machines, group("g", 9), pods))
    zones = [name[0] for name in found.binds.values()]
    assert {zone: zones.count(zone) for zone in "abc"} == {"a": 3, "b": 3, "c": 3}


# --- what each pod pays for -------------------------------------------------------------------------------------------


def test_a_plain_pod_depends_on_the_node_alone_even_beside_coupled_ones() -> None:
    session, plugin = opened(*ZONES, pod("k", affinity=apart(term())), pod("p", labels={"app": "db"}), serving("s", 80))
    assert plugin.predicate_scope(class_of(session, "ns/p")) is Scope.STATIC
    assert plugin.predicate_scope(class_of(session, "ns/k")) is Scope.CLUSTER
    assert plugin.predicate_scope(class_of(session, "ns/s")) is Scope.NODE


def test_what_was_static_is_not_forgotten_when_coupling_ends() -> None:
    """A class that faced another's anti-affinity in one cycle and nobody's in the next keeps its own demands."""
    model = world(queue(), *ZONES, pod("k", affinity=apart(term())), pod("p", labels=WEB, nodeSelector={"zone": "b"}))
    run(model)
    model.apply(Delete(Pod, "ns", "k"))
    assert run(model).binds == {"p": "b"}


def test_a_pod_evicted_after_the_first_look_keeps_others_off_until_it_is_gone() -> None:
    alone = {"podAntiAffinity": {REQUIRED: [{"topologyKey": "host", "labelSelector": {}}]}}
    model = ClusterModel()
    for obj in (node("n1"), pod("leaves", "n1", affinity=alone), pod("waits")):
        model.apply(Upsert(obj))
    session = session_of(model, conf("predicates"))
    plugin = plugin_of(session, Predicates)
    assert refusals(session, plugin, "ns/waits") == {"n1": "pod anti-affinity"}

    plugin.removed(model.tasks["ns/leaves"], session.nodes.row["n1"])

    assert refusals(session, plugin, "ns/waits") == {"n1": "pod anti-affinity"}, "it is there until it has ended"
    assert refusals(session, plugin, "ns/waits", later=True) == {}


@pytest.mark.parametrize(
    ("waits", "heeded"),
    [
        ({"topologySpreadConstraints": [spread()]}, {"web", "facing"}),
        ({"affinity": apart(term())}, {"web", "facing"}),
        ({"affinity": near(term())}, {"web", "facing"}),
        ({}, {"facing"}),
        ({"containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": 1}]}]}, {"facing", "port"}),
    ],
    ids=["spread", "anti-affinity", "affinity", "plain", "port"],
)
def test_pods_are_heeded_that_count_in_what_decides(waits: dict[str, Any], heeded: set[str]) -> None:
    """A plain pod heeds those whose own anti-affinity means it; who holds ports or volumes all others that do."""
    others = {
        "web": pod("web", "a", labels=WEB),
        "facing": pod("facing", "a", labels=WEB, affinity=apart(term())),
        "db": pod("db", "a", labels={"app": "db"}),
    }
    session, plugin = opened(*ZONES, *others.values(), serving("port", 80, "a"), pod("p", labels=WEB, **waits))
    cls = class_of(session, "ns/p")
    found = {name for name in (*others, "port") if plugin.heeds(cls, class_of(session, f"ns/{name}"))}
    assert found == heeded
