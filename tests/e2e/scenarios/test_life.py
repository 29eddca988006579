"""The life of a group: it waits without pods, is let in when there is room, runs, ends; and what a person is told."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from kbatch.localcluster.cluster import Cluster
from kbatch.localcluster.programs import ensure_programs
from kbatch.localcluster.release import Release
from tests.e2e.scenarios.life import completed, job, reasons, role, roles, watched
from tests.e2e.scenarios.manifests import SEED_EXAMPLE, gang, group, pod, queue

if TYPE_CHECKING:
    from tests.e2e.scenarios.conftest import Installed

OWN_CLUSTER = True


BLOCKERS = ["blocker-0", "blocker-1", "blocker-2"]
NOT_WORK = {"leases", "nodes", "tokenreviews", "subjectaccessreviews", "serviceaccounts", "endpointslices"}
"""Written while nothing happens, by whoever shows that he lives, and where rights are asked for."""


@pytest.fixture(autouse=True)
def three_nodes(kbatch: Installed) -> None:
    """96 cores on three nodes."""
    kbatch.ensure_nodes(3)


@pytest.fixture
def full(kbatch: Installed) -> str:
    """All of the cluster is taken by a gang of this name."""
    kbatch.create_all(gang("blocker", 3, cpu="32"))
    kbatch.wait_phase("blocker", "Running")
    return "blocker"


def free(kbatch: Installed, name: str, pods: list[str]) -> None:
    """Take a gang away."""
    kbatch.run("delete", "pods", *pods, "--wait=false", "--grace-period=0")
    kbatch.run("delete", "podgroup", name, "--wait=false")


def test_there_are_no_pods_while_a_group_waits_and_all_of_them_afterwards(kbatch: Installed, full: str) -> None:
    """The seed's example (a Job that names its group), a Job of a queue, and roles with templates."""
    groups = {"qj-1": 6, "queued": 2, "made": 3}

    def running() -> dict[str, int]:
        return {name: kbatch.get("podgroup", name)["status"].get("running", 0) for name in groups}

    with watched(kbatch) as history:
        kbatch.run("apply", "-f", "-", stdin=SEED_EXAMPLE)
        kbatch.apply(job("queued", 2, "4"), roles("made", role("w", 3, "4")))
        for name in groups:
            kbatch.wait_condition(name, "Enqueued", "False")
            kbatch.wait_phase(name, "Pending")
        assert {one["spec"]["suspend"] for one in kbatch.items("jobs")} == {True}
        assert {one["metadata"]["name"] for one in kbatch.items("pods")} == set(BLOCKERS)
        free(kbatch, full, BLOCKERS)
        kbatch.wait("all of them run", lambda: running() == groups)
        assert not [one for one in history.early() if not one.startswith(full)]
        phases = {name: history.phases(name) for name in groups}
    assert phases == {name: ["Pending", "InQueue", "Running"] for name in groups}
    kbatch.wait("it is told", lambda: {"Enqueued", "Scheduled"} <= set(reasons(kbatch, "PodGroup", "qj-1")))
    assert "Released" in reasons(kbatch, "Job", "qj-1")
    assert {"WaitingInQueue", "NotEnoughResources"} & set(reasons(kbatch, "Job", "qj-1")), (
        "the owner knows why it waited"
    )


def test_more_jobs_than_room_come_in_turns_and_all_complete(kbatch: Installed) -> None:
    kbatch.wait("nothing is left", lambda: not kbatch.items("pods"))
    with watched(kbatch) as history, kbatch.api() as api:
        api.post_all(
            "/apis/batch/v1/namespaces/default/jobs", [job(f"turn-{n}", 4, "8", seconds="1") for n in range(12)]
        )
        kbatch.wait("all complete", lambda: len(completed(kbatch)) == 12, 90)
        early, most = history.early(), history.most_alive()
    assert early == []
    assert most <= 12, "room for three Jobs of four pods"
    kbatch.wait(
        "all groups have ended", lambda: {one["status"]["phase"] for one in kbatch.items("podgroups")} == {"Completed"}
    )
    groups = kbatch.items("podgroups")
    assert {one["metadata"]["ownerReferences"][0]["kind"] for one in groups} == {"Job"}
    assert {(one["spec"]["minMember"], one["spec"]["minResources"]["cpu"]) for one in groups} == {(4, "32")}


def test_a_job_whose_reservation_ends_loses_its_pods_and_a_failed_member_is_made_again(kbatch: Installed) -> None:
    """Two things that take their time, side by side.

    The cluster has the room that the Job's group asks for, but on no node enough for one of its pods: it times out.
    """
    kbatch.create_all(gang("half", 3, cpu="16"))
    kbatch.wait_phase("half", "Running")
    kbatch.apply(roles("frail", role("w", 1, "1")))
    kbatch.wait("it runs", lambda: kbatch.get("podgroup", "frail").get("status", {}).get("running") == 1)
    before = kbatch.get("pod", "frail-w-0")["metadata"]["uid"]
    kbatch.run("patch", "pod", "frail-w-0", "--subresource=status", "-p", '{"status":{"phase":"Failed"}}')
    with watched(kbatch) as history:
        kbatch.apply(
            group("late", 2, minResources={"cpu": "36"}, scheduleTimeoutSeconds=2), job("late", 2, "18", group="late")
        )
        kbatch.wait("it is let in", lambda: "InQueue" in history.phases("late"))
        kbatch.wait("it is sent back", lambda: history.phases("late")[-1] == "Pending")
        kbatch.wait("its Job is suspended again", lambda: kbatch.get("job", "late")["spec"]["suspend"] is True)
        kbatch.wait("its pods are gone", lambda: len(kbatch.items("pods")) == 4)
        # Once more for each time that it was let in again meanwhile, ten seconds later and then later still.
        assert kbatch.get("podgroup", "late")["status"]["schedulingAttempts"] >= 1
        assert "SentBack" in reasons(kbatch, "PodGroup", "late")
        free(kbatch, "half", pods=["half-0", "half-1", "half-2"])
        kbatch.wait_phase("late", "Running", 60)

    def again() -> bool:
        found = [one for one in kbatch.items("pods") if one["metadata"]["name"] == "frail-w-0"]
        return bool(found) and found[0]["metadata"]["uid"] != before and found[0]["status"]["phase"] == "Running"

    kbatch.wait("another member runs in the failed one's place", again, 40)
    assert kbatch.get("podgroup", "frail")["metadata"]["annotations"]["kbatch.dev/replaced"] == "1"


def test_a_job_that_its_user_suspended_stays_suspended(kbatch: Installed) -> None:
    kbatch.apply(group("mine", 2), job("mine", 2, "1", group="mine", suspend=True))
    kbatch.apply(job("other", 1, "1"))
    kbatch.wait("the other runs", lambda: kbatch.get("job", "other")["spec"]["suspend"] is False)
    assert kbatch.get("job", "mine")["spec"]["suspend"] is True
    assert kbatch.wait_condition("mine", "Enqueued", "False", "JobSuspended")
    kbatch.run("patch", "job", "mine", "-p", '{"spec":{"suspend":false}}')
    kbatch.wait_phase("mine", "Running")

    # One that ran gives its place back too, and gets it again in its turn.
    kbatch.wait_phase("other", "Running")
    kbatch.run("patch", "job", "other", "-p", '{"spec":{"suspend":true}}')
    kbatch.wait_condition("other", "Enqueued", "False", "JobSuspended")
    kbatch.wait_phase("other", "Pending")
    assert kbatch.get("job", "other")["spec"]["suspend"] is True
    kbatch.run("patch", "job", "other", "-p", '{"spec":{"suspend":false}}')
    kbatch.wait_phase("other", "Running")
    kbatch.wait_condition("other", "Enqueued", "True")


def test_roles_with_templates_are_made_mended_and_taken_away(kbatch: Installed) -> None:
    with watched(kbatch) as history:
        kbatch.apply(roles("team", role("ps", 1, "1"), role("worker", 2, "1", most=4, args="{{ index }}/{{ size }}")))
        kbatch.wait_phase("team", "Running")
        kbatch.wait("it has grown", lambda: kbatch.get("podgroup", "team").get("status", {}).get("running") == 5)
        assert history.early() == []
    pods = {one["metadata"]["name"]: one for one in kbatch.items("pods")}
    assert set(pods) == {"team-ps-0", *(f"team-worker-{index}" for index in range(4))}
    assert pods["team-worker-3"]["spec"]["containers"][0]["args"] == ["3/4"]
    counts = {one["name"]: one["running"] for one in kbatch.get("podgroup", "team")["status"]["subGroups"]}
    assert counts == {"ps": 1, "worker": 4}

    before = pods["team-ps-0"]["metadata"]["uid"]
    kbatch.run("delete", "pod", "team-ps-0", "--wait=false", "--grace-period=0")

    def made_again() -> bool:
        found = [one for one in kbatch.items("pods") if one["metadata"]["name"] == "team-ps-0"]
        return bool(found) and found[0]["metadata"]["uid"] != before and found[0]["status"]["phase"] == "Running"

    kbatch.wait("the lost member is there again", made_again)
    kbatch.run("delete", "podgroup", "team", "--wait=false")
    kbatch.wait("its pods go with it", lambda: not kbatch.items("pods"))


def counts(kbatch: Installed, name: str) -> dict[str, int]:
    """How many pods of each role run."""
    found = kbatch.get("podgroup", name).get("status", {}).get("subGroups", [])
    return {one["name"]: one.get("running", 0) for one in found}


def grow_and_give_back(kbatch: Installed) -> None:
    """Twelve pods of 8 cores fill the three nodes; another queue deserves half of them as soon as it asks."""
    kbatch.apply(queue("elastic"), queue("owed"))
    kbatch.apply(roles("team", role("ps", 1, "8"), role("worker", 2, "8", most=11), queue="elastic"))
    kbatch.wait("it has its maximum", lambda: counts(kbatch, "team") == {"ps": 1, "worker": 11}, 60)
    kbatch.apply(job("claim", 6, "8", queue="owed", seconds="5"))
    kbatch.wait_phase("claim", "Running")
    kbatch.wait("it has given back what was claimed", lambda: counts(kbatch, "team") == {"ps": 1, "worker": 5})


def test_an_elastic_group_grows_and_gives_pods_back(kbatch: Installed) -> None:
    grow_and_give_back(kbatch)
    assert "Evicted" in reasons(kbatch, "PodGroup", "team")


@pytest.mark.long  # a role that lost pods rests for a minute before it grows again
def test_an_elastic_group_that_gave_pods_back_grows_again_and_runs_all_the_time(kbatch: Installed) -> None:
    with watched(kbatch) as history:
        grow_and_give_back(kbatch)
        kbatch.wait("the work has ended", lambda: completed(kbatch) == ["claim"], 60)
        kbatch.wait("it has its maximum again", lambda: counts(kbatch, "team") == {"ps": 1, "worker": 11}, 120)
        phases = history.phases("team")
    assert phases[phases.index("Running") :] == ["Running"]


def test_a_template_that_makes_no_pod_stalls_its_group_until_it_is_mended(kbatch: Installed) -> None:
    broken = roles("broken", role("w", 1, "1"))
    container = broken["spec"]["subGroups"][0]["template"]["spec"]["containers"][0]
    container["name"] = "Not_A_Name"
    kbatch.apply(broken)
    stalled = kbatch.wait_condition("broken", "Stalled", "True", "PodRefused")
    assert "Not_A_Name" in stalled["message"]
    assert kbatch.get("podgroup", "broken")["status"]["phase"] == "InQueue"
    container["name"] = "main"
    kbatch.apply(broken)
    kbatch.wait_phase("broken", "Running")
    kbatch.wait_condition("broken", "Stalled", "False")
    assert "PodRefused" in reasons(kbatch, "PodGroup", "broken")


def test_a_quota_is_never_exceeded_and_never_blocks_what_fits(kbatch: Installed) -> None:
    quota: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "half", "namespace": "default"},
        "spec": {"hard": {"requests.cpu": "24"}},
    }
    kbatch.apply(quota)
    try:
        with watched(kbatch) as history, kbatch.api() as api:
            jobs = [job(f"quota-{n}", 2, "4", seconds="1") for n in range(6)]  # 48 cores in all
            api.post_all("/apis/batch/v1/namespaces/default/jobs", jobs)
            kbatch.wait("all complete", lambda: len(completed(kbatch)) == 6, 90)
            early, most = history.early(), history.most_alive()
        assert early == []
        assert most == 6, "three Jobs of two pods fit the quota, and ran at one time"
        refused = [
            one for one in kbatch.items("events") if one["reason"] == "FailedCreate" and "quota" in one["message"]
        ]
        assert refused == []
    finally:
        kbatch.run("delete", "resourcequota", "half")


def test_a_group_whose_quota_others_use_up_goes_back_and_is_let_in_again(kbatch: Installed) -> None:
    """What foreign pods do is not refused in a namespace that does not ask for it; the promise ends in words."""
    quota: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "shared", "namespace": "default"},
        "spec": {"hard": {"requests.cpu": "6"}},
    }
    thief = pod("thief", "", cpu="3")
    thief["metadata"]["annotations"] = {}
    thief["spec"]["schedulerName"] = "somebody-else"
    kbatch.apply(quota)
    try:
        kbatch.apply(group("promised", 4, minResources={"cpu": "4"}))
        kbatch.wait_phase("promised", "InQueue")
        kbatch.apply(thief)
        kbatch.wait_condition("promised", "Enqueued", "False", "QuotaExceeded")
        kbatch.wait_phase("promised", "Pending")
        assert "SentBack" in reasons(kbatch, "PodGroup", "promised")
        kbatch.run("delete", "pod", "thief", "--grace-period=0", "--force", "--wait=false")
        kbatch.wait_phase("promised", "InQueue")
    finally:
        kbatch.run("delete", "resourcequota", "shared")


def test_until_a_new_quota_is_marked_its_promises_end_in_words_and_from_then_on_they_are_kept(
    kbatch: Installed,
) -> None:
    """The API server shows pods to the webhook where the queue operator has labelled their namespace."""
    quota: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "new", "namespace": "default"},
        "spec": {"hard": {"requests.cpu": "6"}},
    }
    thief = pod("thief", "", cpu="3")
    thief["metadata"]["annotations"] = {}
    pid = kbatch.kill("queue", signal.SIGSTOP)
    try:
        kbatch.apply(quota)
        kbatch.apply(group("promised", 4, minResources={"cpu": "4"}))
        kbatch.wait_phase("promised", "InQueue")
        kbatch.apply(thief)
        kbatch.wait_condition("promised", "Enqueued", "False", "QuotaExceeded")
        kbatch.wait_phase("promised", "Pending")
        assert "kbatch.dev/quota" not in kbatch.get("namespace", "default")["metadata"]["labels"]
        os.kill(pid, signal.SIGCONT)
        kbatch.run("delete", "pod", "thief", "--grace-period=0", "--force", "--wait=false")
        kbatch.wait_phase("promised", "InQueue")

        def refused() -> bool:
            answer = kbatch.run("create", "--dry-run=server", "-f", "-", stdin=json.dumps(thief), check=False)
            return not answer

        kbatch.wait("the next is refused", refused)
        assert kbatch.get("namespace", "default")["metadata"]["labels"]["kbatch.dev/quota"] == "true"
    finally:
        with contextlib.suppress(ProcessLookupError):  # it has lost its Lease meanwhile, and was started anew
            os.kill(pid, signal.SIGCONT)
        kbatch.run("delete", "resourcequota", "new")


def test_a_job_of_a_queue_that_is_owed_its_share_is_let_in_and_reclaims(kbatch: Installed) -> None:
    kbatch.apply(queue("greedy"), queue("owed"))
    kbatch.create_all([group("many", 1, queue="greedy"), *(pod(f"many-{n}", "many", "8") for n in range(12))])
    kbatch.wait("the cluster is full", lambda: kbatch.get("podgroup", "many").get("status", {}).get("running") == 12)
    with watched(kbatch) as history:
        kbatch.apply(job("claim", 2, "16", queue="owed"))
        kbatch.wait_phase("claim", "Running")
        early = history.early()
    assert not [one for one in early if one.startswith("claim")]
    assert kbatch.get("podgroup", "many")["status"]["running"] >= 6, "no more than it was owed"
    kbatch.wait("the victims' group is told", lambda: "Evicted" in reasons(kbatch, "PodGroup", "many"))
    kbatch.wait("and the one that gains", lambda: "VictimsEvicted" in reasons(kbatch, "PodGroup", "claim"))


def test_a_quiet_cluster_sees_no_writes(kbatch: Installed, full: str) -> None:
    """From nobody: the API server counts, so all of kbatch's processes are in it."""
    kbatch.apply(job("waits", 2, "4"), roles("waits-too", role("w", 2, "4")))
    kbatch.wait_condition("waits", "Enqueued", "False")
    kbatch.wait_condition("waits-too", "Enqueued", "False")

    def writes() -> dict[str, int]:
        found: dict[str, int] = {}
        for line in kbatch.run("get", "--raw", "/metrics").splitlines():
            match = re.match(r'apiserver_request_total\{.*[,{]resource="(\w+)".*verb="(\w+)".*\} (\d+)', line)
            if match and match[1] not in NOT_WORK and match[2] in {"POST", "PUT", "PATCH", "APPLY", "DELETE"}:
                found[match[1]] = found.get(match[1], 0) + int(match[3])
        return found

    quiet, deadline = writes(), time.monotonic() + 40
    assert quiet["podgroups"] >= 6, "status writes are counted too"
    since = time.monotonic()
    while time.monotonic() - since < 5:  # so long nothing may be written; what was under way may end before
        assert time.monotonic() < deadline, f"it never gets quiet: {quiet}"
        time.sleep(1)
        now = writes()
        if now != quiet:
            quiet, since = now, time.monotonic()


def test_a_queue_reports_counts_state_and_its_share_within_two_seconds(kbatch: Installed) -> None:
    kbatch.apply(queue("left", 1), queue("right", 1))
    kbatch.create_all([one for name in ("left", "right") for one in gang(name, 6, "12", queue=name)])  # 72 of 96 each

    def deserved(name: str) -> str:
        return str(kbatch.get("queue", name).get("status", {}).get("deserved", {}).get("cpu", ""))

    kbatch.wait("each has half", lambda: (deserved("left"), deserved("right")) == ("48", "48"))
    kbatch.run("patch", "queue", "left", "--type=merge", "-p", '{"spec":{"weight":2}}')
    kbatch.wait("left has two thirds", lambda: (deserved("left"), deserved("right")) == ("64", "32"), 2)

    def counters(name: str) -> tuple[int, int]:
        status = kbatch.get("queue", name)["status"]
        return status.get("running", 0), status.get("pending", 0) + status.get("inqueue", 0)

    kbatch.wait("one runs, one waits", lambda: sorted((counters("left"), counters("right"))) == [(0, 1), (1, 0)])

    kbatch.run("patch", "queue", "right", "--type=merge", "-p", '{"spec":{"state":"Closed"}}')
    kbatch.wait("it says so", lambda: kbatch.get("queue", "right")["status"]["state"] == "Closed")
    kbatch.create_all(gang("shut", 1, queue="right"))
    kbatch.wait_condition("shut", "Scheduled", "False", "QueueClosed")
    kbatch.run("patch", "queue", "right", "--type=merge", "-p", '{"spec":{"state":"Open"}}')
    kbatch.wait_phase("shut", "Running")


def test_pods_that_the_chart_has_gated_are_let_go_in_queue_and_not_before(kbatch: Installed, full: str) -> None:
    """The last test of this module: the chart stays as it is upgraded here."""
    cluster = Cluster(kbatch.name)
    release = Release(cluster.kubeconfig, cluster.host_folder, ensure_programs(print))
    release.install(["--set", "webhook.gatePods=true"])
    release.wait_ready()
    kbatch.apply(group("gated", 2))
    kbatch.wait_condition("gated", "Enqueued", "False")

    def gates(answer: str) -> list[str]:
        return [gate["name"] for gate in json.loads(answer)["spec"].get("schedulingGates", [])]

    def asked() -> bool:
        trial = json.dumps(pod("trial", "gated"))
        answer = kbatch.run("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=trial)
        return gates(answer) == ["kbatch.dev/in-queue"]

    kbatch.wait("the API server asks the webhook about pods", asked)
    kbatch.create_all([pod(f"gated-{index}", "gated") for index in range(2)])
    for index in range(2):
        assert gates(kbatch.run("get", "pod", f"gated-{index}", "-o", "json")) == ["kbatch.dev/in-queue"]
    free(kbatch, full, BLOCKERS)
    kbatch.wait_phase("gated", "Running")
    assert [gates(kbatch.run("get", "pod", f"gated-{index}", "-o", "json")) for index in range(2)] == [[], []]
