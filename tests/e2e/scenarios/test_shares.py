"""Reclaim, preemption and a change of policy, as users and operators of a cluster see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kbatch.localcluster.processes import wait_until
from tests.e2e.scenarios.manifests import gang, group, pod, queue

if TYPE_CHECKING:
    from tests.e2e.scenarios.conftest import Installed

pytestmark = pytest.mark.installed


def fillers(group_name: str, count: int, cpu: str, **metadata: dict[str, str]) -> list[dict[str, Any]]:
    """Pods of a group that end two seconds after their eviction, long enough to look at what is meanwhile."""
    documents = [pod(f"{group_name}-{index:02}", group_name, cpu) for index in range(count)]
    for document in documents:
        document["metadata"]["annotations"]["simulate.kbatch.dev/termination"] = "2"
        document["metadata"]["labels"] = {"of": group_name, **metadata.get("labels", {})}
    return documents


def names(pods: list[dict[str, Any]]) -> set[str]:
    return {pod["metadata"]["name"] for pod in pods}


def on_nodes(kbatch: Installed, group_name: str) -> list[dict[str, Any]]:
    return [
        pod
        for pod in kbatch.items("pods")
        if pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == group_name and pod["spec"].get("nodeName")
    ]


def evicted(pods: list[dict[str, Any]]) -> set[str]:
    """Those that are going, by the word of the eviction API."""
    return {
        pod["metadata"]["name"]
        for pod in pods
        if any(
            condition["type"] == "DisruptionTarget" and condition["reason"] == "EvictionByEvictionAPI"
            for condition in pod["status"].get("conditions", [])
        )
    }


def budget(name: str, minimum: int, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minAvailable": minimum, "selector": {"matchLabels": labels}},
    }


def test_queue_reclaims_its_share_and_a_budget_holds(kbatch: Installed) -> None:
    """Twelve pods hold three nodes of 32 cores; half of that is the other queue's as soon as it asks."""
    kbatch.apply(queue("first"), queue("second"))
    kbatch.apply(group("holder", 1, queue="first"))
    pods = fillers("holder", 12, "8")
    for document in pods[:7]:
        document["metadata"]["labels"]["keep"] = "yes"
    kbatch.apply(budget("keep", 7, keep="yes"))
    kbatch.create_all(pods)
    kbatch.wait("the first queue holds everything", lambda: len(on_nodes(kbatch, "holder")) == 12)
    kbatch.wait(
        "the budget is counted",
        lambda: kbatch.get("poddisruptionbudget", "keep").get("status", {}).get("currentHealthy") == 7,
    )

    kbatch.create_all(gang("preemptor", 6, cpu="8", queue="second"))
    # Five pods may go, six would have to: nobody is evicted in vain.
    kbatch.wait_condition("preemptor", "Scheduled", "False")
    assert not wait_until(lambda: bool(evicted(kbatch.items("pods"))), 2.0, every=0.2)
    assert len(on_nodes(kbatch, "holder")) == 12

    kbatch.apply(budget("keep", 6, keep="yes"))
    gone: set[str] = set()

    def claimed() -> bool:
        gone.update(evicted(on_nodes(kbatch, "holder")))
        return len(on_nodes(kbatch, "preemptor")) == 6

    kbatch.wait("the second queue has its share", claimed)
    left = names(on_nodes(kbatch, "holder"))
    assert len(left) == 6
    assert len(left & names(pods[:7])) == 6, "the budget held"
    assert gone, "by the eviction API, not by deletion"
    assert gone <= names(pods) - left

    def halved() -> bool:
        return all(kbatch.get("queue", name)["status"]["allocated"]["cpu"] == "48" for name in ("first", "second"))

    kbatch.wait("both queues report their shares", halved)
    for name in ("first", "second"):
        assert kbatch.get("queue", name)["status"]["deserved"]["cpu"] == "48"
    kbatch.run("delete", "poddisruptionbudget", "keep")


def test_preemptor_keeps_the_room_that_was_made_for_it(kbatch: Installed) -> None:
    priority_class = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "urgent"},
        "value": 1000,
    }
    kbatch.apply(priority_class, group("low", 1))
    kbatch.create_all(fillers("low", 12, "8"))
    kbatch.wait("the cluster is full", lambda: len(on_nodes(kbatch, "low")) == 12)

    urgent = gang("high", 2, cpu="8", priorityClassName="urgent")
    for document in urgent[1:]:
        document["spec"]["priorityClassName"] = "urgent"
    kbatch.create_all(urgent)
    nominated: dict[str, str] = {}

    def promised() -> bool:
        for found in kbatch.items("pods"):
            if node := found["status"].get("nominatedNodeName"):
                nominated[found["metadata"]["name"]] = node
        return len(nominated) == 2

    kbatch.wait("both pods have a node promised", promised)
    # While the victims end, another pod of low priority asks for just such room.
    kbatch.create_all([*fillers("late", 1, "8"), group("late", 1)])
    kbatch.wait("the urgent gang is bound", lambda: len(on_nodes(kbatch, "high")) == 2)

    assert {found["metadata"]["name"]: found["spec"]["nodeName"] for found in on_nodes(kbatch, "high")} == nominated
    assert len(on_nodes(kbatch, "low")) == 10, "two made room, no more"
    assert not on_nodes(kbatch, "late")
    kbatch.wait_phase("high", "Running")
    kbatch.run("delete", "priorityclass", "urgent")


def test_configuration_is_taken_up_without_a_restart(kbatch: Installed) -> None:
    before = kbatch.pid("scheduler")
    original = kbatch.configuration()
    kbatch.create_all(gang("large", 4, cpu="30"))
    kbatch.wait_condition("large", "Enqueued", "False")
    kbatch.wait_phase("large", "Pending")
    try:
        kbatch.configure(original.replace("enqueue, reclaim", "enqeue, reclaim"))

        def complained() -> bool:
            notes = [event.get("note", "") for event in kbatch.items("events.events.k8s.io", "-A")]
            return any("enqeue" in note and "enqueue" in note for note in notes)

        kbatch.wait("an Event names the word and the one that was meant", complained)
        kbatch.create_all(gang("small", 2))
        kbatch.wait_phase("small", "Running")
        assert kbatch.condition("large", "Enqueued")["status"] == "False", "the last good one is in force"

        # Without enqueue every group counts as let in.
        kbatch.configure(original.replace("enqueue, reclaim, allocate, backfill, preempt", "allocate"))
        kbatch.wait_condition("large", "Enqueued", "True")
        kbatch.wait_phase("large", "InQueue")
    finally:
        kbatch.configure(original)
    kbatch.create_all(gang("other", 4, cpu="30"))
    kbatch.wait_condition("other", "Enqueued", "False")
    assert kbatch.pid("scheduler") == before
