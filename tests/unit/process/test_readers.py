"""Who may read the metrics."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from kbatch.kube.errors import ApiError, NoAnswerError
from kbatch.process.certificates import CertificateError, Certificates
from kbatch.process.health import Health, HealthServer
from kbatch.process.readers import AT_ONCE, BELIEVED_SECONDS, MOST_KNOWN, MOST_TOKEN, REFUSED_SECONDS, Readers
from tests.unit.webhooks.test_certificates import mount

PROMETHEUS = {"username": "system:serviceaccount:monitoring:prometheus", "groups": ["system:authenticated"]}


class Server:
    """An API server that knows the token `good` of Prometheus, which may get /metrics, and `other`, which may not."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.error: Exception | None = None
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.most = self.now = 0
        self.crowded = asyncio.Event()

    async def request(self, method: str, path: str, *, body: Any = None, **_: Any) -> bytes:
        assert method == "POST"
        self.asked.append((path.rpartition("/")[2], body["spec"]))
        self.now += 1
        self.most = max(self.most, self.now)
        if self.now == AT_ONCE:
            self.crowded.set()
        try:
            await self.goes_on.wait()
        finally:
            self.now -= 1
        if self.error is not None:
            raise self.error
        if path == "/apis/authentication.k8s.io/v1/tokenreviews":
            token = body["spec"]["token"]
            user = {**PROMETHEUS, "username": PROMETHEUS["username"] if token == "good" else "somebody"}
            return json.dumps({"status": {"authenticated": token in {"good", "other"}, "user": user}}).encode()
        assert path == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        may = body["spec"]["user"] == PROMETHEUS["username"]
        may &= body["spec"]["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}
        return json.dumps({"status": {"allowed": may}}).encode()

    def stream(self, path: str, **_: Any) -> Any:
        raise AssertionError(path)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("header", "status", "questions"),
    [
        ("", 401, 0),
        ("Basic dXNlcjpwYXNz", 401, 0),
        ("Bearer", 401, 0),
        (f"Bearer {'x' * (MOST_TOKEN + 1)}", 401, 0),
        ("Bearer wrong", 401, 1),
        ("Bearer other", 403, 2),
        ("Bearer good", 200, 2),
        ("bearer  good", 200, 2),
    ],
)
async def test_only_an_account_that_may_get_the_path_reads(header: str, status: int, questions: int) -> None:
    server = Server()
    assert await Readers(server).status(header, "/metrics") == status
    assert len(server.asked) == questions


async def test_what_it_may_is_asked_for_each_path_with_all_that_is_known_of_it() -> None:
    server = Server()
    readers = Readers(server)
    assert await readers.status("Bearer good", "/metrics") == 200
    assert server.asked[1][1] | {"uid": "", "extra": {}} == {
        "user": PROMETHEUS["username"], "groups": PROMETHEUS["groups"], "uid": "", "extra": {},
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    }  # fmt: skip
    assert await readers.status("Bearer good", "/configz") == 403


async def test_an_answer_is_believed_for_a_while_a_refusal_for_less() -> None:
    server, clock = Server(), Clock()
    readers = Readers(server, clock)
    for header, seconds in (("Bearer good", BELIEVED_SECONDS), ("Bearer other", REFUSED_SECONDS)):
        server.asked.clear()
        for later in (0.0, seconds - 1.0):
            clock.now += later
            await readers.status(header, "/metrics")
            assert len(server.asked) == 2
        clock.now += 2.0
        await readers.status(header, "/metrics")
        assert len(server.asked) == 4


@pytest.mark.parametrize(
    "error", [ApiError(403, "Forbidden"), NoAnswerError("POST", "/", sent=False, why="refused"), TimeoutError()]
)
async def test_what_cannot_be_found_out_is_shown_to_nobody_and_asked_again(error: Exception) -> None:
    server = Server()
    readers = Readers(server)
    server.error = error
    assert await readers.status("Bearer good", "/metrics") == 503
    server.error = None
    assert await readers.status("Bearer good", "/metrics") == 200


async def test_many_wrong_tokens_are_few_questions_at_a_time_and_little_memory() -> None:
    server = Server()
    readers = Readers(server)
    server.goes_on.clear()
    asking = [asyncio.create_task(readers.status(f"Bearer {n}", "/metrics")) for n in range(MOST_KNOWN + 50)]
    await server.crowded.wait()
    server.goes_on.set()
    assert set(await asyncio.gather(*asking)) == {401}
    assert server.most == AT_ONCE
    assert len(readers._known) <= MOST_KNOWN


@asynccontextmanager
async def serving(folder: Path | None, readers: Readers | None) -> AsyncIterator[HealthServer]:
    certificates = Certificates(folder) if folder is not None else None
    async with HealthServer(
        Health(), CollectorRegistry(), address="127.0.0.1", health_port=0, metrics_port=0,
        certificates=certificates, readers=readers,
    ) as server:  # fmt: skip
        yield server


async def ask(url: str, token: str = "", trusting: Path | None = None) -> int:
    context = ssl.create_default_context(cafile=trusting) if trusting is not None else ssl.create_default_context()
    context.check_hostname = False
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with aiohttp.ClientSession(headers=headers) as session, session.get(url, ssl=context) as answer:
        return answer.status


async def test_metrics_are_shown_by_tls_to_readers_and_the_probes_to_everybody(tmp_path: Path) -> None:
    mount(tmp_path, "first")
    trusted = tmp_path / "tls.crt"
    async with serving(tmp_path, Readers(Server())) as server:
        base = f"https://127.0.0.1:{server.metrics_port}"
        assert await ask(f"{base}/metrics", trusting=trusted) == 401
        assert await ask(f"{base}/metrics", "wrong", trusted) == 401
        assert await ask(f"{base}/metrics", "other", trusted) == 403
        assert await ask(f"{base}/metrics", "good", trusted) == 200
        assert await ask(f"{base}/configz", "good", trusted) == 403
        assert await ask(f"{base}/nothing", trusting=trusted) == 401
        with pytest.raises(aiohttp.ClientError):
            await ask(f"http://127.0.0.1:{server.metrics_port}/metrics", "good")
        assert await ask(f"http://127.0.0.1:{server.health_port}/healthz") == 200


async def test_a_renewed_certificate_of_the_metrics_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbatch.process.health.RELOAD_SECONDS", 0.01)
    mount(tmp_path, "first")
    async with serving(tmp_path, None) as server:
        url = f"https://127.0.0.1:{server.metrics_port}/metrics"
        (tmp_path / "known.crt").write_bytes((tmp_path / "tls.crt").read_bytes())
        assert await ask(url, trusting=tmp_path / "known.crt") == 200
        (tmp_path / "tls.crt").write_text("half of a renewal")
        assert await ask(url, trusting=tmp_path / "known.crt") == 200
        mount(tmp_path, "second")
        async with asyncio.timeout(10):
            while True:
                try:
                    assert await ask(url, trusting=tmp_path / "tls.crt") == 200
                except aiohttp.ClientError:
                    continue
                break


async def test_a_certificate_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match=r"tls\.crt"):
        async with serving(tmp_path, None):
            pass
