"""Each process killed in the middle of what placement does to a group: the end is as if nothing had happened."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.e2e.auditor.allowances import KILLED, KILLED_UNTRUE, Limits
from tests.e2e.auditor.audit_log import AuditLog
from tests.e2e.auditor.auditor import Auditor
from tests.e2e.scenarios.conftest import KBATCH
from tests.e2e.scenarios.life import job, role, roles
from tests.e2e.scenarios.manifests import gang, group, pod, queue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.e2e.scenarios.conftest import Installed

pytestmark = pytest.mark.long

OWN_CLUSTER = True

PROCESSES: Final = ("scheduler", "podgroup", "queue", "webhook")
PATIENCE: Final = 90.0
"""Seconds; a leader that was killed leaves its Lease for 15."""
LIMITS: Final = Limits(partial=KILLED, untrue=KILLED_UNTRUE, unsaid=KILLED_UNTRUE, beneficiary=float("inf"))
"""For whom somebody was evicted only an audit log tells, which this installation has not."""


@pytest.fixture(autouse=True)
def forgiven(kbatch: Installed) -> Iterator[None]:
    """What was killed here waits no longer for its start in the next test: the flows kill up to three times each."""
    yield
    kbatch.forgive()


@pytest.fixture(autouse=True)
def audited(kbatch: Installed, tmp_path: Path) -> Iterator[None]:
    """Somebody who looks on: no pod bound twice, no node too full, no gang left in part, no lasting untruth."""
    log = tmp_path / "audit.log"
    log.touch()  # this installation has none: what was seen is judged
    with Auditor(kbatch.kubeconfig, AuditLog(log), LIMITS) as auditor:
        yield
        auditor.silent()


def members(kbatch: Installed, name: str, phase: str = "Running") -> dict[str, dict[str, Any]]:
    """Pods of a group on nodes that are in this phase and stay, by uid."""
    return {
        one["metadata"]["uid"]: one
        for one in kbatch.items("pods")
        if one["metadata"]["annotations"].get("scheduling.k8s.io/group-name") == name
        and one["spec"].get("nodeName")
        and one["status"]["phase"] == phase
        and "deletionTimestamp" not in one["metadata"]
    }


def running(kbatch: Installed, name: str, count: int) -> dict[str, dict[str, Any]]:
    """Wait until so many pods of it run; these."""
    kbatch.wait(f"{count} of {name} run", lambda: len(members(kbatch, name)) == count, PATIENCE)
    return members(kbatch, name)


def restarted(kbatch: Installed, process: str, killed: int) -> None:
    """Wait until the process lives again."""
    kbatch.wait(f"{process} is started again", lambda: kbatch.pid(process) not in {0, killed}, PATIENCE)


def lost_with_0(kbatch: Installed, kill: Callable[[], int]) -> None:
    kbatch.apply(roles("ranks", role("rank", 4, "16"), minimumLostSeconds=0))
    before = running(kbatch, "ranks", 4)
    kbatch.run("delete", "pod", next(iter(before.values()))["metadata"]["name"], "--wait=false", "--grace-period=0")
    kill()
    kbatch.wait("none of them is left", lambda: not before.keys() & members(kbatch, "ranks").keys(), PATIENCE)
    running(kbatch, "ranks", 4)
    kbatch.wait_phase("ranks", "Running", PATIENCE)


def lost_without(kbatch: Installed, kill: Callable[[], int]) -> None:
    kbatch.apply(roles("ranks", role("rank", 4, "16")))
    before = running(kbatch, "ranks", 4)
    gone = next(iter(before))
    kbatch.run("delete", "pod", before[gone]["metadata"]["name"], "--wait=false", "--grace-period=0")
    kill()
    kbatch.wait("it is replaced", lambda: len(members(kbatch, "ranks")) == 4, PATIENCE)
    assert before.keys() - {gone} <= members(kbatch, "ranks").keys(), "the others were never touched"
    kbatch.wait_phase("ranks", "Running", PATIENCE)


def elastic(kbatch: Installed, kill: Callable[[], int]) -> None:
    kbatch.apply(queue("loan"), queue("owed"))
    kbatch.apply(roles("train", role("w", 2, "16", most=6), queue="loan"))
    kbatch.wait("it grows", lambda: len(members(kbatch, "train")) >= 3, PATIENCE)
    kill()
    running(kbatch, "train", 6)
    kbatch.create_all(gang("claim", 2, cpu="16", queue="owed"))
    kbatch.wait("it shrinks", lambda: len(members(kbatch, "train")) < 6, PATIENCE)
    kill()
    running(kbatch, "claim", 2)
    assert 2 <= len(members(kbatch, "train")) <= 4
    kbatch.run("delete", "podgroup/claim", "pod/claim-0", "pod/claim-1", "--wait=false", "--grace-period=0")
    kbatch.wait("it has all of it again", lambda: len(members(kbatch, "train")) == 6, 2 * PATIENCE)


def objects(kbatch: Installed, kill: Callable[[], int]) -> None:
    def services() -> set[str]:
        return {one["metadata"]["name"] for one in kbatch.items("services")} - {"kubernetes"}

    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "{{ group }}"},
        "spec": {"clusterIP": "None", "selector": {"a": "b"}},
    }
    kbatch.apply(roles("train", role("w", 2, "1"), objects=[service]))
    kill()
    running(kbatch, "train", 2)
    assert services() == {"train"}
    kbatch.run("delete", "podgroup", "train", "--wait=false")
    kill()
    kbatch.wait("they go with it", lambda: not services() and not members(kbatch, "train"), PATIENCE)
    kbatch.apply(roles("short", role("w", 1, "1", seconds="2"), objects=[service]))
    running(kbatch, "short", 1)
    kill()
    kbatch.wait_phase("short", "Completed", PATIENCE)
    kbatch.wait("they go when it is over", lambda: not services(), PATIENCE)


def cancelled(kbatch: Installed, kill: Callable[[], int]) -> None:
    documents = [roles("made", role("w", 2, "1")), job("queued", 2, "1"), *gang("plain", 2)]
    for one in documents:
        if one["kind"] != "Pod":
            one["metadata"].setdefault("labels", {})["kbatch.dev/job-set"] = "night"
    kbatch.apply(*documents)
    for name in ("made", "queued", "plain"):
        running(kbatch, name, 2)
    with subprocess.Popen(
        [KBATCH, "cancel", "--job-set", "night", "--queue", "default", "--kubeconfig", kbatch.kubeconfig],
        stdout=subprocess.DEVNULL,
    ) as command:
        kbatch.wait("it has begun", lambda: len(kbatch.items("podgroups,jobs")) < 4)
        kill()
        assert command.wait(60) == 0
    kbatch.wait("nothing is left", lambda: kbatch.items("podgroups,jobs,pods") == [], PATIENCE)


def exclusive(kbatch: Installed, kill: Callable[[], int]) -> None:
    small = [pod(f"small-{at}", "small") for at in range(3)]
    for at, one in enumerate(small):
        one["spec"]["nodeSelector"] = {"kubernetes.io/hostname": f"node-{at}"}
    kbatch.create_all([group("small", 1), *small])
    running(kbatch, "small", 3)
    kbatch.create_all(gang("alone", 2, cpu="20", exclusive=True))
    kbatch.wait_condition("alone", "Scheduled", "False", "NotEnoughResources")
    kill()
    kbatch.create_all([pod("more", "small")])
    kbatch.wait("small pods go on", lambda: len(members(kbatch, "small")) == 4, PATIENCE)
    assert not members(kbatch, "alone")
    kbatch.run("delete", "pod", "small-0", "small-1", "more", "--wait=false", "--grace-period=0")
    kill()
    alone = running(kbatch, "alone", 2)
    nodes = {one["spec"]["nodeName"] for one in alone.values()}
    assert not nodes & {one["spec"]["nodeName"] for one in members(kbatch, "small").values()}


FLOWS: Final = (lost_with_0, lost_without, elastic, objects, cancelled, exclusive)


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.__name__)
@pytest.mark.parametrize("process", PROCESSES)
def test_each_process_killed_in_the_middle_of_each_flow(
    kbatch: Installed, process: str, flow: Callable[[Installed, Callable[[], int]], None]
) -> None:
    killed: list[int] = []

    def kill() -> int:
        if killed:
            restarted(kbatch, process, killed[-1])
        killed.append(kbatch.kill(process))
        return killed[-1]

    flow(kbatch, kill)
    assert killed
    restarted(kbatch, process, killed[-1])


def test_how_many_groups_a_queue_lost_is_not_forgotten_when_the_scheduler_dies(kbatch: Installed) -> None:
    limited = queue("bulk")
    limited["spec"]["evictionsPerHour"] = 1
    kbatch.apply(limited, queue("owed"))
    for at in range(3):
        kbatch.create_all(gang(f"whole-{at}", 2, cpu="16", queue="bulk", disruption="Whole"))
        running(kbatch, f"whole-{at}", 2)
    kbatch.create_all(gang("first", 2, cpu="8", queue="owed"))
    running(kbatch, "first", 2)
    assert len(kbatch.get("queue", "bulk")["status"]["evicted"]) == 1

    def standing() -> set[str]:
        return {uid for at in range(3) for uid in members(kbatch, f"whole-{at}")}

    kept = standing()
    assert len(kept) == 4
    restarted(kbatch, "scheduler", kbatch.kill("scheduler"))
    # More than what the first left of the node that was cleared: another one would have to go.
    kbatch.create_all(gang("second", 2, cpu="16", queue="owed"))
    kbatch.wait("the new process has tried it", lambda: bool(kbatch.condition("second", "Scheduled")), PATIENCE)
    assert kbatch.condition("second", "Scheduled")["reason"] == "NotEnoughResources"
    assert standing() == kept, "one an hour"
    assert not members(kbatch, "second")

    limited["spec"]["evictionsPerHour"] = 2
    kbatch.apply(limited)
    running(kbatch, "second", 2)
    assert len(kbatch.get("queue", "bulk")["status"]["evicted"]) == 2
