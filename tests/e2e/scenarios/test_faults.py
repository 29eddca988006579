"""kbatch while things break: nothing is lost, nothing is done twice, everything goes on by itself."""

from __future__ import annotations

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.scenarios.manifests import gang, queue

if TYPE_CHECKING:
    from tests.e2e.scenarios.conftest import Installed

OWN_CLUSTER = True

pytestmark = pytest.mark.faults

PROCESSES = ("scheduler", "podgroup", "queue", "webhook")


def bound_by_group(pods: list[dict[str, Any]]) -> dict[str, int]:
    """How many pods of each gang have a node."""
    counts: dict[str, int] = {}
    for pod in pods:
        name = pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"]
        counts[name] = counts.get(name, 0) + bool(pod["spec"].get("nodeName"))
    return counts


def cores_by_node(pods: list[dict[str, Any]]) -> dict[str, int]:
    """Requested cores of the pods of each node."""
    cores: dict[str, int] = {}
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node:
            cores[node] = cores.get(node, 0) + int(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])
    return cores


def test_scheduler_killed_while_it_binds(kbatch: Installed) -> None:
    """25 gangs of 20 on nodes that hold exactly their 500 pods; killed with some bound and some not."""
    kbatch.ensure_nodes(16)  # 512 cores
    documents = [document for index in range(25) for document in gang(f"gang-{index:02}", 20)]
    kbatch.create_all([document for document in documents if document["kind"] == "Pod"])
    nodes: dict[str, set[str]] = {}  # pod uid -> every node it was ever seen on

    def look() -> list[dict[str, Any]]:
        pods = kbatch.items("pods")
        for pod in pods:
            if node := pod["spec"].get("nodeName"):
                nodes.setdefault(pod["metadata"]["uid"], set()).add(node)
        return pods

    killed = kbatch.pid("scheduler")
    groups = [document for document in documents if document["kind"] == "PodGroup"]
    with kbatch.watching_pods() as bound, ThreadPoolExecutor(1) as beside:
        made = beside.submit(kbatch.create_all, groups, parallel=32)
        # Half a second is enough for all of them, so the kill must follow the watch, not a poll, while groups come yet.
        for seen, _ in enumerate(bound, 1):
            if seen == 100:
                break
        os.kill(killed, signal.SIGKILL)
        made.result()
    at_death = sum(bound_by_group(look()).values())

    kbatch.wait("all 500 are bound", lambda: sum(bound_by_group(look()).values()) == 500, 60)

    assert kbatch.pid("scheduler") != killed
    assert 0 < at_death < 500, f"killed too early or too late to prove anything: {at_death} of 500 were bound"
    pods = look()
    assert set(bound_by_group(pods).values()) == {20}, "no gang is partial"
    assert len(nodes) == 500, "no pod was replaced"
    assert all(len(seen) == 1 for seen in nodes.values()), "no pod moved"
    assert max(cores_by_node(pods).values()) <= 32
    kbatch.wait(
        "all groups run", lambda: all(g.get("status", {}).get("phase") == "Running" for g in kbatch.items("podgroups"))
    )


def test_api_server_restarted_under_load(kbatch: Installed) -> None:
    assert kbatch.components is not None
    kbatch.ensure_nodes(16)
    kbatch.create_all([document for index in range(10) for document in gang(f"before-{index}", 20)])
    kbatch.wait("some are bound", lambda: any(bound_by_group(kbatch.items("pods")).values()))

    kbatch.components.restart("kube-apiserver")

    kbatch.wait("what was pending is bound", lambda: set(bound_by_group(kbatch.items("pods")).values()) == {20}, 60)
    # Each of the four processes does its work for something new.
    kbatch.apply(queue("after", weight=3))
    kbatch.create_all(gang("after", 10, queue="after"))
    kbatch.wait_phase("after", "Running")
    kbatch.wait(
        "the queue operator goes on",
        lambda: kbatch.get("queue", "after").get("status", {}).get("allocated", {}).get("cpu") == "10",
    )
    kbatch.wait(
        "the podgroup operator has counted every gang",
        lambda: all(group["status"].get("running") in {10, 20} for group in kbatch.items("podgroups")),
    )
    report = kbatch.report()
    assert set(report["processes"]) == set(PROCESSES)
    # The webhook is asked by the API server for every PodGroup that is made; with no answer the request is on record.
    refused = kbatch.run("get", "--raw", "/metrics")
    failures = [
        line
        for line in refused.splitlines()
        if line.startswith("apiserver_admission_webhook_fail_open_count")
        and "kbatch" in line
        and not line.endswith(" 0")
    ]
    assert not failures, json.dumps(failures)
