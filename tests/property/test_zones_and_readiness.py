"""Volumes by their zones, and nodes that are not ready: the columns against the plain rule."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch.api.objects import AnyObject, PersistentVolume, PersistentVolumeClaim
from kbatch.engine.plugins.predicates import Predicates
from tests.examples import examples
from tests.unit.engine.worlds import world
from tests.unit.plugins.views import conf, node, plugin_of, pod, refusals, session_of

TODAY = {
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
labels = st.dictionaries(st.sampled_from([*TODAY, "rack"]), st.sampled_from(["a", "b", "c"]), max_size=3)
wide = st.dictionaries(st.sampled_from([*TODAY, "rack"]), st.sampled_from(["a", "b", "a__b", "b__c"]), max_size=3)


def refused(*objects: AnyObject) -> dict[str, str]:
    session = session_of(world(*objects), conf("predicates"))
    return refusals(session, plugin_of(session, Predicates), "ns/p")


@settings(deadline=None, max_examples=examples(25))
@given(wide, st.lists(labels, min_size=1, max_size=4))
def test_a_volume_is_used_in_its_zones(volume: dict[str, str], nodes: list[dict[str, str]]) -> None:
    def takes(own: dict[str, str]) -> bool:
        """kube-scheduler's VolumeZone, node by node."""
        if not any(key in own for key in TODAY):
            return True
        for key, value in volume.items():
            if key in TODAY and own.get(key, own.get(TODAY[key])) not in value.split("__"):
                return False
        return True

    claim = {"metadata": {"name": "c", "namespace": "ns"}, "spec": {"volumeName": "v"}}
    found = refused(
        *(node(f"n{at}", own) for at, own in enumerate(nodes)),
        msgspec.convert(claim, PersistentVolumeClaim),
        msgspec.convert({"metadata": {"name": "v", "labels": volume}}, PersistentVolume),
        pod("p", volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]),
    )
    assert found == {f"n{at}": "volume" for at, own in enumerate(nodes) if not takes(own)}


CONDITIONS = {
    ("Ready", "False"): "not-ready",
    ("Ready", "Unknown"): "unreachable",
    ("Ready", "True"): "",
    ("NetworkUnavailable", "True"): "network-unavailable",
    ("NetworkUnavailable", "False"): "",
}


@st.composite
def tolerations(draw: st.DrawFn) -> dict[str, Any]:
    found: dict[str, Any] = {"operator": "Exists"}
    key = draw(st.sampled_from(["", "not-ready", "unreachable", "network-unavailable"]))
    if key:
        found["key"] = f"node.kubernetes.io/{key}"
    effect = draw(st.sampled_from(["", "NoSchedule", "NoExecute"]))
    return {**found, "effect": effect} if effect else found


@settings(deadline=None, max_examples=examples(25))
@given(st.lists(tolerations(), max_size=3), st.lists(st.sampled_from(list(CONDITIONS)), max_size=2, unique=True))
def test_a_node_that_is_not_ready_takes_who_tolerates_that(
    tolerated: list[dict[str, Any]], conditions: list[tuple[str, str]]
) -> None:
    """With or without the taints that the node controller sets, the answer is the same."""
    told = {"conditions": [{"type": type_, "status": status} for type_, status in conditions]}
    taints = {f"node.kubernetes.io/{CONDITIONS[each]}" for each in conditions if CONDITIONS[each]}
    tainted = [{"key": key, "effect": "NoSchedule"} for key in sorted(taints)]
    machines = node("told", status=told), node("tainted", taints=tainted), node("both", status=told, taints=tainted)
    borne = all(
        any(
            each.get("key", key) == key and each.get("effect", "NoSchedule") == "NoSchedule" for each in tolerated
        )
        for key in taints
    )  # fmt: skip
    found = refused(pod("p", tolerations=tolerated), *machines)
    assert set(found) == (set() if borne else {"told", "tainted", "both"})
