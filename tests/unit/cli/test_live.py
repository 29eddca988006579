"""Commands that ask a cluster, against a small server that answers as an API server does."""

from __future__ import annotations

import contextlib
import copy
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from kbatch.cli.main import app

GROUP = "scheduling.incubator.k8s.io/v1alpha1"
ROOT = f"/apis/{GROUP}"
WAITING: dict[str, Any] = {
    "metadata": {"name": "big", "namespace": "team", "creationTimestamp": "2026-01-01T00:00:00Z"},
    "spec": {
        "minMember": 3,
        "queue": "research",
        "subGroups": [{"name": "worker", "minMember": 2}, {"name": "extra", "maxMember": 4}],
    },
    "status": {
        "phase": "InQueue",
        "pending": 2,
        "running": 1,
        "conditions": [
            {
                "type": "Scheduled",
                "status": "False",
                "reason": "NotEnoughResources",
                "message": "1 of 3 pods can be placed; short of 2 cpu",
                "lastTransitionTime": "2026-01-01T00:00:05Z",
            }
        ],
    },
}
RUNNING: dict[str, Any] = {
    "metadata": {"name": "small", "namespace": "default"},
    "spec": {"minMember": 1},
    "status": {
        "phase": "Running",
        "running": 1,
        "conditions": [{"type": "Scheduled", "status": "True", "reason": "GangPlaced"}],
    },
}
UNSEEN: dict[str, Any] = {
    "metadata": {"name": "new", "namespace": "team"},
    "spec": {"minMember": 1, "queue": "missing"},
}
QUEUE: dict[str, Any] = {
    "metadata": {"name": "research"},
    "spec": {
        "weight": 2,
        "capability": {"cpu": "8"},
        "placement": "Pack",
        "evictionsPerHour": 3,
        "namespaceSelector": {"matchLabels": {"team": "a"}},
    },
    "status": {
        "state": "Open",
        "deserved": {"cpu": "4"},
        "allocated": {"cpu": "2", "memory": "1Gi"},
        "requested": {"cpu": "6"},
        "share": "0.5",
        "pending": 1,
        "conditions": [{"type": "OverCapability", "status": "True", "reason": "r", "message": "holds 9 cpu"}],
    },
}


def pod(name: str, *, node: str = "", role: str = "", group: str = "big", **more: Any) -> dict[str, Any]:
    annotations = {"scheduling.k8s.io/group-name": group} if group else {}
    labels = {"kbatch.dev/sub-group": role} if role else {}
    return {
        "metadata": {"name": name, "namespace": "team", "annotations": annotations, "labels": labels},
        "spec": {"schedulerName": "kube-batch", "nodeName": node, **more},
        "status": {"phase": "Running" if node else "Pending"},
    }


ALONE = pod("alone", group="")
ALONE["status"]["conditions"] = [
    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes fit"}
]
PODS: list[dict[str, Any]] = [
    pod("big-0", node="n1", role="worker"),
    pod("big-1", role="worker", schedulingGates=[{"name": "kbatch.dev/in-queue"}]),
    pod("big-2"),
    ALONE,
    pod("lost", group="nobody"),
    pod("fresh", group=""),
]


NODE: dict[str, Any] = {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "1"}}}
FORBIDDEN: dict[str, Any] = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "not for you"}


def installed(name: str, actions: str = "allocate") -> dict[str, Any]:
    """A ConfigMap such as the chart makes for the scheduler."""
    text = f"actions: {actions}\ntiers:\n- plugins:\n  - name: gang\n"
    return {"metadata": {"name": name, "namespace": "kbatch-system"}, "data": {"scheduler.yaml": text}}


def a_list(items: list[dict[str, Any]]) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": "1"}, "items": items}


ANSWERS: dict[str, dict[str, Any]] = {
    f"{ROOT}/podgroups": a_list([WAITING, RUNNING, UNSEEN]),
    f"{ROOT}/namespaces/default/podgroups": a_list([RUNNING]),
    f"{ROOT}/queues": a_list([QUEUE, {"metadata": {"name": "default"}}]),
    f"{ROOT}/queues/research": QUEUE,
    "/api/v1/namespaces/team/pods": a_list(PODS),
    **{f"{ROOT}/namespaces/team/podgroups/{each['metadata']['name']}": each for each in (WAITING, UNSEEN)},
    **{f"/api/v1/namespaces/team/pods/{each['metadata']['name']}": each for each in PODS},
}


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        answers: dict[str, dict[str, Any]] = self.server.answers  # type: ignore[attr-defined]
        nothing = {"kind": "Status", "code": 404, "reason": "NotFound", "message": "not found"}
        found = answers.get(urlsplit(self.path).path, nothing)
        body = json.dumps(found).encode()
        self.send_response(found.get("code", 200))
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ThreadingHTTPServer]:
    made = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    made.answers = dict(ANSWERS)  # type: ignore[attr-defined]
    with serving(made, tmp_path):
        yield made


@contextlib.contextmanager
def serving(made: ThreadingHTTPServer, folder: Path) -> Iterator[None]:
    """Let a server answer; `folder` gets a kubeconfig that leads to it."""
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    kubeconfig(folder, made.server_address[1])
    try:
        yield
    finally:
        made.shutdown()
        thread.join()
        made.server_close()


def kubeconfig(folder: Path, port: int) -> None:
    (folder / "kubeconfig").write_text(
        json.dumps(
            {
                "current-context": "here",
                "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
                "clusters": [{"name": "here", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
                "users": [{"name": "me", "user": {}}],
            }
        )
    )


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return lambda *arguments: CliRunner().invoke(app, [*arguments, "--kubeconfig", str(tmp_path / "kubeconfig")])


@pytest.mark.usefixtures("server")
def test_groups(ask: Any) -> None:
    rows = json.loads(ask("groups", "-o", "json").stdout)
    assert [(row["namespace"], row["name"], row["phase"], row["scheduled"]) for row in rows] == [
        ("default", "small", "Running", True),
        ("team", "big", "InQueue", False),
        ("team", "new", "Pending", None),
    ]
    assert (rows[1]["reason"], rows[1]["minMember"], rows[1]["pending"]) == ("NotEnoughResources", 3, 2)
    assert [row["name"] for row in json.loads(ask("groups", "--waiting", "-o", "json").stdout)] == ["big", "new"]
    assert [row["name"] for row in json.loads(ask("groups", "-n", "default", "-o", "json").stdout)] == ["small"]
    shown = ask("groups").stdout.splitlines()
    assert shown[0].split() == ["Namespace", "Name", "Queue", "Phase", "Min", "Running", "Pending", "Reason", "Message"]
    assert shown[2].split()[:8] == ["team", "big", "research", "InQueue", "3", "1", "2", "NotEnoughResources"]


def test_groups_names_jobs_that_went_past_their_queue(server: ThreadingHTTPServer, ask: Any) -> None:
    missed: dict[str, Any] = {
        "metadata": {"name": "night", "namespace": "team", "labels": {"kbatch.dev/queue": "research"}},
        "spec": {"template": {"spec": {"schedulerName": "default-scheduler"}}},
    }
    held = {**missed, "spec": {**missed["spec"], "suspend": True}, "metadata": {**missed["metadata"], "name": "mine"}}
    server.answers["/apis/batch/v1/jobs"] = a_list([missed, held])  # type: ignore[attr-defined]
    last = ask("groups").stdout.splitlines()[-1]
    assert last == "Outside of the queue that they name, on the default scheduler: Jobs team/night"
    assert len(json.loads(ask("groups", "-o", "json").stdout)) == 3
    server.answers["/apis/batch/v1/jobs"] = FORBIDDEN  # type: ignore[attr-defined]
    assert "Outside" not in ask("groups").stdout


@pytest.mark.usefixtures("server")
def test_queues(ask: Any) -> None:
    rows = json.loads(ask("queues", "-o", "json").stdout)
    assert [row["name"] for row in rows] == ["default", "research"]
    assert (rows[1]["weight"], rows[1]["deserved"], rows[1]["share"], rows[1]["pending"]) == (2, {"cpu": "4"}, "0.5", 1)
    limits = ("capability", "placement", "evictionsPerHour", "namespaceSelector")
    assert [rows[1][name] for name in limits] == [{"cpu": "8"}, "Pack", 3, {"matchLabels": {"team": "a"}}]
    assert [rows[0][name] for name in limits] == [None] * 4
    assert (rows[0]["overCapability"], rows[1]["overCapability"]) == (None, "holds 9 cpu")
    shown = ask("queues").stdout
    assert all(text in shown for text in ("Capability", "cpu=8", "(exceeded)", "cpu=2 memory=1Gi"))


def test_queues_with_flow(ask: Any, server: ThreadingHTTPServer) -> None:
    answers = server.answers  # type: ignore[attr-defined]
    used = {"value": 8, "unlimitedValue": 4, "usage": 0, "unlimitedUsage": 0, "time": "2026-01-01T00:00:00Z"}
    status = {"flow": used, "fairShare": 5.5, "excessCharged": 30}
    physics = {"metadata": {"name": "physics"}, "spec": {"excessBudget": 60}, "status": status}
    answers[f"{ROOT}/queues"] = a_list([physics, {"metadata": {"name": "idle"}, "spec": {}}])
    answers["/api/v1/configmaps"] = FORBIDDEN
    answers["/api/v1/namespaces/kbatch-system/configmaps"] = FORBIDDEN
    shown = ask("queues").stdout.splitlines()
    assert shown[0].split()[-8:] == ["Share", "Flow", "Fair", "share", "Budget", "Pending", "InQueue", "Running"]
    assert shown[1].split()[-6:] == ["0", "0", "-", "0", "0", "0"]
    assert shown[2].split()[-6:] == ["8", "5.5", "30/60", "0", "0", "0"], "as it was written"
    text = "actions: allocate\ntiers:\n- plugins: [{name: gang}, {name: flow, arguments: {halfTime: 1}}]\n"
    configuration = {"metadata": {"name": "c", "namespace": "kbatch-system"}, "data": {"scheduler.yaml": text}}
    answers["/api/v1/configmaps"] = a_list([configuration])
    row = json.loads(ask("queues", "-o", "json").stdout)[1]
    assert (row["name"], row["excessBudget"], row["fairShare"], row["excessCharged"]) == ("physics", 60, 5.5, 30)
    assert {name: row["flow"][name] for name in ("value", "unlimitedValue", "usage")} == {
        "value": 0, "unlimitedValue": 0, "usage": 0,
    }, "faded by now"  # fmt: skip


@pytest.mark.parametrize(
    "said",
    [
        'webhook "validation.gatekeeper.sh" denied the request: [pods-need-owner] label owner is missing',
        "denied the request: path [/spec/containers] is not allowed",
    ],
)
def test_words_of_others_are_shown_as_they_are(ask: Any, server: ThreadingHTTPServer, said: str) -> None:
    one = copy.deepcopy(WAITING)
    one["status"]["conditions"][0] |= {"reason": "BindFailed", "message": said}
    server.answers[f"{ROOT}/podgroups"] = a_list([one])  # type: ignore[attr-defined]
    result = ask("groups")
    assert result.exit_code == 0
    bracketed = said[said.index("[") : said.index("]") + 1]
    assert bracketed in "".join(result.stdout.split())


def test_no_text_of_a_tenant_ends_a_command_or_steers_a_terminal(ask: Any, server: ThreadingHTTPServer) -> None:
    one = copy.deepcopy(WAITING)
    one["status"]["conditions"][0] |= {"message": "PriorityClass [/x] \x1b[2J\x1b]0;owned\x07 does not exist"}
    answers = server.answers  # type: ignore[attr-defined]
    answers[f"{ROOT}/podgroups"] = a_list([one])
    answers[f"{ROOT}/namespaces/team/podgroups/big"] = one
    status = {"requested": {"example.com/[/x]": "1"}}
    answers[f"{ROOT}/queues"] = a_list([{"metadata": {"name": "default"}, "spec": {"weight": 1}, "status": status}])
    for words in (("groups",), ("explain", "team/big"), ("queues",)):
        result = ask(*words)
        assert result.exit_code == 0, words
        assert "\x1b" not in result.stdout, words
    assert "[/x]" in ask("explain", "team/big").stdout


@pytest.mark.usefixtures("server")
def test_explain_a_group_that_waits(ask: Any) -> None:
    found = json.loads(ask("explain", "team/big", "-o", "json").stdout)
    assert (found["subject"], found["reason"], found["since"]) == (
        "PodGroup team/big",
        "NotEnoughResources",
        "2026-01-01T00:00:05Z",
    )
    assert found["members"] == {"Pending": 1, "Pending (gated)": 1, "Running": 1}
    assert found["roles"] == [
        {"name": "worker", "minMember": 2, "maxMember": None, "placed": 1, "succeeded": 0},
        {"name": "extra", "minMember": 0, "maxMember": 4, "placed": 0, "succeeded": 0},
    ]
    assert ask("explain", "team/big").stdout.splitlines() == [
        "PodGroup team/big: it waits (InQueue) since 2026-01-01T00:00:05Z",
        "  reason   NotEnoughResources",
        "           1 of 3 pods can be placed; short of 2 cpu",
        "  pods     1 Pending, 1 Pending (gated), 1 Running; 3 must be placed together",
        "  role     worker: 1 of at least 2 placed",
        "  role     extra: 0 of 0 to 4 placed",
        "  queue    research (Open, weight 2): holds cpu=2 memory=1Gi of a deserved cpu=4, asks for cpu=6",
        "           it holds 9 cpu",
    ]


@pytest.mark.parametrize(
    ("start", "column", "line"),
    [
        (
            {"time": "2026-01-01T01:00:00Z", "latest": "2026-01-01T01:00:00Z", "basis": "reservation"},
            "2026-01-01T01:00:00Z",
            "  start    2026-01-01T01:00:00Z (by reservation)",
        ),
        (
            {"time": "2026-01-01T01:00:00Z", "latest": "2026-01-01T02:00:00Z", "basis": "history"},
            "2026-01-01T01:00:00Z",
            "  start    2026-01-01T01:00:00Z, nine times out of ten by 2026-01-01T02:00:00Z (by history)",
        ),
        (
            {"basis": "unknown"},
            "unknown",
            "  start    room is kept for it, and nobody knows when all of it comes free",
        ),
    ],
)
def test_when_a_group_is_to_start(
    ask: Any, server: ThreadingHTTPServer, start: dict[str, str], column: str, line: str
) -> None:
    planned = {**WAITING, "status": {**WAITING["status"], "estimatedStart": start}}
    server.answers[f"{ROOT}/namespaces/team/podgroups/big"] = planned  # type: ignore[attr-defined]
    server.answers[f"{ROOT}/podgroups"] = a_list([planned, RUNNING])  # type: ignore[attr-defined]
    assert line in ask("explain", "team/big").stdout.splitlines()
    told = {"time": None, "latest": None, **start}
    assert json.loads(ask("explain", "team/big", "-o", "json").stdout)["estimatedStart"] == told
    assert [row["estimatedStart"] for row in json.loads(ask("groups", "-o", "json").stdout)] == [None, told]
    shown = ask("groups").stdout.splitlines()
    assert shown[0].split()[6:9] == ["Pending", "Start", "Reason"]
    assert column in shown[2]


def test_explain_a_group_whose_objects_cannot_be_made(ask: Any, server: ThreadingHTTPServer) -> None:
    why = {"type": "Stalled", "status": "True", "reason": "ObjectRefused", "message": "Service web: no"}
    status = {**WAITING["status"], "conditions": [*WAITING["status"]["conditions"], why]}
    server.answers[f"{ROOT}/namespaces/team/podgroups/big"] = {**WAITING, "status": status}  # type: ignore[attr-defined]
    lines = ask("explain", "team/big").stdout.splitlines()
    assert lines[3:5] == ["  stalled  ObjectRefused", "           Service web: no"]
    found = json.loads(ask("explain", "team/big", "-o", "json").stdout)
    assert found["stalled"] == {"reason": "ObjectRefused", "message": "Service web: no"}


def test_explain_to_someone_who_may_not_see_queues(ask: Any, server: ThreadingHTTPServer) -> None:
    server.answers[f"{ROOT}/queues/research"] = FORBIDDEN  # type: ignore[attr-defined]
    result = ask("explain", "team/big")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[1] == "  reason   NotEnoughResources"
    assert lines[-1] == "  queue    research: not permitted (you may not get Queue research)"
    found = json.loads(ask("explain", "team/big", "-o", "json").stdout)
    assert (found["queue"], found["notPermitted"]) == (None, ["Queue research"])


def test_why_a_group_failed_stands_where_it_said_why_it_waited(ask: Any, server: ThreadingHTTPServer) -> None:
    waited = {"type": "Scheduled", "status": "False", "reason": "WaitingInQueue", "message": "1 group is before it"}
    ended = {"type": "Failed", "status": "True", "reason": "MinimumUnattainable", "message": "1 pods run, 3 needed"}
    failed = {**WAITING, "status": {"phase": "Failed", "conditions": [waited, ended]}}
    server.answers[f"{ROOT}/namespaces/team/podgroups/big"] = failed  # type: ignore[attr-defined]
    server.answers[f"{ROOT}/podgroups"] = a_list([failed])  # type: ignore[attr-defined]
    assert ask("explain", "team/big").stdout.splitlines()[:3] == [
        "PodGroup team/big: it is over (Failed)",
        "  reason   MinimumUnattainable",
        "           1 pods run, 3 needed",
    ]
    (row,) = json.loads(ask("groups", "-o", "json").stdout)
    assert (row["reason"], row["message"]) == ("MinimumUnattainable", "1 pods run, 3 needed")


def test_pods_of_another_scheduler_are_named_where_pods_are_missing(ask: Any, server: ThreadingHTTPServer) -> None:
    lacking = {"type": "Scheduled", "status": "False", "reason": "NotEnoughTasks", "message": "0 of 3 pods exist"}
    group = {**WAITING, "status": {"phase": "Pending", "conditions": [lacking]}}
    server.answers[f"{ROOT}/namespaces/team/podgroups/big"] = group  # type: ignore[attr-defined]
    theirs = [pod(f"big-{index}", schedulerName="default-scheduler") for index in range(2)]
    server.answers["/api/v1/namespaces/team/pods"] = a_list([*theirs, pod("big-2")])  # type: ignore[attr-defined]
    said = (
        "2 of these pods have spec.schedulerName default-scheduler: only those of kbatch's (kube-batch, if the "
        "installation sets no other) count as members; make them anew with that"
    )
    assert f"           {said}" in ask("explain", "team/big").stdout.splitlines()
    assert json.loads(ask("explain", "team/big", "-o", "json").stdout)["otherSchedulers"] == [said]


def test_which_scheduler_is_another_one_the_installation_says(ask: Any, server: ThreadingHTTPServer) -> None:
    answers = server.answers  # type: ignore[attr-defined]
    lacking = {"type": "Scheduled", "status": "False", "reason": "NotEnoughTasks", "message": "0 of 3 pods exist"}
    answers[f"{ROOT}/namespaces/team/podgroups/big"] = {
        **WAITING, "status": {"phase": "Pending", "conditions": [lacking]}
    }  # fmt: skip
    config = installed("a")
    config["metadata"]["annotations"] = {"kbatch.dev/scheduler-name": "gpu-batch"}
    answers["/api/v1/configmaps"] = a_list([config])
    answers["/api/v1/namespaces/team/pods"] = a_list([pod("big-0", schedulerName="gpu-batch"), pod("big-1")])
    said = (
        "1 of these pods have spec.schedulerName kube-batch: only those of kbatch's (gpu-batch) count as members; "
        "make them anew with that"
    )
    assert json.loads(ask("explain", "team/big", "-o", "json").stdout)["otherSchedulers"] == [said]


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("new", "PodGroup team/new: no scheduler has looked at it yet; does kbatch's scheduler run?"),
        ("big-2", "PodGroup team/big: it waits (InQueue)"),
        ("alone", "Pod team/alone: it waits\n  reason   Unschedulable\n           0/3 nodes fit"),
        ("lost", "Pod team/lost: it waits\n  reason   PodGroupNotFound\n"),
        ("fresh", "Pod team/fresh: no scheduler has spoken of it yet; its schedulerName is kube-batch"),
    ],
)
def test_explain_what_else_there_is(ask: Any, name: str, said: str) -> None:
    result = ask("explain", f"team/{name}")
    assert result.exit_code == 0
    assert result.stdout.startswith(said)


def event(pod_uid: str, reason: str, at: str, **more: Any) -> dict[str, Any]:
    return {
        "involvedObject": {"kind": "Pod", "uid": pod_uid},
        "reportingComponent": "kbatch-scheduler",
        "action": "Scheduling",
        "reason": reason,
        "message": f"for {reason}",
        "eventTime": f"2026-01-01T00:00:{at}.000000Z",
        **more,
    }


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("", "QueueCapabilityExceeded"),
        ("QueueClosed", "QueueCapabilityExceeded"),  # is written anew only for what is Unschedulable, or was
        ("Unschedulable", "Unschedulable"),
        ("ResourceClaimsUnsupported", "ResourceClaimsUnsupported"),
    ],
)
def test_explain_a_pod_by_the_events_of_the_scheduler(
    ask: Any, server: ThreadingHTTPServer, condition: str, said: str
) -> None:
    answers: dict[str, Any] = server.answers  # type: ignore[attr-defined]
    one = pod("plain", group="")
    one["metadata"]["uid"] = "u"
    if condition:
        told = {"type": "PodScheduled", "status": "False", "reason": condition, "message": f"for {condition}"}
        one["status"]["conditions"] = [told]
    answers["/api/v1/namespaces/team/pods/plain"] = one
    answers["/api/v1/namespaces/team/events"] = {
        "items": [
            event("u", "QueueClosed", "01"),
            event("u", "QueueCapabilityExceeded", "02"),
            event("another", "QueueNotFound", "03"),
            event("u", "FailedScheduling", "03", reportingComponent="default-scheduler"),
            event("u", "Evicted", "03", action="Evicting"),
        ]
    }
    shown = ask("explain", "team/plain").stdout
    assert shown.splitlines() == ["Pod team/plain: it waits", f"  reason   {said}", f"           for {said}"]
    answers["/api/v1/namespaces/team/events"] = FORBIDDEN
    assert ("no scheduler has spoken of it yet" in ask("explain", "team/plain").stdout) is (not condition)


def test_explain_a_pod_by_what_was_said_on_another_of_its_controller(ask: Any, server: ThreadingHTTPServer) -> None:
    answers: dict[str, Any] = server.answers  # type: ignore[attr-defined]

    def of(controller: str, name: str, **more: Any) -> dict[str, Any]:
        one = pod(name, **{"group": "", **more})
        owners = [{"kind": "ReplicaSet", "name": controller, "uid": controller, "controller": True}]
        one["metadata"] |= {"uid": name, "ownerReferences": owners}
        return one

    asked, first = of("web", "web-2"), of("web", "web-0")
    gone = of("web", "web-3")
    gone["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    others = [of("db", "db-0"), of("web", "web-1", node="n1"), of("web", "web-4", group="big"), gone, pod("free")]
    others.append(of("web", "web-5", schedulerName="another"))
    answers["/api/v1/namespaces/team/pods/web-2"] = asked
    answers["/api/v1/namespaces/team/pods"] = a_list([asked, first, *others])
    of_others = [event(each["metadata"].get("uid", "free"), "QueueNotFound", "09") for each in others]
    answers["/api/v1/namespaces/team/events"] = {
        "items": [
            event("web-0", "NotEnoughResources", "01"),
            event("web-0", "NotEnoughTasks", "02"),
            event("web-0", "BindFailed", "03", action="Binding"),  # that is of web-0 alone
            event("web-0", "FailedScheduling", "04", reportingComponent="default-scheduler"),
            *of_others,
        ]
    }
    assert ask("explain", "team/web-2").stdout.splitlines() == [
        "Pod team/web-2: it waits",
        "  reason   NotEnoughTasks",
        "           for NotEnoughTasks",
        "           (said on Pod web-0, of the same ReplicaSet web: the scheduler tells one pod of a controller)",
    ]
    found = json.loads(ask("explain", "team/web-2", "-o", "json").stdout)
    assert (found["reason"], found["toldOn"]) == ("NotEnoughTasks", "web-0")
    assert json.loads(ask("explain", "team/alone", "-o", "json").stdout)["toldOn"] is None
    nothing = "Pod team/web-2: no scheduler has spoken of it yet; its schedulerName is kube-batch"
    events = answers["/api/v1/namespaces/team/events"]
    for path, answer in (
        ("events", FORBIDDEN), ("events", {"items": of_others}), ("events", events | {"items": []}),
        ("pods", FORBIDDEN), ("pods", a_list([asked, *others])),
    ):  # fmt: skip
        path = f"/api/v1/namespaces/team/{path}"
        before, answers[path] = answers[path], answer
        result = ask("explain", "team/web-2")
        assert (result.exit_code, result.stdout.splitlines()) == (0, [nothing]), path
        answers[path] = before


@pytest.mark.parametrize(
    ("seconds", "becomes"), [(None, "runs on"), (60, "goes 60 s after that began (minimumLostSeconds)")]
)
def test_explain_a_gang_that_is_broken(
    ask: Any, server: ThreadingHTTPServer, seconds: int | None, becomes: str
) -> None:
    lost = {"type": "Enqueued", "status": "True", "reason": "MembersLost"}
    failures = [{"node": "n2", "pods": ["a", "b"]}, {"node": "n1", "pods": ["c"]}]
    broken = {
        "metadata": {"name": "torn", "namespace": "team"},
        "spec": {"minMember": 3, "queue": "research", **({} if seconds is None else {"minimumLostSeconds": seconds})},
        "status": {"phase": "Running", "conditions": [lost], "nodeFailures": failures},
    }
    server.answers[f"{ROOT}/namespaces/team/podgroups/torn"] = broken  # type: ignore[attr-defined]
    lines = ask("explain", "team/torn").stdout.splitlines()
    assert f"  broken   it has run and is below its minimum: what is left of it {becomes}" in lines
    assert "  avoids   n2: too many of its pods failed there (badNodeLimit)" in lines
    found = json.loads(ask("explain", "team/torn", "-o", "json").stdout)
    assert found["broken"].endswith(becomes)
    assert found["avoids"] == ["n2"]


def test_explain_counts_pods_that_have_ended_as_ended(ask: Any, server: ThreadingHTTPServer) -> None:
    answers: dict[str, Any] = server.answers  # type: ignore[attr-defined]
    members = [pod(f"torn-{index}", node="n1", role="w", group="torn") for index in range(4)]
    members[2]["status"]["phase"], members[3]["status"]["phase"] = "Failed", "Succeeded"
    group = {
        "metadata": {"name": "torn", "namespace": "team"},
        "spec": {"minMember": 3, "queue": "research", "subGroups": [{"name": "w", "minMember": 3}]},
        "status": {"phase": "Running"},
    }
    answers[f"{ROOT}/namespaces/team/podgroups/torn"] = group
    answers["/api/v1/namespaces/team/pods"] = a_list(members)
    assert "  role     w: 2 of at least 3 placed, 1 succeeded" in ask("explain", "team/torn").stdout.splitlines()
    (role,) = json.loads(ask("explain", "team/torn", "-o", "json").stdout)["roles"]
    assert (role["placed"], role["succeeded"]) == (2, 1)
    answers["/api/v1/namespaces/team/pods"] = a_list(members[:3])
    assert "  role     w: 2 of at least 3 placed" in ask("explain", "team/torn").stdout.splitlines()


@pytest.mark.parametrize("phase", ["Failed", "Completed"])
def test_explain_of_a_group_that_is_over_says_nothing_of_what_is_left(
    ask: Any, server: ThreadingHTTPServer, phase: str
) -> None:
    lost = {"type": "Enqueued", "status": "True", "reason": "MembersLost"}
    over = {
        "metadata": {"name": "torn", "namespace": "team"},
        "spec": {"minMember": 3, "queue": "research"},
        "status": {"phase": phase, "conditions": [lost]},
    }
    server.answers[f"{ROOT}/namespaces/team/podgroups/torn"] = over  # type: ignore[attr-defined]
    found = json.loads(ask("explain", "team/torn", "-o", "json").stdout)
    assert (found["verdict"], found["broken"]) == (f"it is over ({phase})", None)


@pytest.mark.usefixtures("server")
def test_explain_what_is_not_there(ask: Any) -> None:
    result = ask("explain", "team/nothing")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "kbatch: there is neither a PodGroup nor a pod nor a Job team/nothing\n"
    assert ask("explain", "nothing").exit_code == 2


@pytest.fixture
def answers(server: ThreadingHTTPServer) -> dict[str, Any]:
    """What the server answers by path: all that what-if asks for, and one node with one cpu."""
    answers: dict[str, Any] = server.answers  # type: ignore[attr-defined]
    for path in (
        "/api/v1/namespaces", "/api/v1/configmaps", "/api/v1/resourcequotas",
        "/api/v1/persistentvolumes", "/api/v1/persistentvolumeclaims",
        "/apis/scheduling.k8s.io/v1/priorityclasses", "/apis/policy/v1/poddisruptionbudgets", "/apis/batch/v1/jobs",
        "/apis/storage.k8s.io/v1/storageclasses", "/apis/storage.k8s.io/v1/csinodes",
    ):  # fmt: skip
        answers[path] = a_list([])
    answers["/api/v1/nodes"] = a_list([NODE])
    answers["/api/v1/pods"] = a_list([pod("big-0", node="n1", role="worker")])
    return answers


@pytest.mark.usefixtures("answers")
def test_what_if(ask: Any, tmp_path: Path) -> None:
    wanted = {"schedulerName": "kube-batch", "containers": [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]}
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "new"}, "spec": wanted}
    (tmp_path / "new.json").write_text(json.dumps(manifest))
    found = json.loads(ask("what-if", str(tmp_path / "new.json"), "-o", "json").stdout)
    assert found["pods"]["team/big-0"]["node"] == "n1"
    assert found["pods"]["default/new"]["phase"] == "Pending"
    more = {
        "apiVersion": "v1",
        "kind": "Node",
        **NODE,
        "metadata": {"name": "n2"},
        "status": {"allocatable": {"cpu": "4"}},
    }
    (tmp_path / "more.json").write_text(json.dumps(more))
    both = ask("what-if", str(tmp_path / "new.json"), str(tmp_path / "more.json"), "-o", "json")
    assert json.loads(both.stdout)["pods"]["default/new"]["node"] == "n2"
    assert ask("what-if", str(tmp_path / "none.json")).exit_code == 2


@pytest.mark.many
def test_what_if_decides_as_the_installed_scheduler_does(ask: Any, answers: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "node.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "Node", **NODE}))
    assert (
        "no ConfigMap of an installed scheduler was found; the default configuration"
        in ask("what-if", str(path)).stderr
    )
    answers["/api/v1/configmaps"] = a_list([installed("a", "nothing")])
    wrong = ask("what-if", str(path))
    assert wrong.exit_code == 2
    assert wrong.stderr.startswith("kbatch: ConfigMap kbatch-system/a:1:")
    answers["/api/v1/configmaps"] = a_list([installed("a"), {"metadata": {"name": "other"}}])
    right = ask("what-if", str(path))
    assert (right.exit_code, right.stderr) == (0, "")
    chosen = tmp_path / "scheduler.yaml"
    chosen.write_text("actions: neither\ntiers: []\n")
    assert str(chosen) in ask("what-if", str(path), "--scheduler-conf", str(chosen)).stderr
    answers["/api/v1/configmaps"] = a_list([installed("a"), installed("b")])
    assert "(ConfigMap kbatch-system/a, ConfigMap kbatch-system/b)" in ask("what-if", str(path)).stderr


def test_a_namespace_that_kbatch_is_not_installed_for(ask: Any, answers: dict[str, Any], tmp_path: Path) -> None:
    """Nobody looks at what is there: whoever asks is told so."""
    answers["/api/v1/configmaps"] = a_list([installed("a")])
    answers[f"{ROOT}/podgroups"] = a_list([{**WAITING, "status": {}}])
    answers[f"{ROOT}/namespaces/team/podgroups/big"] = {**WAITING, "status": {}}
    answers["/api/v1/pods"] = a_list([])
    (tmp_path / "work.yaml").write_text(json.dumps({"apiVersion": GROUP, "kind": "PodGroup", **WAITING}))
    what_if = ("what-if", str(tmp_path / "work.yaml"))

    def said() -> list[bool]:
        words = ("kbatch is installed for namespaces", "it leaves alone team")
        shown = ask("groups").stdout, ask("explain", "team/big").stdout, ask(*what_if).stderr
        return [all(word.lower() in each.lower() for word in words) for each in shown]

    assert json.loads(ask("explain", "team/big", "-o", "json").stdout)["leftAlone"] is None
    assert said() == [False, False, False]
    answers["/api/v1/configmaps"]["items"][0]["metadata"]["annotations"] = {"kbatch.dev/namespaces": "a,b"}
    alone = "kbatch is installed for namespaces a, b; it leaves alone team"
    assert json.loads(ask("explain", "team/big", "-o", "json").stdout)["leftAlone"] == alone
    assert said() == [True, True, True]
    answers["/api/v1/configmaps"]["items"][0]["metadata"]["annotations"] = {"kbatch.dev/namespaces": "a,team"}
    assert said() == [False, False, False]


@pytest.mark.usefixtures("answers")
def test_what_if_of_other_names(ask: Any, answers: dict[str, Any], tmp_path: Path) -> None:
    """The chart was installed with another schedulerName and default queue; its ConfigMap says so, or options do."""
    containers = [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]
    answers["/api/v1/pods"] = a_list([])
    role = {"name": "w", "minMember": 1, "template": {"spec": {"containers": containers}}}
    made = {
        "apiVersion": GROUP, "kind": "PodGroup", "metadata": {"name": "group"},
        "spec": {"minMember": 1, "subGroups": [role]},
    }  # fmt: skip
    plain = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain"},
        "spec": {"schedulerName": "gpu-batch", "containers": [{"name": "main"}]},
    }  # fmt: skip
    (tmp_path / "work.yaml").write_text("\n---\n".join(map(json.dumps, (made, plain))))

    def placed(*options: str) -> set[str]:
        said = ask("what-if", str(tmp_path / "work.yaml"), "-o", "json", *options)
        assert said.stderr == ""
        found = json.loads(said.stdout)
        assert found["queues"]["usual" if options or answered else "default"]["allocated"]["cpu"] == "1"
        return {name for name, pod in found["pods"].items() if pod["node"]}

    answered = False
    answers["/api/v1/configmaps"] = a_list([installed("a")])
    assert placed() == {"default/group-w-0"}  # of a release that says nothing of names
    assert placed("--scheduler-name", "gpu-batch", "--default-queue", "usual") == {"default/group-w-0", "default/plain"}
    answered = True
    names = {"kbatch.dev/scheduler-name": "gpu-batch", "kbatch.dev/default-queue": "usual"}
    answers["/api/v1/configmaps"]["items"][0]["metadata"]["annotations"] = names
    assert placed() == {"default/group-w-0", "default/plain"}


def test_what_if_of_someone_who_may_not_read_the_configuration(
    ask: Any, answers: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "node.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "Node", **NODE}))
    answers["/api/v1/configmaps"] = answers["/api/v1/namespaces/kbatch-system/configmaps"] = FORBIDDEN
    result = ask("what-if", str(path))
    assert result.exit_code == 0
    assert result.stderr == (
        "kbatch: you may not read the installed scheduler's ConfigMap; the default configuration is assumed "
        "(give another by --scheduler-conf)\n"
    )
    answers["/api/v1/namespaces/kbatch-system/configmaps"] = a_list([installed("a")])
    assert ask("what-if", str(path)).stderr == ""


def test_a_cluster_without_kbatch(ask: Any, server: ThreadingHTTPServer) -> None:
    server.answers = {}  # type: ignore[attr-defined]
    result = ask("groups")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "kbatch: the cluster does not know PodGroups and Queues; is kbatch installed there?\n"


def test_no_credentials_is_one_sentence(ask: Any) -> None:
    result = ask("queues")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1


def wired(name: str, rack: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"example.com/rack": rack}}, "status": {"allocatable": {"cpu": "2"}}}


@pytest.fixture
def network(answers: dict[str, Any]) -> dict[str, Any]:
    """Two racks of two nodes of two cpus, and a scheduler that knows of them. A pod has half of one node of each."""
    answers["/api/v1/nodes"] = a_list([wired("a1", "a"), wired("a2", "a"), wired("b1", "b"), wired("b2", "b")])
    requests: dict[str, Any] = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}
    answers["/api/v1/pods"] = a_list([pod(f"busy-{node}", node=node, group="", **requests) for node in ("a1", "b1")])
    configuration = installed("a")
    plugins = "  - name: predicates\n  - {name: topology, arguments: {levels: example.com/rack}}\n"
    configuration["data"]["scheduler.yaml"] += plugins
    answers["/api/v1/configmaps"] = a_list([configuration])
    return answers


def wanting(folder: Path, cpu: str, **spec: Any) -> str:
    """A file with a group of two pods within two hops, made of a template."""
    containers = [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]
    role = {"name": "w", "minMember": 2, "template": {"spec": {"containers": containers}}}
    made = {
        "apiVersion": GROUP, "kind": "PodGroup", "metadata": {"name": "close"},
        "spec": {"topology": {"maxHops": 2}, "subGroups": [role], **spec},
    }  # fmt: skip
    path = folder / "close.json"
    path.write_text(json.dumps(made))
    return str(path)


@pytest.mark.usefixtures("network")
def test_what_if_says_where_a_group_would_stand(ask: Any, tmp_path: Path) -> None:
    result = ask("what-if", wanting(tmp_path, "1"), "-o", "json")
    assert result.stderr == ""
    found = json.loads(result.stdout)["podgroups"]["default/close"]
    stand = {"pods": 2, "hops": 0, "level": "node", "domain": "a2"}
    assert found["topology"] == {**stand, "roles": {"w": stand}}
    shown = ask("what-if", wanting(tmp_path, "1")).stdout
    assert ["default/close", "w", "node", "a2", "0", "2"] in [line.split() for line in shown.splitlines()]


@pytest.mark.usefixtures("network")
def test_what_if_says_of_which_domain_too_little_is_free(ask: Any, tmp_path: Path) -> None:
    found = json.loads(ask("what-if", wanting(tmp_path, "2"), "-o", "json").stdout)
    conditions = {each["type"]: each for each in found["podgroups"]["default/close"]["conditions"]}
    assert conditions["Scheduled"]["reason"] == "TopologyUnsatisfied"
    assert conditions["Scheduled"]["message"].startswith("1 of 2 pods fit within 2 hops of one another, in rack a;")
    assert {name for name, one in found["pods"].items() if one["phase"] == "Pending"} == {
        "default/close-w-0", "default/close-w-1",
    }  # fmt: skip


@pytest.mark.usefixtures("network")
def test_what_if_knows_of_whole_nodes(ask: Any, tmp_path: Path) -> None:
    path = wanting(tmp_path, "1500m", topology={"mode": "Preferred"}, exclusive=True)
    found = json.loads(ask("what-if", path, "-o", "json").stdout)
    nodes = {one["node"] for name, one in found["pods"].items() if name.startswith("default/close-")}
    assert nodes == {"a2", "b2"}


def test_what_if_without_the_plugin_says_that_nothing_acts_on_topology(
    ask: Any, network: dict[str, Any], tmp_path: Path
) -> None:
    network["/api/v1/configmaps"] = a_list([installed("a")])
    result = ask("what-if", wanting(tmp_path, "2"))
    assert result.exit_code == 0
    assert "nothing acts on topology: the plugin topology is not configured" in result.stderr


def standing(answers: dict[str, Any], *nodes: str) -> None:
    """The group team/big runs on these nodes, its first pod as a launcher, and has topology."""
    roles = [{"name": "launcher", "minMember": 1}, {"name": "worker", "minMember": 1}]
    spec = {**WAITING["spec"], "topology": {"maxHops": 4}, "subGroups": roles}
    answers[f"{ROOT}/namespaces/team/podgroups/big"] = {**WAITING, "spec": spec}
    pods = [pod(f"big-{at}", node=name, role="worker" if at else "launcher") for at, name in enumerate(nodes)]
    answers["/api/v1/namespaces/team/pods"] = a_list(pods)


def test_explain_says_where_a_group_stands(ask: Any, network: dict[str, Any]) -> None:
    standing(network, "a1", "b1", "b2")
    lines = [line for line in ask("explain", "team/big").stdout.splitlines() if line.startswith("  stands")]
    assert lines == [
        "  stands   all pods: in the cluster, 4 hops at most (3 placed)",
        "  stands   role launcher: on node a1, 0 hops at most (1 placed)",
        "  stands   role worker: in rack b, 2 hops at most (2 placed)",
    ]
    found = json.loads(ask("explain", "team/big", "-o", "json").stdout)["topology"]
    assert found[2] == {"role": "worker", "pods": 2, "hops": 2, "level": "rack", "domain": "b"}


def test_explain_says_that_it_may_not_see_where_a_group_stands(ask: Any, network: dict[str, Any]) -> None:
    standing(network, "a1", "b1")
    network["/api/v1/nodes"] = FORBIDDEN
    result = ask("explain", "team/big")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "  nodes    not permitted (you may not get Nodes)" in result.stdout.splitlines()


def test_explain_says_nothing_of_topology_that_nothing_acts_on(ask: Any, network: dict[str, Any]) -> None:
    standing(network, "a1", "b1")
    network["/api/v1/configmaps"] = a_list([installed("a")])
    assert "  stands" not in ask("explain", "team/big").stdout


def test_explain_a_group_that_waits_for_its_rack(ask: Any, server: ThreadingHTTPServer) -> None:
    message = "3 of 4 pods of role worker fit within 2 hops of one another, in rack b1/a; raise topology.maxHops"
    apart = {"type": "Scheduled", "status": "False", "reason": "TopologyUnsatisfied", "message": message}
    group = {**WAITING, "status": {**WAITING["status"], "conditions": [apart]}}
    server.answers[f"{ROOT}/namespaces/team/podgroups/big"] = group  # type: ignore[attr-defined]
    lines = ask("explain", "team/big").stdout.splitlines()
    assert lines[1:3] == ["  reason   TopologyUnsatisfied", f"           {message}"]
    found = json.loads(ask("explain", "team/big", "-o", "json").stdout)
    assert (found["reason"], found["message"]) == ("TopologyUnsatisfied", message)


def test_explain_counts_members_that_have_ended_well_and_have_no_pod(ask: Any, server: ThreadingHTTPServer) -> None:
    of = {
        "metadata": {"name": "t", "namespace": "team"},
        "spec": {"minMember": 3, "queue": "research", "subGroups": [{"name": "w", "minMember": 3}]},
        "status": {"phase": "Running", "subGroups": [{"name": "w", "succeeded": 2, "running": 1}]},
    }
    server.answers[f"{ROOT}/namespaces/team/podgroups/t"] = of  # type: ignore[attr-defined]
    server.answers["/api/v1/namespaces/team/pods"] = a_list([pod("t-w-2", node="n1", role="w", group="t")])  # type: ignore[attr-defined]
    assert "2 succeeded" in ask("explain", "team/t").stdout
