"""A proxy that a client takes for its API server: plain HTTP towards the client, TLS towards the server.

It runs in a thread with an event loop of its own. Requests pass as they are, headers with the client's token included;
what a `Script` draws happens to them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import ssl
import threading
from typing import Self

import aiohttp
from aiohttp import web

from tests.e2e.proxy.faults import WATCH_ACTIONS, Action, Fault, Script

_NOT_PASSED_ON = frozenset({"connection", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"})
_CHUNK = 2**16


class Proxy:
    """Stands before one API server while its context is open.

    Args:
        server: the API server's URL.
        authority: its certificate authority (PEM); None where the server speaks plain HTTP.
        script: what goes wrong.
    """

    def __init__(self, server: str, authority: bytes | None, script: Script) -> None:
        self.url = ""
        """Where the client finds it, once the context is open."""
        self.script = script
        self._server = server.rstrip("/")
        self._tls: ssl.SSLContext | bool = True
        if authority is not None:
            self._tls = ssl.create_default_context(cadata=authority.decode("ascii"))
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._done: asyncio.Event | None = None
        self._session: aiohttp.ClientSession | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._main, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10)
        if self._failure is not None:
            raise RuntimeError("the proxy did not start") from self._failure
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        assert self._done is not None
        self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join(timeout=15)

    def _main(self) -> None:
        try:
            asyncio.run(self._run())
        except Exception as error:  # noqa: BLE001 - shown to whoever waits for the start
            self._failure = error
            self._ready.set()

    async def _run(self) -> None:
        self._loop, self._done = asyncio.get_running_loop(), asyncio.Event()
        connector = aiohttp.TCPConnector(limit=0, ssl=self._tls)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as session:
            session._retry_connection = False  # the client's request is sent on once, as it was sent here once
            self._session = session
            runner = web.ServerRunner(web.Server(self._handle, access_log=None), shutdown_timeout=0.1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.url = "http://{}:{}".format(*runner.addresses[0][:2])
            self._ready.set()
            await self._done.wait()
            await runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        watching = request.method == "GET" and request.query.get("watch") in {"true", "1"}
        method = "WATCH" if watching else request.method
        further = "?continue" if request.query.get("continue") else ""
        drawn = self.script.draw(method, request.path + further)
        if drawn is None:
            return await self._forward(request)
        fault, seconds = drawn
        if fault.action in WATCH_ACTIONS:
            return await self._forward(request, fault.action, seconds)
        if fault.action is Action.REFUSE:
            return _refusal(fault)
        if fault.action is Action.DROP:
            return _hang_up(request)
        if fault.action is Action.SLOW:
            await asyncio.sleep(seconds)
            return await self._forward(request)
        return await self._forward(request, fault.action, seconds)

    async def _forward(
        self, request: web.BaseRequest, action: Action | None = None, seconds: float = 0.0
    ) -> web.StreamResponse:
        assert self._session is not None
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _NOT_PASSED_ON}
        path = request.raw_path if self.script.page is None else _paged(request.raw_path, self.script.page)
        body = await request.read()
        try:
            async with self._session.request(
                request.method,
                self._server + path,
                headers=headers,
                data=body or None,
                allow_redirects=False,
            ) as answer:
                if action is Action.LOSE:
                    await answer.read()
                    return _hang_up(request)
                if action is Action.TRUNCATE:
                    return await _truncated(request, answer)
                if action is Action.LATE:
                    whole = await answer.read()
                    await asyncio.sleep(seconds)
                    return web.Response(status=answer.status, body=whole, headers=_passed(answer))
                return await self._pass(request, answer, action, seconds)
        except (aiohttp.ClientError, OSError):
            # As the server does that is killed: the client sees its connection end.
            return _hang_up(request)

    async def _pass(
        self, request: web.BaseRequest, answer: aiohttp.ClientResponse, action: Action | None, seconds: float
    ) -> web.StreamResponse:
        response = web.StreamResponse(status=answer.status, headers=_passed(answer))
        await response.prepare(request)
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        ends = action in {Action.CUT, Action.EXPIRE}
        with contextlib.suppress(ConnectionResetError):
            while True:
                try:
                    async with asyncio.timeout_at(end if ends else None):
                        chunk = await answer.content.read(_CHUNK)
                except TimeoutError:
                    break
                if not chunk:
                    await response.write_eof()
                    return response
                if action is Action.DELAY:
                    await asyncio.sleep(seconds)
                await response.write(chunk)
            if action is Action.EXPIRE:
                await response.write(_EXPIRED)
                await response.write_eof()
                return response
            await response.write(b'{"type":"MODIFIED","obj')
        return _hang_up(request)


def _paged(path: str, most: int) -> str:
    """A request for a list in pages of `most` objects, if it asks for larger ones."""
    return re.sub(r"(?<=[?&]limit=)\d+", lambda asked: str(min(most, int(asked[0]))), path)


def _refusal(fault: Fault) -> web.Response:
    reasons = {
        403: "Forbidden",
        409: "Conflict",
        410: "Expired",
        429: "TooManyRequests",
        500: "InternalError",
        503: "ServiceUnavailable",
    }
    status = {
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": fault.status,
        "reason": reasons.get(fault.status, ""), "message": fault.message,
    }  # fmt: skip
    headers = {"Retry-After": f"{fault.retry_after:g}"} if fault.retry_after is not None else {}
    return web.json_response(status, status=fault.status, headers=headers)


async def _truncated(request: web.BaseRequest, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    """Half of an answer, with the length of the whole."""
    whole = await answer.read()
    response = web.StreamResponse(status=answer.status, headers=_passed(answer))
    response.content_length = len(whole)
    with contextlib.suppress(ConnectionResetError):
        await response.prepare(request)
        await response.write(whole[: len(whole) // 2])
    return _hang_up(request)


def _hang_up(request: web.BaseRequest) -> web.Response:
    """Close the client's connection; what is returned reaches nobody."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def _passed(answer: aiohttp.ClientResponse) -> dict[str, str]:
    left_out = _NOT_PASSED_ON | {"content-length"}
    return {name: value for name, value in answer.headers.items() if name.lower() not in left_out}


_EXPIRED = (
    json.dumps(
        {
            "type": "ERROR",
            "object": {
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410,
                "reason": "Expired", "message": "too old resource version: injected by the test's proxy",
            },
        }
    ).encode()
    + b"\n"
)  # fmt: skip
