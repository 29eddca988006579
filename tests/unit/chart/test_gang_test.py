"""The program of `helm test` that places a gang, against a small API server: whatever happens, it clears up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.unit.chart.test_webhook import pem, server_context

NAME = "kbatch-gang-test"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def _answer(self, status: int, body: Any) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        if name in self.server.made and f"{NAME}-1" in self.server.made:
            self.server.whole.set()
        self._answer(200 if name in self.server.made else 404, self.server.made.get(name, {}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = body["metadata"]["name"]
        if name == self.server.refuses:
            self._answer(403, {"message": "exceeded quota"})
            return
        if self.server.binds:
            body = {**body, "spec": {**body["spec"], "nodeName": "n"}, "status": {"phase": "Running"}}
        self.server.made[name] = body
        self.server.ever.append(name)
        self._answer(201, body)

    def do_DELETE(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        gone = self.server.made.pop(self.path.rpartition("/")[2], None)
        self._answer(404 if gone is None else 200, {})

    def log_message(self, *arguments: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    """Keeps objects by name; `whole`: somebody has looked for what was made since the last pod was there."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.made: dict[str, Any] = {}
        self.ever: list[str] = []
        self.refuses = ""
        self.binds = False
        self.whole = threading.Event()


@pytest.fixture
def server(render: Callable[..., Any], tmp_path: Path) -> Iterator[Server]:
    data = render({"webhook": {"url": "https://127.0.0.1:40123"}}).one("Secret", "kbatch-webhook-certificates")["data"]
    (tmp_path / "ca.crt").write_text(pem(data, "ca.crt"))
    (tmp_path / "token").write_text("t")
    server = Server()
    # The handshake is the handler's: a program that is ended in the middle of one would keep others from being heard.
    server.socket = server_context(data, tmp_path).wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def begin(server: Server, tmp_path: Path, default: Any) -> Callable[[int], subprocess.Popen[str]]:
    """Starts the program as it stands in the manifest, but for the seconds that it may take."""

    def start(seconds: int) -> subprocess.Popen[str]:
        (container,) = default.one("Pod", NAME)["spec"]["containers"]
        *arguments, usual = container["args"]
        assert usual == "120"
        where = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.server_port)}
        return subprocess.Popen(
            [sys.executable, *container["command"][1:], *arguments, str(seconds)],
            env={**os.environ, **where, "SERVICE_ACCOUNT": str(tmp_path)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    return start


def test_it_clears_up_where_the_gang_ran(server: Server, begin: Callable[[int], subprocess.Popen[str]]) -> None:
    server.binds = True
    said, errors = (test := begin(60)).communicate(timeout=30)
    assert (test.returncode, errors) == (0, "")
    assert said == f"both pods were bound (n, n) and PodGroup {NAME} is Running\n"
    assert (server.ever, server.made) == ([NAME, f"{NAME}-0", f"{NAME}-1"], {})


def test_it_clears_up_where_the_gang_did_not_run_in_time(
    server: Server, begin: Callable[[int], subprocess.Popen[str]]
) -> None:
    _, errors = (test := begin(1)).communicate(timeout=30)
    assert (test.returncode, server.made) == (1, {})
    assert errors.startswith("not whole within 1 s: 0 of 2 pods bound")


def test_it_clears_up_where_a_pod_is_refused(server: Server, begin: Callable[[int], subprocess.Popen[str]]) -> None:
    server.refuses = f"{NAME}-1"
    _, errors = (test := begin(60)).communicate(timeout=30)
    assert (test.returncode, server.ever, server.made) == (1, [NAME, f"{NAME}-0"], {})
    assert "403" in errors
    assert "exceeded quota" in errors


def test_it_clears_up_where_its_own_pod_is_deleted(
    server: Server, begin: Callable[[int], subprocess.Popen[str]]
) -> None:
    test = begin(60)
    assert server.whole.wait(30)
    assert server.made.keys() == {NAME, f"{NAME}-0", f"{NAME}-1"}
    test.send_signal(signal.SIGTERM)
    _, errors = test.communicate(timeout=30)
    assert (test.returncode, errors, server.made) == (1, "the test was ended before both pods ran\n", {})


@pytest.mark.parametrize("name", [NAME, "kbatch-webhook-test"])
def test_helm_deletes_a_test_that_failed_and_shows_its_log(default: Any, name: str) -> None:
    annotations = default.one("Pod", name)["metadata"]["annotations"]
    assert annotations["helm.sh/hook-delete-policy"] == "before-hook-creation,hook-succeeded,hook-failed"
    assert annotations["helm.sh/hook-output-log-policy"] == "hook-failed"
