"""What a group in queue was promised of a quota before its pods exist: the group first, its Job after."""

from __future__ import annotations

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
PLACES = 20


def quota(**hard: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "places", "namespace": "default"},
        "spec": {"hard": hard},
    }


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
        refused = [one for one in kbatch.items("events") if one["reason"] == "FailedCreate"]
        assert refused == []
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
