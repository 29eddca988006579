"""Fake nodes: Node objects that kwok keeps alive, and whose pods it lets run."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from kbatch.localcluster.errors import StartError
from kbatch.localcluster.processes import wait_until

if TYPE_CHECKING:
    from kbatch.localcluster.api import Api

CPU, MEMORY, PODS = "32", "256Gi", "110"
_CONDITIONS = {
    "Ready": "KubeletReady",
    "MemoryPressure": "KubeletHasSufficientMemory",
    "DiskPressure": "KubeletHasNoDiskPressure",
    "PIDPressure": "KubeletHasSufficientPID",
    "NetworkUnavailable": "RouteCreated",
}


def node(name: str, *, cpu: str = CPU, memory: str = MEMORY, pods: str = PODS) -> dict[str, Any]:
    """Return a Node that kwok adopts, with these quantities as capacity and allocatable.

    It comes with the conditions that kwok would set a moment later, four nodes at a time; kwok then only renews them.
    """
    now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = [
        {
            "type": kind,
            "status": "True" if kind == "Ready" else "False",
            "reason": reason,
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        for kind, reason in _CONDITIONS.items()
    ]
    resources = {"cpu": cpu, "memory": memory, "pods": pods, "ephemeral-storage": "1Ti"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "type": "kwok",
            },
        },
        "status": {
            "phase": "Running",
            "capacity": resources,
            "allocatable": resources,
            "conditions": conditions,
            "addresses": [{"type": "Hostname", "address": name}],
        },
    }


def ensure_nodes(api: Api, count: int, *, prefix: str = "node-") -> None:
    """Create the nodes `node-0` … that do not exist yet, and wait until all of them are Ready."""
    names = [f"{prefix}{index}" for index in range(count)]
    api.post_all("/api/v1/nodes", [node(name) for name in names])
    wait_nodes_ready(api, set(names))


def wait_nodes_ready(api: Api, names: set[str], timeout: float | None = None) -> None:
    """Wait until these nodes are Ready and free of the taint that says otherwise; seconds by their number if None."""
    limit = 30.0 + 0.05 * len(names) if timeout is None else timeout
    if not wait_until(lambda: names <= ready_nodes(api), limit, every=0.2):
        late = sorted(names - ready_nodes(api))
        raise StartError(f"{len(late)} of {len(names)} nodes ({late[0]} …)", f"not Ready within {limit:.0f} s")


def ready_nodes(api: Api) -> set[str]:
    """Return the names of the nodes on which pods can be placed."""
    return {item["metadata"]["name"] for item in api.get("/api/v1/nodes?resourceVersion=0")["items"] if _usable(item)}


def _usable(item: dict[str, Any]) -> bool:
    tainted = any(taint["key"].startswith("node.kubernetes.io/") for taint in item.get("spec", {}).get("taints", []))
    conditions = item.get("status", {}).get("conditions", [])
    return not tainted and any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
