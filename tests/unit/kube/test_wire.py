"""The HTTP protocol of requests, against a server that says exactly what a test tells it to, byte for byte."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from kbatch.kube.wire import Answer, BrokenAnswerError, NotConnectedError, Wire

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Raw:
    """A server that reads whole requests and answers each with the next of `answers`; None hangs up."""

    answers: list[list[bytes] | None] = field(default_factory=list)
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    hold: asyncio.Event = field(default_factory=asyncio.Event)
    """What comes after an empty part is sent only when this is set."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.tasks.add(cast("asyncio.Task[None]", asyncio.current_task()))
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    (int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
                )
                self.requests.append(head + await reader.readexactly(length))
                parts = self.answers.pop(0) if self.answers else None
                if parts is None:
                    break
                for part in parts:
                    if not part:
                        await self.hold.wait()
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(0)
                if b"".join(parts).endswith(b"THE END"):
                    break
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async def asked(self, count: int = 1) -> None:
        """Wait until so many requests have come."""
        async with asyncio.timeout(5):
            while len(self.requests) < count:  # noqa: ASYNC110  (told by the bytes of another task)
                await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def serving(
    *answers: list[bytes] | None, tls: ssl.SSLContext | None = None, trust: ssl.SSLContext | None = None, limit: int = 4
) -> AsyncIterator[tuple[Raw, Wire]]:
    raw = Raw(list(answers))
    server = await asyncio.start_server(raw.serve, "127.0.0.1", 0, ssl=tls)
    raw.port = server.sockets[0].getsockname()[1]
    url = f"{'https' if tls else 'http'}://127.0.0.1:{raw.port}/base"
    async with Wire(url, tls=trust, server_name=None, headers={"User-Agent": "test"}, connections=limit) as wire:
        yield raw, wire
        raw.hold.set()
    server.close()
    if raw.tasks:
        await asyncio.wait(raw.tasks, timeout=5)


async def ask(
    wire: Wire, target: str = "/x", *, method: str = "POST", body: bytes | None = b"{}", seconds: float = 5.0
) -> Answer:
    return await wire.request(method, target, headers={}, body=body, timeout_seconds=seconds, connect_seconds=5.0)


def ok(body: bytes = b"hello", *, status: bytes = b"200 OK", headers: bytes = b"") -> list[bytes]:
    return [b"HTTP/1.1 " + status + b"\r\nContent-Length: %d\r\n" % len(body) + headers + b"\r\n" + body]


async def test_a_request_is_one_write_with_its_length_and_answers_share_a_connection() -> None:
    async with serving(ok(), ok(b"", status=b"201 Created"), ok(b"gone", status=b"404 Not Found")) as (raw, wire):
        assert await ask(wire) == Answer(200, b"hello", None)
        assert await ask(wire) == Answer(201, b"", None)
        assert (await ask(wire, method="GET", body=None)).status == 404
        assert raw.connections == 1
        first, _, last = raw.requests
        assert first.startswith(b"POST /base/x HTTP/1.1\r\nHost: 127.0.0.1:")
        assert b"\r\nUser-Agent: test\r\n" in first
        assert first.endswith(b"Content-Length: 2\r\n\r\n{}")
        assert b"Content-Length" not in last


async def test_a_post_without_a_body_says_so() -> None:
    async with serving(ok()) as (raw, wire):
        await ask(wire, body=None)
        assert b"Content-Length: 0\r\n" in raw.requests[0]


@pytest.mark.parametrize("size", [1, 3, 1000])
async def test_answers_may_arrive_in_any_pieces(size: int) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunked = head + b"5;ext=1\r\nhello\r\n0A\r\n, whole wo\r\n3\r\nrld\r\n0\r\n\r\n"
    known = b"".join(ok(b"x" * 100, headers=b"Retry-After: 7\r\n"))
    trailed = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nTrailer: 1\r\n\r\n"
    answers = [[text[at : at + size] for at in range(0, len(text), size)] for text in (chunked, known, trailed, known)]
    async with serving(*answers) as (raw, wire):
        assert (await ask(wire)).body == b"hello, whole world"
        assert await ask(wire) == Answer(200, b"x" * 100, "7")
        assert (await ask(wire)).body == b"a"
        assert (await ask(wire)).body == b"x" * 100
        assert raw.connections == 1


async def test_a_body_without_a_length_ends_with_its_connection() -> None:
    async with serving([b"HTTP/1.1 200 OK\r\n\r\n", b"all of it, ", b"THE END"], ok()) as (raw, wire):
        assert (await ask(wire)).body == b"all of it, THE END"
        assert (await ask(wire)).body == b"hello"
        assert raw.connections == 2


async def test_interim_answers_are_passed_over_and_204_has_no_body() -> None:
    async with serving([b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"], ok()) as (raw, wire):
        assert await ask(wire) == Answer(204, b"", None)
        assert (await ask(wire)).body == b"hello"
        assert raw.connections == 1


async def test_a_connection_that_the_server_ends_is_not_used_again() -> None:
    async with serving(ok(headers=b"Connection: close\r\n"), ok()) as (raw, wire):
        assert (await ask(wire)).body == b"hello"
        assert (await ask(wire)).body == b"hello"
        assert raw.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhalf, THE END"],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n50\r\nTHE END"],
        [b"SSH-2.0-OpenSSH_9.2\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n"],
        [b"x" * 70_000],
    ],
    ids=[
        "cut",
        "cut in the body",
        "cut in a chunk",
        "no http",
        "length",
        "encoding",
        "chunk",
        "long chunk",
        "endless head",
    ],
)
async def test_an_answer_that_is_none_breaks_its_connection_and_no_other(answer: list[bytes] | None) -> None:
    async with serving(answer, ok()) as (raw, wire):
        with pytest.raises(BrokenAnswerError):
            await ask(wire)
        assert (await ask(wire)).body == b"hello"
        assert raw.connections == 2


async def test_what_nobody_asked_for_is_no_answer_to_the_next() -> None:
    async with serving([*ok(b"first"), *ok(b"stray")], ok(b"second")) as (_, wire):
        assert (await ask(wire)).body == b"first"
        await asyncio.sleep(0.02)  # let the stray bytes come
        assert (await ask(wire)).body == b"second"


@pytest.mark.parametrize("way", ["late", "cancelled"])
async def test_a_late_answer_is_not_taken_for_the_next_ones(way: str) -> None:
    async with serving([b"", *ok(b"late")], ok(b"mine")) as (raw, wire):
        if way == "late":
            with pytest.raises(TimeoutError):
                await ask(wire, seconds=0.05)
        else:
            task = asyncio.create_task(ask(wire))
            await raw.asked()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        raw.hold.set()
        assert (await ask(wire)).body == b"mine"
        assert raw.connections == 2


async def test_each_request_on_a_kept_connection_has_its_own_time() -> None:
    loop = asyncio.get_running_loop()
    async with serving(ok(), ok(), [b"", *ok(b"slow")], [b"", *ok()]) as (raw, wire):
        await ask(wire, seconds=5.0)
        await ask(wire, seconds=0.05)
        loop.call_later(0.1, raw.hold.set)
        assert (await ask(wire, seconds=5.0)).body == b"slow", "the time of the one before is no longer its own"
        assert raw.connections == 1
        raw.hold.clear()
        began = loop.time()
        with pytest.raises(TimeoutError):
            await ask(wire, seconds=0.05)
        assert 0.04 < loop.time() - began < 2.0, "nor a longer one"


async def test_a_request_that_has_more_time_than_the_one_before_is_late_in_the_end() -> None:
    loop = asyncio.get_running_loop()
    async with serving(ok(), [b"", *ok()]) as (_, wire):
        await ask(wire, seconds=0.02)
        began = loop.time()
        with pytest.raises(TimeoutError):
            await ask(wire, seconds=0.1)
        assert 0.09 < loop.time() - began < 2.0


async def test_a_kept_connection_that_died_is_not_used() -> None:
    async with serving(ok(b"THE END"), ok()) as (raw, wire):
        await ask(wire)
        while any(one.usable for one in wire._idle):  # noqa: ASYNC110  (the end reaches this side a moment later)
            await asyncio.sleep(0.001)
        assert (await ask(wire)).body == b"hello"
        assert raw.connections == 2


async def test_no_more_connections_than_allowed_and_everybody_gets_a_turn() -> None:
    async with serving(*[ok(b"%d" % number) for number in range(40)], limit=3) as (raw, wire):
        answers = await asyncio.gather(*(ask(wire) for _ in range(40)))
        assert {int(answer.body) for answer in answers} == set(range(40))
        assert raw.connections == 3


async def test_who_waits_for_a_turn_in_vain_was_not_sent() -> None:
    async with serving([b"", *ok()], ok(), limit=1) as (raw, wire):
        first = asyncio.create_task(ask(wire))
        await raw.asked()
        with pytest.raises(NotConnectedError):
            await ask(wire, seconds=0.05)
        raw.hold.set()
        await first
        assert (await ask(wire)).body == b"hello"
        assert len(raw.requests) == 2


async def test_connections_can_be_had_before_they_are_needed() -> None:
    async with serving(*[ok(b"%d" % number) for number in range(6)], limit=3) as (raw, wire):
        assert await wire.open(2, connect_seconds=5.0) == 2
        assert await wire.open(9, connect_seconds=5.0) == 1, "no more than allowed, and those there are count"
        answers = await asyncio.gather(*(ask(wire) for _ in range(6)))
        assert {int(answer.body) for answer in answers} == set(range(6))
        assert raw.connections == 3
        assert not await wire.open(3, connect_seconds=5.0)


async def test_connections_that_cannot_be_had_are_no_error_yet() -> None:
    wire = Wire("http://127.0.0.1:1", tls=None, server_name=None, headers={}, connections=4)
    async with wire:
        assert await wire.open(4, connect_seconds=1.0) == 0
        with pytest.raises(NotConnectedError):
            await ask(wire)


async def test_nobody_there() -> None:
    wire = Wire("http://127.0.0.1:1", tls=None, server_name=None, headers={}, connections=1)
    async with wire:
        for _ in range(3):  # a failed connection gives its place back
            with pytest.raises(NotConnectedError):
                await ask(wire)


async def test_nothing_can_smuggle_a_line() -> None:
    async with serving() as (raw, wire):
        with pytest.raises(ValueError, match="request line"):
            await ask(wire, "/x HTTP/1.1\r\nEvil: 1")
        with pytest.raises(ValueError, match="Authorization"):
            await wire.request(
                "GET", "/x", headers={"Authorization": "a\r\nb"}, body=None, timeout_seconds=1, connect_seconds=1
            )
        assert not raw.requests


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    key, made = folder / "tls.key", folder / "tls.crt"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", made],
        check=True, capture_output=True,
    )  # fmt: skip
    return made, key


async def test_tls(certificate: tuple[Path, Path]) -> None:
    made, key = certificate
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(made, key)
    trust = ssl.create_default_context(cafile=str(made))
    big = b"y" * 300_000
    async with serving(ok(), ok(big), tls=tls, trust=trust) as (raw, wire):
        assert (await ask(wire)).body == b"hello"
        assert (await ask(wire, body=b"z" * 200_000)).body == big
        assert raw.connections == 1
    async with serving(ok(), tls=tls) as (raw, wire):  # without that authority
        with pytest.raises(NotConnectedError, match="certificate"):
            await ask(wire)
        assert not raw.requests


async def test_the_guard_is_asked_when_there_is_a_connection_at_last() -> None:
    """Who waited for it may have lost the right to write meanwhile."""
    may_write = True

    def guard() -> None:
        if not may_write:
            raise PermissionError("lost meanwhile")

    def guarded(wire: Wire) -> Awaitable[Answer]:
        return wire.request("POST", "/x", headers={}, body=b"{}", timeout_seconds=5.0, connect_seconds=5.0, guard=guard)

    async with serving([b"", *ok()], ok(), limit=1) as (raw, wire):
        first = asyncio.ensure_future(guarded(wire))
        await raw.asked()
        second = asyncio.ensure_future(guarded(wire))
        await asyncio.sleep(0)
        may_write = False
        raw.hold.set()
        assert (await first).status == 200
        with pytest.raises(PermissionError):
            await second
        assert len(raw.requests) == 1
        may_write = True
        assert (await guarded(wire)).status == 200, "the connection was not harmed"
        assert raw.connections == 1
