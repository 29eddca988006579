"""The supervisor that runs a Deployment's process on this machine, against a real API server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from kbatch.localcluster import processes
from kbatch.localcluster.host import Assignment, Folder, Preparation, Supervisor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from kbatch.localcluster.api import Api
    from tests.e2e.conftest import ControlPlane

pytestmark = pytest.mark.control_plane

RELEASE = "toy"

# Serves what it was started with and what it reads now; GET /die makes it unhealthy.
PROGRAM = """\
import http.server, json, os, pathlib, sys
healthy = True
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global healthy
        if self.path == "/die":
            healthy = False
        status = 200 if healthy or self.path != "/healthz" else 500
        settings = pathlib.Path(sys.argv[1].partition("=")[2])
        seen = {"arguments": sys.argv[1:], "environment": dict(os.environ), "settings": settings.read_text()}
        body = json.dumps(seen)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body.encode())
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["HEALTH_PORT"])), Handler).serve_forever()
"""


def deployment(namespace: str, level: str) -> dict[str, Any]:
    labels = {"app.kubernetes.io/instance": RELEASE, "app.kubernetes.io/component": "toy"}
    probe = {"httpGet": {"path": "/healthz", "port": "health"}, "periodSeconds": 1, "failureThreshold": 1}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "toy", "namespace": namespace, "labels": labels},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "serviceAccountName": "toy",
                    "terminationGracePeriodSeconds": 2,
                    "containers": [
                        {
                            "name": "toy",
                            "image": "toy",
                            "command": ["toy-program"],
                            "args": ["--settings=/etc/toy/level", f"--level={level}", "--me=$(POD_NAME)"],
                            "env": [
                                {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                                {"name": "HEALTH_PORT", "value": "8081"},
                            ],
                            "ports": [{"name": "health", "containerPort": 8081}],
                            "startupProbe": probe | {"failureThreshold": 30},
                            "readinessProbe": probe,
                            "livenessProbe": probe,
                            "volumeMounts": [{"name": "settings", "mountPath": "/etc/toy"}],
                        }
                    ],
                    "volumes": [{"name": "settings", "configMap": {"name": "toy"}}],
                },
            },
        },
    }


class Toy:
    """The Deployment's process as seen from outside."""

    def __init__(self, namespace: str, folder: Folder, supervisor: Supervisor) -> None:
        self.namespace = namespace
        self.folder = folder
        self.supervisor = supervisor

    def state(self) -> Any:
        return self.folder.states().get("toy")

    def ready(self) -> bool:
        state = self.state()
        return bool(state and state.ready and state.pid)

    def ask(self, path: str = "/") -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.state().ports['health']}{path}", timeout=5) as answer:
            return json.load(answer)


async def until(condition: Callable[[], bool], *, within: float = 20.0) -> None:
    def holds() -> bool:
        try:
            return condition()
        except (urllib.error.URLError, ConnectionError):  # asked just as it was ended, to be started anew
            return False

    deadline = time.monotonic() + within
    while not await asyncio.to_thread(holds):
        assert time.monotonic() < deadline, "the awaited condition did not come true in time"
        await asyncio.sleep(0.05)


@pytest.fixture
def api(control_plane: ControlPlane) -> Any:
    with control_plane.api() as api:
        yield api


@pytest.fixture
async def toy(api: Api, control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Toy]:
    namespace = f"host-{uuid.uuid4().hex[:8]}"
    api.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
    api.post(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "toy"}})
    api.post(f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": "toy"}, "data": {"level": "one"}})
    api.post(f"/apis/apps/v1/namespaces/{namespace}/deployments", deployment(namespace, "first"))
    script = tmp_path / "toy-program"
    script.write_text(f"#!{sys.executable}\n{PROGRAM}")
    script.chmod(0o755)
    folder = Folder(tmp_path / "host")
    assignment = Assignment(str(control_plane.kubeconfig), namespace, RELEASE)
    folder.assign(assignment)
    preparation = Preparation(folder, api, assignment, program=lambda name: str(tmp_path / name))
    supervisor = Supervisor(folder, preparation)
    running = asyncio.create_task(supervisor.run())
    toy = Toy(namespace, folder, supervisor)
    try:
        await until(toy.ready)
        yield toy
    finally:
        supervisor.stop()
        await running
        control_plane.run_kubectl("delete", "namespace", namespace, "--wait=false")


async def test_a_process_lives_as_its_deployment_says(toy: Toy, api: Api, control_plane: ControlPlane) -> None:
    seen = await asyncio.to_thread(toy.ask)
    level, me = seen["arguments"][1:]
    assert level == "--level=first"
    assert me.startswith("--me=toy-")
    assert seen["environment"]["HEALTH_PORT"] != "8081"
    assert seen["settings"] == "one"

    # Its credentials are its ServiceAccount's, not ours.
    who = control_plane.run_kubectl("auth", "whoami", f"--kubeconfig={seen['environment']['KUBECONFIG']}", "-o", "json")
    user = json.loads(who.stdout)["status"]["userInfo"]["username"]
    assert user == f"system:serviceaccount:{toy.namespace}:toy"

    # A changed ConfigMap reaches the running process.
    pid = toy.state().pid
    path = f"/api/v1/namespaces/{toy.namespace}/configmaps/toy"
    api.request("PATCH", path, {"data": {"level": "two"}}, content_type="application/merge-patch+json")
    await until(lambda: toy.ask()["settings"] == "two")
    assert toy.state().pid == pid

    # A killed process is started again at once.
    os.kill(pid, signal.SIGKILL)
    await until(lambda: toy.ready() and toy.state().pid != pid)
    assert toy.state().restarts == 1

    # A changed template replaces the process, and the old one is gone.
    pid = toy.state().pid
    api.request(
        "PATCH", f"/apis/apps/v1/namespaces/{toy.namespace}/deployments/toy", deployment(toy.namespace, "second"),
        content_type="application/merge-patch+json",
    )  # fmt: skip
    await until(lambda: toy.ready() and toy.ask()["arguments"][1] == "--level=second")
    assert not processes.alive(pid)

    # A deleted Deployment ends its process.
    pid = toy.state().pid
    api.request("DELETE", f"/apis/apps/v1/namespaces/{toy.namespace}/deployments/toy")
    await until(lambda: not processes.alive(pid))
    await until(lambda: toy.state() is None)


async def test_a_process_that_fails_its_liveness_probe_is_restarted(toy: Toy) -> None:
    pid = toy.state().pid
    await asyncio.to_thread(toy.ask, "/die")
    await until(lambda: toy.ready() and toy.state().pid != pid)
    assert "liveness" in toy.state().message
    assert not processes.alive(pid)


async def test_the_end_of_the_supervisor_ends_its_processes(toy: Toy) -> None:
    pid = toy.state().pid
    assert processes.alive(pid)
    toy.supervisor.stop()
    await until(lambda: not processes.alive(pid))
