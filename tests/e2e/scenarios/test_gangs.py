"""What a user sees of a gang on a cluster with kbatch installed."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from tests.e2e.scenarios.manifests import SEED_EXAMPLE, gang, queue

if TYPE_CHECKING:
    from tests.e2e.scenarios.conftest import Installed


def when(text: str) -> datetime:
    return datetime.fromisoformat(text)


def assigned(pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [pod for pod in pods if pod["spec"].get("nodeName")]


def scheduled_at(pod: dict[str, Any]) -> datetime:
    condition = next(c for c in pod["status"]["conditions"] if c["type"] == "PodScheduled")
    return when(condition["lastTransitionTime"])


def test_seed_job_runs_as_one(kbatch: Installed) -> None:
    kbatch.run("apply", "-f", "-", stdin=SEED_EXAMPLE)

    found = kbatch.wait_phase("qj-1", "Running")
    kbatch.wait("six pods run", lambda: kbatch.get("podgroup", "qj-1").get("status", {}).get("running") == 6)
    pods = kbatch.items("pods")
    assert len(assigned(pods)) == 6
    times = [scheduled_at(pod) for pod in pods]
    assert (max(times) - min(times)).total_seconds() <= 1, "they were bound together"
    assert kbatch.condition("qj-1", "Enqueued")["status"] == "True"
    assert kbatch.condition("qj-1", "Scheduled")["status"] == "True"
    assert kbatch.condition("qj-1", "Unschedulable").get("status", "False") == "False"
    assert found["metadata"]["name"] == "qj-1"

    table = kbatch.run("get", "podgroup", "qj-1")
    header, row = table.splitlines()
    assert "PHASE" in header.split()
    assert {"qj-1", "Running"} <= set(row.split())


def test_too_large_a_gang_waits_and_says_why_while_a_small_one_runs(kbatch: Installed) -> None:
    kbatch.create_all(gang("large", 4, cpu="30"))  # three nodes of 32 cores
    waiting = kbatch.wait_condition("large", "Scheduled", "False", "NotEnoughResources")
    assert "3" in waiting["message"], waiting  # how many of it could be placed
    assert "cpu" in waiting["message"], waiting
    kbatch.create_all(gang("small", 2))
    kbatch.wait_phase("small", "Running")
    kbatch.wait_phase("large", "Pending")
    assert not assigned([p for p in kbatch.items("pods") if p["metadata"]["name"].startswith("large-")])

    kbatch.ensure_nodes(4)

    kbatch.wait_phase("large", "Running")
    assert kbatch.condition("large", "Scheduled")["status"] == "True"
    assert kbatch.condition("large", "Unschedulable")["status"] == "False"


def test_missing_queue_is_named_and_its_creation_is_enough(kbatch: Installed) -> None:
    kbatch.create_all(gang("early", 2, queue="research"))
    waiting = kbatch.wait_condition("early", "Scheduled", "False", "QueueNotFound")
    assert "research" in waiting["message"]

    kbatch.apply(queue("research", weight=2))

    kbatch.wait_phase("early", "Running")
    kbatch.wait(
        "the queue counts what it holds",
        lambda: kbatch.get("queue", "research").get("status", {}).get("allocated", {}).get("cpu") == "2",
    )


def test_default_queue_exists_and_reports_its_share(kbatch: Installed) -> None:
    kbatch.create_all(gang("plain", 3))
    kbatch.wait_phase("plain", "Running")

    def counted() -> bool:
        status = kbatch.get("queue", "default").get("status", {})
        return bool(status.get("allocated", {}).get("cpu") == "3" and status.get("running") == 1)

    kbatch.wait("the queue default counts three cores and one running group", counted)
    assert kbatch.get("queue", "default")["status"]["deserved"]["cpu"] == "3"


def test_gang_of_200_on_50_nodes_is_bound_within_five_seconds(kbatch: Installed) -> None:
    kbatch.ensure_nodes(50)
    kbatch.create_all(gang("wide", 200, cpu="4"))
    kbatch.wait("all 200 are bound", lambda: len(assigned(kbatch.items("pods"))) == 200)

    pods = kbatch.items("pods")
    last_created = max(when(pod["metadata"]["creationTimestamp"]) for pod in pods)
    last_bound = max(scheduled_at(pod) for pod in pods)
    assert (last_bound - last_created).total_seconds() <= 5
    per_node: dict[str, int] = {}
    for pod in pods:
        per_node[pod["spec"]["nodeName"]] = per_node.get(pod["spec"]["nodeName"], 0) + 1
    assert max(per_node.values()) <= 8, "no node beyond its 32 cores"
