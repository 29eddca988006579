"""Requests to the API server: one narrow seam that everything else in `kbatch.kube` goes through.

The rest of the code sees `Api` only, so tests put something else in its place. What is retried here: what certainly
was not carried out (no connection, 429 with Retry-After, a kind whose storage is still coming up), and, for requests
that may be sent twice without harm, lost connections and a server that is momentarily unable.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Final, Protocol, Self, TypedDict, Unpack
from urllib.parse import urlencode

import aiohttp
import msgspec
from yarl import URL

from kbatch.kube.backoff import Backoff
from kbatch.kube.credentials import Credentials
from kbatch.kube.errors import ApiError, Cause, CredentialsError, KubeError, NoAnswerError, NotLeadingError, error_from
from kbatch.kube.wire import NotConnectedError, Wire

__all__ = ["Api", "ApiError", "Cause", "Client", "CredentialsError", "KubeError", "NoAnswerError", "NotLeadingError"]

JSON: Final = "application/json"
APPLY: Final = "application/apply-patch+yaml"
MERGE: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"

CONNECTIONS: Final = 96
"""Requests under way at once. A default API server carries out 200 writes at a time, for all its clients together."""

ATTEMPTS: Final = 6
LONGEST_WAIT: Final = 30.0
"""Seconds of one Retry-After that are waited out; who is told to wait longer gets the error."""

TOKEN_SECONDS: Final = 30.0
"""How long a stream waits for a token; a request waits for one no longer than for its answer."""

_SAFE_TO_REPEAT: Final = frozenset({"GET", "HEAD", "DELETE"})
_MOMENTARY: Final = frozenset({500, 502, 503, 504})


Heard = Callable[[str, str, float, int], None]
"""Told of each attempt that was sent, or could not be for want of a connection: its method, or `WATCH`; its path; its
seconds until the answer was whole (of a watch: had begun); the answer's status, 0 for none."""


def _unheard(_method: str, _path: str, _seconds: float, _status: int) -> None:
    return None


class RequestOptions(TypedDict, total=False):
    """What may be said of a request besides its method and path: the keyword arguments of `Client.request`."""

    params: Mapping[str, str] | None
    body: object
    content_type: str
    idempotent: bool | None
    attempts: int
    timeout_seconds: float
    guard: Callable[[], None] | None


class Api(Protocol):
    """What the rest of kbatch needs of an API server."""

    async def request(self, method: str, path: str, **options: Unpack[RequestOptions]) -> bytes:
        """Send one request and return the body of a successful answer. See `Client.request`."""

    def stream(
        self, path: str, *, params: Mapping[str, str] | None = None, silence: float
    ) -> AbstractAsyncContextManager[AsyncIterator[list[bytes]]]:
        """Open a response of lines without end. See `Client.stream`."""


class Client:
    """A connection pool to one API server. Use as an async context manager.

    Args:
        credentials: where the server is, and who asks.
        user_agent: how the process calls itself.
        connections: requests under way at once.
        heard: told of each attempt, those that are repeated here too.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        user_agent: str = "kbatch",
        connections: int = CONNECTIONS,
        heard: Heard = _unheard,
    ) -> None:
        self._credentials = credentials
        self._headers = {"User-Agent": user_agent, "Accept": JSON, "Accept-Encoding": "identity"}
        self._connections = connections
        self._heard = heard
        self._wire: Wire | None = None
        self._requests: aiohttp.ClientSession | None = None
        self._streams: aiohttp.ClientSession | None = None
        self._refreshing = asyncio.Lock()

    @property
    def server(self) -> str:
        """The API server's URL."""
        return self._credentials.server

    async def __aenter__(self) -> Self:
        # Watches hold their connection for minutes: in the pool of the requests they would take the places of binds.
        # Through a proxy aiohttp does all; without one, requests go by the shorter way.
        if self._credentials.proxy is None:
            self._wire = Wire(
                self._credentials.server,
                tls=self._credentials.tls,
                server_name=self._credentials.server_name,
                headers=self._headers,
                connections=self._connections,
                prepare=_keep_alive,
            )
        else:
            self._requests = self._session(self._connections)
        self._streams = self._session(0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._wire is not None:
            await self._wire.__aexit__(kind, error, trace)
        for session in (self._requests, self._streams):
            if session is not None:
                await session.close()
        self._wire = self._requests = self._streams = None

    async def open_connections(self, count: int, *, seconds: float) -> int:
        """Have so many connections ready, for requests that begin all at once; how many could be made in this time."""
        return 0 if self._wire is None else await self._wire.open(count, connect_seconds=seconds)

    def _session(self, limit: int) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=limit,
            ssl=self._credentials.tls or True,
            keepalive_timeout=60.0,
            ttl_dns_cache=30,
            socket_factory=_socket,
        )
        session = aiohttp.ClientSession(
            connector=connector, headers=self._headers, auto_decompress=False, read_bufsize=2**18
        )
        # aiohttp would send a PUT a second time on its own, and a lost first answer would look like a conflict.
        session._retry_connection = False  # noqa: SLF001  (there is no public switch)
        return session

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = JSON,
        idempotent: bool | None = None,
        attempts: int = ATTEMPTS,
        timeout_seconds: float = 30.0,
        guard: Callable[[], None] | None = None,
    ) -> bytes:
        """Send one request, again where that is safe, and return the body of the answer.

        Args:
            method: the HTTP method.
            path: from the server's root, as `Kind.path` gives it.
            params: the query.
            body: bytes as they are, or anything that msgspec encodes.
            content_type: of the body; patches have types of their own.
            idempotent: whether carrying it out twice does no harm; unset: GET and DELETE, applies and merge patches.
            attempts: how often it is sent at most.
            timeout_seconds: for each attempt.
            guard: called before each attempt, at the last moment (a process may be stopped for minutes while it waits
                for a connection); raises where the request must not be sent any more.

        Raises:
            ApiError: the server refused it.
            NoAnswerError: it got no answer, or none that can be trusted.
            CredentialsError: there is no valid token to send.
        """
        if idempotent is None:
            idempotent = method in _SAFE_TO_REPEAT or (method == "PATCH" and content_type in {APPLY, MERGE, STRATEGIC})
        data = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        backoff = Backoff()
        renewed = False
        for attempt in range(1, attempts + 1):
            last = attempt == attempts
            try:
                return await self._once(method, path, params, data, content_type, timeout_seconds, guard)
            except NoAnswerError as error:
                if last or (error.sent and not idempotent):
                    raise
                wait = backoff.next()
            except ApiError as error:
                if error.status == 401 and not renewed:
                    renewed = True
                    self._credentials.token.invalidate()
                    if last:
                        raise
                    wait = 0.0
                elif last or not _worth_repeating(error, idempotent):
                    raise
                else:
                    wait = max(backoff.next(), error.retry_after or 0.0)
            await asyncio.sleep(wait)
        raise AssertionError("unreachable")  # the last attempt returned or raised

    async def _once(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        data: bytes | None,
        content_type: str,
        timeout_seconds: float,
        guard: Callable[[], None] | None,
    ) -> bytes:
        headers = await self._authorization(timeout_seconds)
        if data is not None:
            headers["Content-Type"] = content_type
        began = time.monotonic()
        try:
            status, answer = await self._send(method, path, params, data, headers, timeout_seconds, guard)
        except ApiError as error:
            self._heard(method, path, time.monotonic() - began, error.status)
            raise
        except NoAnswerError:
            self._heard(method, path, time.monotonic() - began, 0)
            raise
        self._heard(method, path, time.monotonic() - began, status)
        return answer

    async def _send(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        data: bytes | None,
        headers: dict[str, str],
        timeout_seconds: float,
        guard: Callable[[], None] | None,
    ) -> tuple[int, bytes]:
        """Send it once; the status and the body of a successful answer."""
        if self._wire is not None:
            target = f"{path}?{urlencode(params)}" if params else path
            try:
                answer = await self._wire.request(
                    method,
                    target,
                    headers=headers,
                    body=data,
                    timeout_seconds=timeout_seconds,
                    connect_seconds=10.0,
                    guard=guard,
                )
            except OSError as error:
                sent = not isinstance(error, NotConnectedError)
                raise NoAnswerError(method, path, sent=sent, why=str(error) or type(error).__name__) from error
            if 200 <= answer.status < 300:
                return answer.status, answer.body
            raise error_from(answer.status, answer.body, answer.retry_after)
        if guard is not None:
            guard()
        return await self._through_proxy(method, path, params, data, headers, timeout_seconds)

    async def _through_proxy(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        data: bytes | None,
        headers: dict[str, str],
        timeout_seconds: float,
    ) -> tuple[int, bytes]:
        if self._requests is None:
            raise RuntimeError("the client is not open: use it as an async context manager")
        try:
            async with self._requests.request(
                method,
                URL(self._credentials.server + path, encoded=True),
                params=params,
                data=data,
                headers=headers,
                proxy=self._credentials.proxy,
                server_hostname=self._credentials.server_name,
                timeout=aiohttp.ClientTimeout(total=timeout_seconds, connect=min(10.0, timeout_seconds)),
                allow_redirects=False,
            ) as response:
                payload = await response.read()
                if 200 <= response.status < 300:
                    return response.status, payload
                raise error_from(response.status, payload, response.headers.get("Retry-After"))
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise NoAnswerError(method, path, sent=False, why=str(error) or type(error).__name__) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise NoAnswerError(method, path, sent=True, why=str(error) or type(error).__name__) from error

    async def _authorization(self, seconds: float = TOKEN_SECONDS) -> dict[str, str]:
        value = self._credentials.token.current()
        if value is None:
            try:
                # One plugin run or file read, not one for each request that waits.
                async with asyncio.timeout(seconds), self._refreshing:
                    value = self._credentials.token.current()
                    if value is None:
                        value = await self._credentials.token.refresh()
            except TimeoutError:
                raise CredentialsError(f"no token within {seconds:g} s") from None
        return {"Authorization": value} if value else {}

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str] | None = None, silence: float
    ) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        """Open a response of lines without end: a watch.

        Gives whole lines, as many at a time as have arrived, never an empty list. The iterator ends when the server
        ends the response.

        Args:
            path: as `Kind.path` gives it.
            params: the query.
            silence: seconds without a byte after which the connection is taken for dead.

        Raises:
            ApiError: the server refused it. A 401 makes the next attempt fetch the token anew.
            NoAnswerError: the connection could not be made, was cut, or was silent for too long.
        """
        if self._streams is None:
            raise RuntimeError("the client is not open: use it as an async context manager")
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=silence)
        began, opened = time.monotonic(), False
        try:
            async with self._streams.get(
                URL(self._credentials.server + path, encoded=True),
                params=params,
                headers=await self._authorization(),
                proxy=self._credentials.proxy,
                server_hostname=self._credentials.server_name,
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                opened = True
                self._heard("WATCH", path, time.monotonic() - began, response.status)
                if response.status != 200:
                    if response.status == 401:
                        self._credentials.token.invalidate()
                    raise error_from(response.status, await response.read(), response.headers.get("Retry-After"))
                yield _lines(response.content)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if not opened:
                self._heard("WATCH", path, time.monotonic() - began, 0)
            raise _cut(path, silence, error) from error


def _cut(path: str, silence: float, error: Exception) -> NoAnswerError:
    """What became of a stream."""
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return NoAnswerError("GET", path, sent=False, why="no connection in time")
    if isinstance(error, TimeoutError):
        return SilenceError("GET", path, sent=True, why=f"silent for {silence:g} s")
    return NoAnswerError("GET", path, sent=True, why=str(error) or type(error).__name__)


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket on which the kernel notices within half a minute that the other side is gone."""
    made = socket.socket(*address[:3])
    made.setblocking(False)
    _keep_alive(made)
    return made


def _keep_alive(made: socket.socket) -> None:
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        if hasattr(socket, name):  # not every system has all of them
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


_KEEP_ALIVE: Final = {
    "TCP_KEEPIDLE": 15,
    "TCP_KEEPINTVL": 5,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 30_000,
    "TCP_NODELAY": 1,
}


class SilenceError(NoAnswerError):
    """A stream on which nothing arrived for too long: the connection may be dead without either end knowing."""


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[list[bytes]]:
    """Whole lines out of chunks that end anywhere."""
    rest: list[bytes] = []
    async for chunk in content.iter_any():
        head, newline, tail = chunk.rpartition(b"\n")
        if not newline:
            rest.append(chunk)  # a long line comes in many chunks: joined once, when its end arrives
            continue
        rest.append(head)
        lines = [line for line in b"".join(rest).split(b"\n") if line]
        rest = [tail] if tail else []
        if lines:
            yield lines


def _worth_repeating(error: ApiError, idempotent: bool) -> bool:
    """Whether the same request may succeed in a moment, and sending it again is safe."""
    if error.disrupts_budget or (error.retry_after or 0.0) > LONGEST_WAIT:
        return False
    if error.status == 429:
        return error.initializing or error.retry_after is not None
    return idempotent and error.status in _MOMENTARY
