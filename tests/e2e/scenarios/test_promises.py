"""What a group in queue was promised of a quota before its pods exist: the group first, its Job after."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kbatch.localcluster.cluster import Cluster
from kbatch.localcluster.programs import ensure_programs
from kbatch.localcluster.release import Release
from tests.e2e.scenarios.life import completed, job, role, roles, watched
from tests.e2e.scenarios.manifests import group, pod

if TYPE_CHECKING:
    from tests.e2e.scenarios.conftest import Installed

GROUPS = "/apis/scheduling.incubator.k8s.io/v1alpha1/namespaces/default/podgroups"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
GANG = 10
ROOT = Path(__file__).parents[3]
PLACES = 20


def quota(**hard: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "places", "namespace": "default"},
        "spec": {"hard": hard},
    }


def refusals(kbatch: Installed) -> list[str]:
    """What was said of pods that were refused because the quota, or what is promised of it, is used up."""
    said = [one["message"] for one in kbatch.items("events") if one["reason"] == "FailedCreate"]
    return [one for one in said if "exceeded quota" in one or "promised" in one]


def in_turns(kbatch: Installed, jobs: int, seconds: float, kills: tuple[str, ...] = (), *, run: str = "4") -> None:
    """So many gangs, each made before its Job and without minResources, in a quota that holds two of them."""
    names = [f"turn-{number:02}" for number in range(jobs)]
    kbatch.apply(quota(**{"requests.cpu": str(PLACES)}))
    try:
        with watched(kbatch) as history, kbatch.api() as api:
            for name in names:
                api.post_all(GROUPS, [group(name, GANG)])
                api.post_all(JOBS, [job(name, GANG, "1", group=name, seconds=run)])
            for number, process in enumerate(kills, start=1):
                done = number * jobs // (len(kills) + 1)
                kbatch.wait("some are done", lambda done=done: history.groups("Completed") >= done, seconds)  # type: ignore[misc]
                kbatch.kill(process)
            kbatch.wait("all complete", lambda: len(completed(kbatch)) == jobs, seconds)
            assert history.most_promised(GANG) <= PLACES // GANG
            assert history.most_alive() == PLACES, "all places are used, and no more"
        assert refusals(kbatch) == []
    finally:
        kbatch.run("delete", "resourcequota", "places")


def test_gangs_made_before_their_jobs_come_in_turns_within_a_quota(kbatch: Installed) -> None:
    in_turns(kbatch, 4, 30, run="1")


@pytest.mark.long
def test_twelve_gangs_made_before_their_jobs_are_done_in_75_seconds(kbatch: Installed) -> None:
    in_turns(kbatch, 12, 75)


@pytest.mark.long
def test_twelve_gangs_made_before_their_jobs_while_each_process_is_killed_once(kbatch: Installed) -> None:
    kills = ("scheduler", "podgroup", "webhook", "queue")
    in_turns(kbatch, 12, 75 + 20 * len(kills), kills)


@pytest.mark.long
def test_a_group_that_comes_to_life_again_waits_for_its_turn_like_any_other(kbatch: Installed) -> None:
    """Its first Job is done and gone; what it was promised then belongs to others now."""
    kbatch.apply(quota(**{"requests.cpu": str(PLACES)}))
    try:
        kbatch.apply(group("again", GANG), job("first", GANG, "1", group="again", seconds="1"))
        kbatch.wait_phase("again", "Completed")
        kbatch.run("delete", "job", "first", "--wait=false")
        kbatch.wait("its pods are gone", lambda: not kbatch.items("pods"))
        kbatch.apply(group("other", 15), job("other", 15, "1", group="other"))
        kbatch.wait_phase("other", "Running")
        with watched(kbatch) as history:
            kbatch.apply(job("second", GANG, "1", group="again", seconds="1"))
            kbatch.wait_condition("again", "Enqueued", "False", "QuotaExceeded")
            kbatch.wait_phase("again", "Pending")
            assert kbatch.get("job", "second")["spec"]["suspend"] is True
            kbatch.run("delete", "job", "other", "--wait=false")
            kbatch.wait("it is done", lambda: completed(kbatch) == ["second"])
            assert [one for one in history.early() if one.startswith("second")] == []
        assert refusals(kbatch) == []
        kbatch.wait_phase("again", "Completed")
    finally:
        kbatch.run("delete", "resourcequota", "places")


def failing(name: str, of: str) -> dict[str, Any]:
    """A pod of a group whose controller is no Job."""
    found = pod(name, of)
    owner = {"apiVersion": "example.org/v1", "kind": "Training", "name": "t", "uid": "9d8e", "controller": True}
    found["metadata"]["ownerReferences"] = [owner]
    return found


@pytest.mark.long  # the group is let in again after ten seconds
def test_members_that_are_forbidden_stall_their_group_which_gives_its_place_back_in_time(kbatch: Installed) -> None:
    enforce = "pod-security.kubernetes.io/enforce"
    kbatch.run("label", "namespace", "default", f"{enforce}=restricted", "--overwrite")
    try:
        kbatch.apply(roles("strict", role("w", 100, "100m"), scheduleTimeoutSeconds=3))
        stalled = kbatch.wait_condition("strict", "Stalled", "True", "PodRefused")
        assert "violates PodSecurity" in stalled["message"]
        kbatch.wait_phase("strict", "Pending")
        assert kbatch.get("podgroup", "strict")["status"]["schedulingAttempts"] == 1
        assert kbatch.condition("strict", "Enqueued")["status"] == "False"
        assert kbatch.condition("strict", "Stalled")["status"] == "True", "it still says why"
    finally:
        kbatch.run("label", "namespace", "default", f"{enforce}-")
    kbatch.wait_phase("strict", "Running")
    kbatch.wait_condition("strict", "Stalled", "False")


@pytest.mark.long
def test_a_group_whose_controller_is_no_job_fails_when_nothing_comes_any_more(kbatch: Installed) -> None:
    cluster = Cluster(kbatch.name)
    release = Release(cluster.kubeconfig, cluster.host_folder, ensure_programs(print))
    release.install(["--set", "podgroup.extraArgs={--give-up-after=3s}"])
    release.wait_ready()
    kbatch.apply(group("training", 2))
    kbatch.create_all([failing(f"training-{number}", "training") for number in range(2)])
    kbatch.wait_phase("training", "Running")
    for number in range(2):
        ended = '{"status":{"phase":"Failed"}}'
        kbatch.run("patch", "pod", f"training-{number}", "--subresource=status", "--type=merge", "-p", ended)
    kbatch.run("wait", "podgroup/training", "--for=condition=Failed", "--timeout=30s")
    kbatch.create_all([failing(f"training-{number}", "training") for number in (2, 3)])
    kbatch.wait_phase("training", "Running")


@pytest.mark.long
def test_a_member_that_succeeded_is_not_run_again_though_its_pod_is_deleted(kbatch: Installed) -> None:
    """While the operator stands still: nobody has written yet that it ended well."""

    def member(name: str) -> dict[str, Any]:
        found: dict[str, Any] = next((one for one in kbatch.items("pods") if one["metadata"]["name"] == name), {})
        return found

    def phase(name: str) -> str:
        return str(member(name).get("status", {}).get("phase", ""))

    with watched(kbatch) as history:
        kbatch.apply(roles("train", role("w", 3, "1", seconds="{{ 4 if index == 0 else 7 }}")))
        kbatch.wait("it runs", lambda: phase("train-w-0") == "Running")
        pid = kbatch.kill("podgroup", signal.SIGSTOP)
        try:
            kbatch.wait("one has ended", lambda: phase("train-w-0") == "Succeeded")
            kbatch.run("delete", "pod", "train-w-0", "--wait=false", "--grace-period=0", "--force")
            assert member("train-w-0")["metadata"]["finalizers"] == ["kbatch.dev/finished"]
        finally:
            os.kill(pid, signal.SIGCONT)
        kbatch.wait("the pod goes", lambda: not member("train-w-0"))
        (kept,) = kbatch.get("podgroup", "train")["status"]["finished"]
        assert kept["indexes"].startswith("0")
        kbatch.wait_phase("train", "Completed")
        assert kbatch.get("podgroup", "train")["status"]["succeeded"] == 3
        made = {obj["metadata"]["uid"] for kind, _, obj in history.all() if kind == "Pod"}
    assert len(made) == 3
    kbatch.wait("finalizers are taken off", lambda: not any(map(finalizers, kbatch.items("pods"))))


def finalizers(pod: dict[str, Any]) -> list[str]:
    found: list[str] = pod["metadata"].get("finalizers", [])
    return found


@pytest.mark.long  # the operator is away, and what the page says is done by hand
def test_the_finalizers_are_taken_off_as_the_page_on_installation_says(kbatch: Installed, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "install.md").read_text()
    lines = page[page.index("    kubectl get pods --all-namespaces --selector kbatch.dev/sub-group") :]
    commands = lines[: lines.index("\n    done") + len("\n    done")]
    kbatch.apply(roles("left", role("w", 2, "1")))
    kbatch.wait_phase("left", "Running")
    assert all(map(finalizers, kbatch.items("pods")))
    pid = kbatch.kill("podgroup", signal.SIGSTOP)
    try:
        environment = {
            "PATH": f"{kbatch.kubectl.parent}:{os.environ['PATH']}",
            "KUBECONFIG": str(kbatch.kubeconfig),
            "HOME": str(tmp_path),  # kubectl keeps a cache there, or where it is started
        }
        subprocess.run(["bash", "-euc", commands], env=environment, check=True, timeout=60)
        assert not any(map(finalizers, kbatch.items("pods")))
        kbatch.run("delete", "pods", "--all", "--timeout=20s")
    finally:
        os.kill(pid, signal.SIGKILL)


def test_a_group_that_has_ended_is_deleted_in_time_and_no_other(kbatch: Installed) -> None:
    after = {"ttlSecondsAfterFinished": 1}
    kbatch.apply(
        roles("short", role("w", 2, "1", seconds="1"), **after),
        roles("kept", role("w", 1, "1", seconds="1")),
        roles("runs", role("w", 1, "1"), **after),
    )
    kbatch.wait_phase("kept", "Completed")

    def left() -> list[str]:
        return [one["metadata"]["name"] for one in kbatch.items("podgroups")]

    kbatch.wait("the one is deleted", lambda: left() == ["kept", "runs"])
    kbatch.wait(
        "its pods go too", lambda: [one["metadata"]["name"] for one in kbatch.items("pods")] == ["kept-w-0", "runs-w-0"]
    )
