"""Job sets: what belongs to them, and what the commands write, against a small server that keeps objects."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from typer.testing import CliRunner

from kbatch.api.objects import Job
from kbatch.cli.main import app
from kbatch.cli.sets import job_sets
from tests.unit.cli.test_live import a_list, serving

ROOT = "/apis/scheduling.incubator.k8s.io/v1alpha1"
Object = dict[str, Any]
Command = Callable[..., Any]


def meta(name: str, *, set_: str = "", owner: str = "", namespace: str = "team", **more: Any) -> Object:
    labels = {"kbatch.dev/job-set": set_} if set_ else {}
    owners = [{"kind": "Job", "name": owner, "uid": f"uid-{owner}", "controller": True}] if owner else []
    return {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{name}",
        "resourceVersion": "7",
        "labels": {**labels, **more.pop("labels", {})},
        "ownerReferences": owners,
        **more,
    }


def group(name: str, phase: str = "Running", *, queue: str = "research", **spec: Any) -> Object:
    keys = ("set_", "owner", "namespace")
    own = {key: spec.pop(key) for key in keys if key in spec}
    return {
        "metadata": meta(name, **own),
        "spec": {"queue": queue, **spec},
        "status": {"phase": phase, "running": int(phase == "Running")},
    }


def job(
    name: str, *, set_: str = "", of: str = "", mark: str = "", suspend: bool = False, ended: bool = False
) -> Object:
    metadata = meta(name, set_=set_, labels={"kbatch.dev/queue": "research"})
    metadata["annotations"] = {"kbatch.dev/suspended": mark} if mark else {}
    template = {"metadata": {"annotations": {"scheduling.k8s.io/group-name": of} if of else {}}, "spec": {}}
    conditions = [{"type": "Complete", "status": "True"}] if ended else []
    return {
        "metadata": metadata,
        "spec": {"suspend": suspend, "template": template},
        "status": {"conditions": conditions},
    }


def pod(name: str, of: str, controller: str = "") -> Object:
    owners = [{"kind": controller, "name": "rs", "uid": "o", "controller": True}] if controller else []
    metadata = {**meta(name), "ownerReferences": owners, "annotations": {"scheduling.k8s.io/group-name": of}}
    return {"metadata": metadata, "spec": {}}


WORKER = {"name": "w", "minMember": 1, "template": {"spec": {}}}
GROUPS = [
    group("made", set_="sweep", subGroups=[WORKER]),
    group("held", "Pending", owner="held"),  # made for a Job of the set
    group("plain", "Pending", set_="sweep"),
    group("done", "Completed", set_="sweep"),
    group("other", set_="other"),
    group("alone"),
    group("theirs", set_="sweep", queue="serving"),
]
JOBS = [
    job("held", set_="sweep", of="held", mark="true", suspend=True),
    job("runs", of="plain", mark="false"),  # of a group of the set
    job("hers", set_="sweep", suspend=True),
    job("ended", set_="sweep", ended=True),
    job("another"),
]
PODS = [pod("p0", "plain"), pod("p1", "plain", "ReplicaSet"), pod("p2", "made", "PodGroup"), pod("p3", "other")]


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def _answer(self, status: int, body: Object) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self) -> None:
        self._do()

    def do_PATCH(self) -> None:
        self._do()

    def do_DELETE(self) -> None:
        self._do()

    def _do(self) -> None:
        path = self.path.partition("?")[0]
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"null")
        if self.command != "GET":
            self.server.writes.append((self.command, path.rpartition("/namespaces/team/")[2], body))
            path = f"{self.command} {path.rpartition('/')[2]}"
        if path in self.server.refusals:
            reason = {409: "Conflict", 404: "NotFound"}.get(self.server.refusals[path], "Forbidden")
            self._answer(self.server.refusals[path], {"kind": "Status", "reason": reason, "message": "not you"})
        elif self.command == "GET" and path not in self.server.answers:
            self._answer(404, {"kind": "Status", "reason": "NotFound", "message": "not found"})
        else:
            self._answer(200, self.server.answers.get(path, {}))

    def log_message(self, *args: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    """Answers reads from `answers`; keeps writes, refuses those in `refusals` (`DELETE name`) with their status."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.writes: list[tuple[str, str, Any]] = []
        self.refusals: dict[str, int] = {}
        self.answers: dict[str, Object] = {
            f"{ROOT}/podgroups": a_list(GROUPS),
            f"{ROOT}/namespaces/team/podgroups": a_list(GROUPS),
            f"{ROOT}/namespaces/team/podgroups/alone": GROUPS[5],
            "/apis/batch/v1/jobs": a_list(JOBS),
            "/apis/batch/v1/namespaces/team/jobs": a_list(JOBS),
            "/api/v1/namespaces/team/pods": a_list(PODS),
            "/apis/scheduling.k8s.io/v1/priorityclasses/high": {"metadata": {"name": "high"}, "value": 9},
        }

    def wrote(self) -> list[str]:
        return [f"{method} {what}" for method, what, _ in self.writes]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server()
    with serving(made, tmp_path):
        yield made


@pytest.fixture
def kbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server) -> Command:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return lambda *given: CliRunner().invoke(app, [*given, "--kubeconfig", str(tmp_path / "kubeconfig")])


def results(answer: Any) -> dict[str, str]:
    return {f"{one['kind']} {one['name']}": one["result"] for one in json.loads(answer.stdout)}


def test_a_set_is_of_one_queue_and_holds_what_has_its_label_and_what_belongs_to_that(kbatch: Command) -> None:
    found = {(one["queue"], one["name"]): one for one in json.loads(kbatch("job-sets", "-o", "json").stdout)}
    assert set(found) == {("research", "sweep"), ("research", "other"), ("serving", "sweep")}
    sweep = found["research", "sweep"]
    assert sweep["phases"] == {"Completed": 1, "Pending": 2, "Running": 1}
    assert (sweep["groups"], sweep["jobs"], sweep["suspended"], sweep["running"]) == (4, 4, 1, 1)
    assert sweep["namespaces"] == ["team"]
    assert [one["queue"] for one in json.loads(kbatch("job-sets", "-q", "serving", "-o", "json").stdout)] == ["serving"]
    lines = kbatch("job-sets", "-n", "team").stdout.splitlines()
    assert " ".join(lines[2].split()) == "research sweep 4 4 Completed=1 Pending=2 Running=1 1 1 0 0 0"


@pytest.mark.parametrize("command", [("job-sets",), ("cancel", "--job-set", "sweep")])
def test_who_may_not_look_at_all_namespaces_is_told_of_the_option(
    kbatch: Command, server: Server, command: tuple[str, ...]
) -> None:
    server.refusals = {f"{ROOT}/podgroups": 403, f"{ROOT}/namespaces/team/podgroups": 403}
    answer = kbatch(*command)
    assert answer.exit_code == 1
    assert answer.stderr.rstrip().endswith("not you; look at one namespace with -n NAMESPACE")
    assert kbatch(*command, "-n", "team").stderr.rstrip().endswith("not you")


def test_the_example_is_one_set() -> None:
    text = (Path(__file__).parents[3] / "examples" / "job-set.yaml").read_text()
    jobs = [msgspec.convert(each, Job) for each in yaml.safe_load_all(text)]
    (found,) = job_sets([], jobs)
    assert (found.queue, found.name, len(found.jobs)) == ("default", "sweep", 2)


def test_cancel_deletes_what_is_not_over_the_jobs_first(kbatch: Command, server: Server) -> None:
    answer = kbatch("cancel", "--job-set", "sweep", "--queue", "research", "-o", "json")
    assert results(answer) == {
        "Job held": "deleted",
        "Job runs": "deleted",
        "Job hers": "deleted",
        "PodGroup made": "deleted",
        "PodGroup plain": "deleted",
        "Pod p0": "deleted",
        "Pod p1": "left",
    }
    assert answer.exit_code == 1, "somebody else goes on to make pods"
    wrote = server.wrote()
    assert max(wrote.index(f"DELETE jobs/{name}") for name in ("held", "runs", "hers")) < wrote.index(
        "DELETE podgroups/made"
    )
    for _, _, body in server.writes:
        assert body["preconditions"]["uid"].startswith("uid-")
        assert body["propagationPolicy"] == "Background"


def test_a_dry_run_writes_nothing(kbatch: Command, server: Server) -> None:
    answer = kbatch("cancel", "--job-set", "other", "--dry-run")
    assert (answer.exit_code, server.writes) == (0, [])
    assert answer.stdout.splitlines() == [
        "PodGroup team/other: would be deleted",
        "Pod team/p3: would be deleted",
    ]


def test_what_is_refused_is_said_and_does_not_stop_the_rest(kbatch: Command, server: Server) -> None:
    server.refusals = {"DELETE held": 403, "DELETE runs": 404, "DELETE made": 409}
    answer = kbatch("cancel", "--job-set", "sweep", "-q", "research", "-n", "team")
    assert answer.exit_code == 1
    assert "Job team/held: refused: not you\n" in answer.stderr
    assert "PodGroup team/made: refused: it was changed meanwhile: ask again\n" in answer.stderr
    assert "Job team/runs: gone\n" in answer.stdout
    assert "PodGroup team/plain: deleted\n" in answer.stdout


def test_suspend_and_resume_leave_marks_by_which_it_is_known_who_did_it(kbatch: Command, server: Server) -> None:
    answer = kbatch("suspend", "--job-set", "sweep", "-q", "research", "-o", "json")
    assert answer.exit_code == 0
    assert results(answer) == {
        "Job held": "suspended",
        "Job runs": "suspended",
        "Job hers": "unchanged",
        "PodGroup made": "suspended",
    }
    sent = {what: body for _, what, body in server.writes}
    by_user = {"annotations": {"kbatch.dev/suspended": "false"}, "resourceVersion": "7"}
    assert sent["jobs/held"] == {"spec": {"suspend": True}, "metadata": by_user}
    assert sent["podgroups/made"] == {"spec": {"suspend": True}, "metadata": {"resourceVersion": "7"}}

    server.writes.clear()
    again = [
        group("made", "Pending", set_="sweep", suspend=True, subGroups=[WORKER]),
        group("plain", "Pending", set_="sweep"),
    ]
    jobs = [
        job("held", set_="sweep", mark="false", suspend=True),
        job("hers", set_="sweep", suspend=True),
        job("kept", set_="sweep", mark="true", suspend=True),
    ]
    server.answers |= {f"{ROOT}/podgroups": a_list(again), "/apis/batch/v1/jobs": a_list(jobs)}
    answer = kbatch("resume", "--job-set", "sweep", "-o", "json")
    assert results(answer) == {
        "Job held": "resumed",
        "Job hers": "resumed",
        "Job kept": "unchanged",
        "PodGroup made": "resumed",
    }
    sent = {what: body for _, what, body in server.writes}
    waits = {"annotations": {"kbatch.dev/suspended": "true"}, "resourceVersion": "7"}
    assert sent["jobs/held"] == {"metadata": waits}, "kbatch resumes it when it is its turn"
    assert sent["jobs/hers"]["spec"] == {"suspend": False}
    assert sent["podgroups/made"]["spec"] == {"suspend": False}


def test_a_group_of_plain_pods_is_suspended_and_said_to_leave_them(kbatch: Command, server: Server) -> None:
    answer = kbatch("suspend", "--job-set", "other")
    assert answer.stdout == "PodGroup team/other: suspended: pods that others made of it are left alone\n"
    assert server.wrote() == ["PATCH podgroups/other"]


def test_reprioritize_a_set_or_groups_by_name(kbatch: Command, server: Server) -> None:
    answer = kbatch("reprioritize", "--job-set", "sweep", "-q", "research", "--priority-class", "high", "-o", "json")
    groups = dict.fromkeys(["PodGroup made", "PodGroup held", "PodGroup plain"], "reprioritized")
    assert results(answer) == groups | {"Job hers": "left"}
    assert server.writes[0][2] == {"spec": {"priorityClassName": "high"}, "metadata": {"resourceVersion": "7"}}
    server.writes.clear()
    server.refusals = {"/apis/scheduling.k8s.io/v1/priorityclasses/high": 403}
    answer = kbatch("reprioritize", "team/alone", "--priority-class", "high")
    assert (answer.exit_code, server.wrote()) == (0, ["PATCH podgroups/alone"]), "who may not see classes is believed"
    assert answer.stdout == "PodGroup team/alone: reprioritized\n"
    assert answer.stderr == (
        "kbatch: whether there is a PriorityClass high is not known, as you may not get it; "
        "without it the groups wait with PriorityClassNotFound\n"
    )


@pytest.mark.parametrize(
    ("classes", "near"),
    [
        (
            a_list([{"metadata": {"name": name}} for name in ("other", "high2", "high")]),
            ": high or high2 may be meant",
        ),
        (a_list([{"metadata": {"name": "other"}}]), ""),
        (None, ""),  # who may get them need not be allowed to list them
    ],
)
def test_a_priority_class_that_does_not_exist_is_refused_with_those_of_similar_names(
    kbatch: Command, server: Server, classes: Object | None, near: str
) -> None:
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    if classes is None:
        server.refusals[path] = 403
    else:
        server.answers[path] = classes
    answer = kbatch("reprioritize", "team/alone", "--priority-class", "hihg")
    assert (answer.exit_code, answer.stdout, server.writes) == (1, "", [])
    assert answer.stderr == f"kbatch: there is no PriorityClass hihg{near}\n"


@pytest.mark.parametrize(
    ("given", "status", "said"),
    [
        (["cancel", "--job-set", "sweep"], 1, "there is a job set sweep in each of the queues research, serving"),
        (["cancel", "--job-set", "none"], 1, "there is no job set none\n"),
        (["resume", "--job-set", "sweep", "-q", "x"], 1, "there is no job set sweep in queue x"),
        (["reprioritize", "team/alone", "--priority-class", "low"], 1, "there is no PriorityClass low"),
        (["reprioritize", "team/gone", "--priority-class", "high"], 1, "there is no PodGroup team/gone"),
        (["reprioritize", "alone", "--priority-class", "high"], 2, "a PodGroup is named as NAMESPACE/NAME"),
        (["reprioritize", "--priority-class", "high"], 2, "name PodGroups (NAMESPACE/NAME), or a job set"),
        (["reprioritize", "a/b", "--job-set", "c", "--priority-class", "high"], 2, "name PodGroups"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    kbatch: Command, server: Server, given: list[str], status: int, said: str
) -> None:
    answer = kbatch(*given)
    assert (answer.exit_code, answer.stdout, server.writes) == (status, "", [])
    assert answer.stderr.startswith(f"kbatch: {said}")
    assert len(answer.stderr.splitlines()) == 1


def test_a_set_that_is_over_is_left_as_it_is(kbatch: Command, server: Server) -> None:
    server.answers |= {
        f"{ROOT}/podgroups": a_list([GROUPS[3]]),
        "/apis/batch/v1/jobs": a_list([JOBS[3]]),
    }
    answer = kbatch("cancel", "--job-set", "sweep")
    assert (answer.exit_code, answer.stdout) == (0, "nothing to do: all of it is over\n")
    assert server.writes == []


def test_a_set_of_jobs_that_have_no_groups_has_nothing_to_reprioritize(kbatch: Command, server: Server) -> None:
    server.answers |= {f"{ROOT}/podgroups": a_list([]), "/apis/batch/v1/jobs": a_list([JOBS[2]])}
    answer = kbatch("reprioritize", "--job-set", "sweep", "--priority-class", "high")
    assert (answer.exit_code, answer.stdout) == (0, "Job team/hers: left: it has no PodGroup\n")
    assert server.writes == []


def test_jobs_without_a_queue_are_in_the_default_queue_of_the_installation(kbatch: Command, server: Server) -> None:
    batch = job("batch", set_="sweep")
    del batch["metadata"]["labels"]["kbatch.dev/queue"]
    metadata = {"name": "kb", "namespace": "kbatch-system", "annotations": {"kbatch.dev/default-queue": "batch"}}
    server.answers |= {
        f"{ROOT}/podgroups": a_list([]),
        "/apis/batch/v1/jobs": a_list([batch]),
        "/api/v1/configmaps": a_list([{"metadata": metadata, "data": {"scheduler.yaml": "actions: []"}}]),
    }
    assert [one["queue"] for one in json.loads(kbatch("job-sets", "-o", "json").stdout)] == ["batch"]
    server.refusals = {"/api/v1/configmaps": 403, "/api/v1/namespaces/kbatch-system/configmaps": 403}
    assert [one["queue"] for one in json.loads(kbatch("job-sets", "-o", "json").stdout)] == ["default"]
