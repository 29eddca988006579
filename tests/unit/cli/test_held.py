"""What commands say of Jobs that kbatch holds, and of a scheduler that is gone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kbatch.cli.held import plain
from tests.unit.cli.test_live import FORBIDDEN, ROOT, a_list, ask, server

if TYPE_CHECKING:
    from http.server import ThreadingHTTPServer

__all__ = ["ask", "server"]

JOBS = "/apis/batch/v1"
LEASES = "/apis/coordination.k8s.io/v1"


def job(name: str, *, group: str = "", queue: str | None = None, mark: str = "true", **spec: Any) -> dict[str, Any]:
    annotations = {"scheduling.k8s.io/group-name": group} if group else {}
    return {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"uid-{name}",
            "resourceVersion": "7",
            "labels": {"app": "x"} if queue is None else {"kbatch.dev/queue": queue, "app": "x"},
            "annotations": {"kbatch.dev/suspended": mark} if mark else {},
        },
        "spec": {
            "suspend": bool(mark),
            "parallelism": 4,
            "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}},
            "template": {
                "metadata": {"annotations": annotations, "labels": {"job-name": name, "app": "x"}},
                "spec": {"schedulerName": "kube-batch", "containers": []},
            },
            **spec,
        },
        "status": {"ready": 0},
    }


def put(server: ThreadingHTTPServer, *jobs: dict[str, Any]) -> dict[str, dict[str, Any]]:
    answers: dict[str, dict[str, Any]] = server.answers  # type: ignore[attr-defined]
    answers[f"{JOBS}/jobs"] = a_list(list(jobs))
    answers |= {f"{JOBS}/namespaces/team/jobs/{one['metadata']['name']}": one for one in jobs}
    return answers


def test_groups_lists_jobs_that_are_held_without_a_group(server: ThreadingHTTPServer, ask: Any) -> None:
    mine, over = job("mine", group="nowhere", mark=""), job("over", group="nowhere")
    over["status"]["conditions"] = [{"type": "Failed", "status": "True"}]
    put(
        server,
        job("of-big", group="big"),
        job("lost", group="nowhere"),
        job("asks", queue="research"),
        job("empty", queue=""),
        mine,
        over,
    )
    rows = {row["name"]: row for row in json.loads(ask("groups", "-o", "json").stdout) if row["kind"] == "Job"}
    assert {name: (row["queue"], row["minMember"], row["reason"]) for name, row in rows.items()} == {
        "lost": ("", 4, "PodGroupNotFound"),
        "asks": ("research", 4, "NoPodGroup"),
        "empty": ("", 4, "NoPodGroup"),
    }
    assert "PodGroup team/nowhere does not exist" in rows["lost"]["message"]
    assert any(line.split()[:2] == ["team", "job/lost"] for line in ask("groups", "--waiting").stdout.splitlines())


def test_explain_a_job_by_its_events(server: ThreadingHTTPServer, ask: Any) -> None:
    answers = put(server, job("asks", queue="research"))
    path = "/api/v1/namespaces/team/events"
    about = {"kind": "Job", "name": "asks", "uid": "uid-asks"}
    told = [
        {"reason": "PodGroupRefused", "message": "now", "involvedObject": about, "eventTime": "2026-01-01T00:00:09Z"},
        {"reason": "PodGroupRefused", "message": "old", "involvedObject": about, "eventTime": "2026-01-01T00:00:01Z"},
        {"reason": "PodGroupRefused", "message": "another's", "involvedObject": {**about, "uid": "x"}},
        {"reason": "Suspended", "message": "Job suspended", "involvedObject": about},
    ]
    answers[path] = {"items": told}
    shown = ask("explain", "team/asks").stdout
    assert shown.splitlines() == [
        "Job team/asks: it waits without pods, and no PodGroup stands for it",
        "  reason   PodGroupRefused",
        "           now",
    ]
    answers[path] = FORBIDDEN
    assert "no PodGroup could be made for it yet" in ask("explain", "team/asks").stdout


def test_explain_says_why_a_job_has_no_pods(server: ThreadingHTTPServer, ask: Any) -> None:
    """The API server has refused them: that stands on the Job alone."""
    jobs = [job(name, group=group, mark="false", suspend=False) for name, group in (("maker", "big"), ("a", "small"))]
    answers = put(server, *jobs)
    answers[f"{JOBS}/namespaces/team/jobs"] = a_list(jobs)
    lacking = {"type": "Scheduled", "status": "False", "reason": "NotEnoughTasks", "message": "0 of 3 pods exist"}
    path = "/apis/scheduling.incubator.k8s.io/v1alpha1/namespaces/team/podgroups/big"
    answers[path] = {**answers[path], "status": {"phase": "InQueue", "conditions": [lacking]}}
    answers["/api/v1/namespaces/team/pods"] = a_list([])
    about = {"kind": "Job", "name": "maker", "uid": "uid-maker"}
    refused = {"reason": "FailedCreate", "message": "exceeded quota: q", "involvedObject": about}
    made = {"reason": "SuccessfulCreate", "message": "Created pod: p", "involvedObject": about}

    def said(*events: tuple[dict[str, Any], str]) -> list[str]:
        found = [{**event, "lastTimestamp": f"2026-01-01T00:00:{seconds}Z"} for event, seconds in events]
        answers["/api/v1/namespaces/team/events"] = {"items": found}
        shown: list[str] = json.loads(ask("explain", "team/big", "-o", "json").stdout)["refusedPods"]
        return shown

    line = "Job maker could not create pods: exceeded quota: q"
    assert said((made, "01"), (refused, "09")) == [line]
    assert f"           {line}" in ask("explain", "team/big").stdout.splitlines()
    assert said((refused, "01"), (made, "09")) == []
    assert said() == []


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (job("j", group="big"), "PodGroup team/big: it waits (InQueue)"),
        (job("j", group="nowhere", mark=""), "its pods name PodGroup nowhere, which does not exist"),
        (job("j", group="j", queue="research", parallelism=0), "no PodGroup is made for it: its parallelism is 0"),
        (job("j", group="j", queue="research", completions=0), "no PodGroup is made for it: its completions are 0"),
        (
            job("j", group="j", queue="research", mark="", suspend=True),
            "Job team/j: its user has suspended it; its PodGroup is made once its user resumes it",
        ),
        (
            job("j", group="nowhere", mark="false", suspend=True),
            "its user has suspended it; its pods name PodGroup nowhere, which does not exist",
        ),
        (job("j", mark=""), "its pods name no PodGroup (annotation scheduling.k8s.io/group-name)"),
        (
            job("j", queue="research", mark="", template={"metadata": {}, "spec": {"schedulerName": "kubebatch"}}),
            "its pods are for another scheduler, kubebatch (schedulerName of its template); kbatch's is kube-batch",
        ),
    ],
)
def test_explain_a_job(server: ThreadingHTTPServer, ask: Any, one: dict[str, Any], said: str) -> None:
    put(server, one)
    assert said in ask("explain", "team/j").stdout


def test_explain_says_when_the_scheduler_is_gone(server: ThreadingHTTPServer, ask: Any) -> None:
    answers: dict[str, Any] = server.answers  # type: ignore[attr-defined]
    line = (
        "  leader   kbatch's scheduler was last seen at 2026-01-01T00:00:00.000000Z: nothing starts until it runs again"
    )
    stale = {"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}
    answers[f"{LEASES}/leases"] = {"items": [stale]}
    assert line in ask("explain", "team/big").stdout.splitlines()
    answers[f"{LEASES}/leases"] = {"items": [stale, {"spec": {"renewTime": "2999-01-01T00:00:00.000000Z"}}]}
    assert "last seen" not in ask("explain", "team/big").stdout
    answers[f"{LEASES}/leases"] = FORBIDDEN
    answers[f"{LEASES}/namespaces/kbatch-system/leases/kbatch-scheduler"] = stale
    assert line in ask("explain", "team/big").stdout.splitlines()
    answers[f"{LEASES}/namespaces/kbatch-system/leases/kbatch-scheduler"] = FORBIDDEN
    assert "last seen" not in ask("explain", "team/big").stdout


def test_held_jobs_and_their_manifests_without_kbatch(server: ThreadingHTTPServer, ask: Any) -> None:
    put(server, job("asks", queue="research"), job("of-big", group="big"), job("runs", group="big", mark="false"))
    assert ask("held-jobs").stdout.splitlines() == ["team/asks", "team/of-big"]
    assert json.loads(ask("held-jobs", "-o", "json").stdout)[1] == {
        "namespace": "team",
        "name": "of-big",
        "podGroup": "team/big",
    }
    listed = json.loads(ask("held-jobs", "--plain").stdout)
    assert (listed["kind"], [one["metadata"]["name"] for one in listed["items"]]) == ("List", ["asks", "of-big"])


def test_a_plain_job_names_nothing_of_kbatch() -> None:
    assert plain(job("asks", queue="research", group="asks")) == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "asks", "namespace": "team", "labels": {"app": "x"}},
        "spec": {
            "parallelism": 4,
            "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": []}},
        },
    }
    chosen = plain(job("mine", group="g", manualSelector=True))
    assert chosen["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}


@pytest.mark.parametrize(("command", "path"), [("groups", f"{ROOT}/podgroups"), ("held-jobs", f"{JOBS}/jobs")])
def test_whoever_may_see_one_namespace_only_is_told_how(
    server: ThreadingHTTPServer, ask: Any, command: str, path: str
) -> None:
    server.answers[path] = FORBIDDEN  # type: ignore[attr-defined]
    assert ask(command).stderr.endswith("; look at one namespace with -n NAMESPACE\n")


def test_plain_leaves_out_jobs_that_are_gone_or_resumed_meanwhile(server: ThreadingHTTPServer, ask: Any) -> None:
    answers = put(server, *(job(name, queue="research") for name in ("waits", "gone", "resumed")))
    del answers[f"{JOBS}/namespaces/team/jobs/gone"]
    answers[f"{JOBS}/namespaces/team/jobs/resumed"] = job("resumed", queue="research", mark="false", suspend=False)
    result = ask("held-jobs", "--plain")
    assert (result.exit_code, [each["metadata"]["name"] for each in json.loads(result.stdout)["items"]]) == (
        0,
        ["waits"],
    )


def test_a_held_job_whose_name_another_group_has_is_shown_as_one(server: ThreadingHTTPServer, ask: Any) -> None:
    held = job("big", group="big", queue="research")
    held["metadata"]["annotations"]["kbatch.dev/own-group"] = "true"
    put(server, held)
    rows = json.loads(ask("groups", "-o", "json").stdout)
    assert [(row["kind"], row["reason"]) for row in rows if row["kind"] == "Job"] == [("Job", "PodGroupNameTaken")]
    shown = ask("explain", "team/big").stdout.splitlines()
    assert shown[:2] == ["Job team/big: it waits without pods", "  reason   PodGroupNameTaken"]
    assert shown[2].endswith(": delete that PodGroup, or create the Job under another name")
