"""A small API server that answers what a test tells it to: for what a real one cannot be made to do."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from aiohttp import web

from kbatch.kube.client import Client
from kbatch.kube.credentials import Credentials, FixedToken, Token

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class FakeServer:
    """Answers each request with the next of `answers`; keeps the requests with their bodies."""

    answers: list[Answer] = field(default_factory=list)
    requests: list[tuple[str, str, bytes]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    url: str = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path_qs, await request.read()))
        self.headers.append(dict(request.headers))
        if not self.answers:
            return web.json_response({"message": "the test expected no further request"}, status=418)
        return await self.answers.pop(0)(request)

    def client(self, token: Token | None = None) -> Client:
        return Client(Credentials(server=self.url, token=token or FixedToken()), user_agent="kbatch-test/0")


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[FakeServer]:
    fake = FakeServer()
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", fake.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield fake
    finally:
        await runner.cleanup()


def says(body: object, status: int = 200, **headers: str) -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.json_response(body, status=status, headers=named)

    return answer


def refuses(status: int, reason: str = "", message: str = "", cause: str = "", **headers: str) -> Answer:
    details = {"causes": [{"reason": cause, "message": message}]} if cause else {}
    body = {"kind": "Status", "code": status, "reason": reason, "message": message, "details": details}
    return says(body, status, **headers)


async def hangs_up(request: web.Request) -> web.StreamResponse:
    """Take the request and cut the connection: the answer is lost."""
    assert request.transport is not None
    request.transport.close()
    return web.Response()


def streams(*chunks: bytes, then: Callable[[web.Request], Awaitable[None]] | None = None) -> Answer:
    """Send chunks as they are, cut anywhere; `then` may hold the response open."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if then is not None:
            await then(request)
        return response

    return answer
