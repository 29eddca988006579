"""Volumes on a real control plane: its volume controller binds them, the test plays the provisioner that makes them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.e2e.operator_process import OperatorProcess, eventually
from tests.e2e.scenarios.manifests import group, pod, queue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.conftest import ControlPlane

pytestmark = pytest.mark.control_plane

ROOT = Path(__file__).parents[2]
SELECTED = "volume.kubernetes.io/selected-node"
CONFIGURATION = (
    "actions: allocate\ntiers:\n- plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: nodeorder}]\n"
)
DRIVER = "made.by.the.test"


@pytest.fixture(scope="module")
def cluster(
    start_control_plane: Callable[..., ControlPlane], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """Three nodes that attach two volumes each, and a scheduler."""
    plane = start_control_plane()
    plane.ensure_nodes(3)
    plane.run_kubectl("apply", "--server-side", "-f", str(ROOT / "crds"))
    plane.run_kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", str(ROOT / "crds"))
    on_demand = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "on-demand"},
        "provisioner": DRIVER,
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    apply(plane, queue("default"), on_demand, *(csi_node(f"node-{number}", 2) for number in range(3)))
    folder = tmp_path_factory.mktemp("scheduler")
    configuration = folder / "scheduler.yaml"
    configuration.write_text(CONFIGURATION)
    flags = ("--lease-namespace=default", f"--scheduler-conf={configuration}")
    with OperatorProcess("scheduler", plane.kubeconfig, folder, *flags) as process:
        process.wait_leading()
        yield plane


@pytest.fixture(autouse=True)
def _clean(cluster: ControlPlane) -> Iterator[None]:
    yield
    cluster.run_kubectl("delete", "podgroups,pods", "--all", "--force", "--grace-period=0")
    cluster.run_kubectl("delete", "pvc,pv", "--all", "--wait=false")


def apply(cluster: ControlPlane, *objects: dict[str, Any]) -> None:
    cluster.run_kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))


def csi_node(name: str, count: int) -> dict[str, Any]:
    drivers = [{"name": DRIVER, "nodeID": name, "topologyKeys": [], "allocatable": {"count": count}}]
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": name},
        "spec": {"drivers": drivers},
    }


def claim(name: str, *, volume: str = "", mode: str = "ReadWriteOnce") -> dict[str, Any]:
    """A claim for the volume, or for one that is made on demand."""
    spec: dict[str, Any] = {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}}
    spec |= {"storageClassName": "", "volumeName": volume} if volume else {"storageClassName": "on-demand"}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def volume(name: str, *, only: str = "") -> dict[str, Any]:
    """A volume kept for the claim of its name, which its node affinity ties to one node, if it is to be so."""
    spec: dict[str, Any] = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "",
        "csi": {"driver": DRIVER, "volumeHandle": name},
        "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": name},
    }
    if only:
        here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [only]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


def make(cluster: ControlPlane, name: str, *, only: str = "") -> None:
    """Make the volume that a claim waits for, as a provisioner does."""
    waiting = cluster.kubectl_json("get", "pvc", name)
    made = volume(name, only=only)
    made["spec"] |= {"storageClassName": "on-demand", "accessModes": waiting["spec"]["accessModes"]}
    # The volume controller looks at the claim at once if its uid is said, else in a quarter of a minute.
    made["spec"]["claimRef"]["uid"] = waiting["metadata"]["uid"]
    apply(cluster, made)


def using(name: str, group_name: str, *claims: str, cpu: str = "1") -> dict[str, Any]:
    found = pod(name, group_name, cpu)
    found["spec"]["volumes"] = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
    return found


def homes(cluster: ControlPlane) -> dict[str, str]:
    """The nodes of the pods that have one."""
    items = cluster.kubectl_json("get", "pods")["items"]
    return {item["metadata"]["name"]: node for item in items if (node := item["spec"].get("nodeName"))}


def selected(cluster: ControlPlane) -> dict[str, str]:
    """The nodes that volumes are to be made for, by claim."""
    items = cluster.kubectl_json("get", "pvc")["items"]
    return {
        item["metadata"]["name"]: node
        for item in items
        if (node := item["metadata"].get("annotations", {}).get(SELECTED))
    }


def bound_claims(cluster: ControlPlane) -> int:
    return sum(item["status"].get("phase") == "Bound" for item in cluster.kubectl_json("get", "pvc")["items"])


def test_a_gang_gets_its_volumes_made_where_its_pods_go(cluster: ControlPlane) -> None:
    names = [f"own-{number}" for number in range(3)]
    apply(cluster, *map(claim, names), group("own", 3), *(using(name, "own", name, cpu="20") for name in names))
    eventually(lambda: len(selected(cluster)) == 3, 20, "each claim names a node")
    asked = selected(cluster)
    assert set(asked.values()) == {"node-0", "node-1", "node-2"}
    for name in names[:2]:
        make(cluster, name, only=asked[name])
    eventually(lambda: bound_claims(cluster) == 2, 20, "two volumes of three are made")
    assert not homes(cluster), "no pod of the gang is bound before all of its volumes are there"
    # The third cannot be made there, says the provisioner: the scheduler decides again, and asks again.
    before = _version(cluster, names[2])
    cluster.run_kubectl("annotate", "pvc", names[2], f"{SELECTED}-")
    eventually(
        lambda: _version(cluster, names[2]) != before and selected(cluster).get(names[2]), 20, "it is asked for again"
    )
    assert selected(cluster) == asked, "where the others' volumes are by now, its pod has one node left"
    make(cluster, names[2], only=asked[names[2]])
    eventually(lambda: homes(cluster) == asked, 20, "all are bound, each where its volume was made")
    assert len(eventually(lambda: _events(cluster, "BindFailed"), 20, "the failure is told")) == 1


def _version(cluster: ControlPlane, name: str) -> str:
    found: str = cluster.kubectl_json("get", "pvc", name)["metadata"]["resourceVersion"]
    return found


def _events(cluster: ControlPlane, reason: str) -> list[dict[str, Any]]:
    items = cluster.kubectl_json("get", "events.events.k8s.io")["items"]
    return [item for item in items if item.get("reason") == reason]


def test_a_gang_on_two_nodes_shares_a_volume_for_many(cluster: ControlPlane) -> None:
    shared = claim("shared", mode="ReadWriteMany")
    apply(cluster, shared, group("pair", 2), *(using(f"pair-{at}", "pair", "shared", cpu="20") for at in range(2)))
    asked = eventually(lambda: selected(cluster).get("shared"), 20, "the claim names the node of one")
    make(cluster, "shared")
    eventually(lambda: len(homes(cluster)) == 2, 20, "both are bound")
    found = homes(cluster)
    assert asked in found.values()
    assert len(set(found.values())) == 2


def test_a_pod_goes_where_its_volume_is(cluster: ControlPlane) -> None:
    apply(cluster, volume("far", only="node-2"), claim("far", volume="far"))
    apply(cluster, volume("busy", only="node-1"), claim("busy", volume="busy"))
    apply(cluster, group("full", 1), using("full", "full", "busy", cpu="30"))
    eventually(lambda: homes(cluster) == {"full": "node-1"}, 20, "the pod stands where its volume is")
    apply(
        cluster,
        *(group(name, 1) for name in ("to-far", "to-busy")),
        using("to-far", "to-far", "far"),
        using("to-busy", "to-busy", "busy", cpu="20"),
    )
    eventually(lambda: homes(cluster).get("to-far") == "node-2", 20, "so does the next")
    waits = eventually(lambda: _scheduled(cluster, "to-busy"), 20, "where there is no room the pod waits")
    assert (waits["status"], waits["reason"]) == ("False", "NotEnoughResources")
    assert "volume" in waits["message"]
    assert "to-busy" not in homes(cluster)


def test_nodes_take_as_many_volumes_as_they_attach(cluster: ControlPlane) -> None:
    names = [f"disk-{number}" for number in range(7)]
    apply(cluster, *(volume(name) for name in names), *(claim(name, volume=name) for name in names))
    eventually(lambda: bound_claims(cluster) == 7, 20, "the claims are bound")
    apply(cluster, *(part for name in names for part in (group(name, 1), using(name, name, name, cpu="100m"))))
    eventually(lambda: len(homes(cluster)) == 6, 20, "three nodes attach two volumes each")
    (last,) = set(names) - set(homes(cluster))
    waits = eventually(lambda: _scheduled(cluster, last), 20, "the seventh waits")
    assert waits["status"] == "False"
    assert "volume" in waits["message"]
    found = list(homes(cluster).values())
    assert {node: found.count(node) for node in found} == {"node-0": 2, "node-1": 2, "node-2": 2}
    cluster.run_kubectl("delete", "pod", next(iter(set(names) - {last})), "--force", "--grace-period=0")
    eventually(lambda: last in homes(cluster), 20, "it takes the place of one that goes")


def _scheduled(cluster: ControlPlane, name: str) -> dict[str, Any] | None:
    conditions = cluster.kubectl_json("get", "podgroup", name).get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == "Scheduled"), None)
