"""HTTP/1.1 as far as requests to an API server need it: kept-alive connections, one request at a time on each.

A scheduler sends thousands of small POSTs, and a general client spends more on each than the whole rest of the process
does. So this knows no redirects, cookies, compression or pipelining: a request is one write, an answer is a status, a
Retry-After and a body, of known length, in chunks, or up to the end of the connection.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, cast
from urllib.parse import urlsplit

HEAD_LIMIT: Final = 64 * 1024
OPENED_AT_ONCE: Final = 16
IDLE_SECONDS: Final = 60.0
"""A connection that was idle for longer is not used again: the other side may just be closing it."""

_END: Final = b"\r\n\r\n"
_BODILESS: Final = frozenset({204, 304})
_READ: Final = (b"content-length", b"transfer-encoding", b"connection", b"retry-after")
_LENGTHS: Final = frozenset(map(len, _READ))


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    status: int
    body: bytes
    retry_after: str | None


class NotConnectedError(OSError):
    """No connection could be had in time: the server cannot have seen the request."""


class BrokenAnswerError(OSError):
    """The connection ended within the answer, or that is not HTTP/1.1: nobody knows what became of the request."""


class _Connection(asyncio.Protocol):
    """One connection; `answered` is a future while a request is under way."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.idle_since = 0.0
        self.usable = True
        """Whether another request may be sent on it."""
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._answered: asyncio.Future[Answer] | None = None
        self._deadline = 0.0
        self._alarm: asyncio.TimerHandle | None = None
        """Looks whether the request under way is late, no later than at its deadline; where it was set for one before,
        it is set anew then. Nearly all answers come long before: a timer for each request would be made for nothing."""
        self._received = bytearray()
        self._status = 0
        self._retry_after: str | None = None
        self._rest = 0
        """Bytes of the body still to come; of the chunk, in chunks; -1: up to the end of the connection."""
        self._chunked = False
        self._parts: list[bytes] = []

    def send(self, request: bytes, deadline: float) -> asyncio.Future[Answer]:
        """Write a whole request; the future gets the answer, or TimeoutError at the deadline (of the loop's clock)."""
        if self._transport is None:
            raise NotConnectedError("the connection is not made yet")
        self._answered = answered = self._loop.create_future()
        self._status = 0
        self._deadline = deadline
        if self._alarm is None or self._alarm.when() > deadline:
            self._set_alarm()
        self._transport.write(request)
        return answered

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._loop.call_at(self._deadline, self._late)

    def _late(self) -> None:
        """The alarm went off, for this request or for one before it."""
        due = self._alarm is not None and self._alarm.when() >= self._deadline
        self._alarm = None
        if self._answered is None or self._answered.done():
            return
        if due:
            self._answered.set_exception(TimeoutError())
        else:
            self._set_alarm()

    def abort(self) -> None:
        """Drop the connection at once: what is under way on it is given up."""
        self._retire()
        if self._transport is not None:
            self._transport.abort()

    def _retire(self) -> None:
        """No request goes over it any more."""
        self.usable = False
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._retire()
        if self._answered is None:
            return
        if error is None and self._status and self._rest == -1:
            self._finish(bytes(self._received))
        else:
            self._fail(str(error) if error is not None else "the connection was closed before the answer's end")

    def data_received(self, data: bytes) -> None:
        if self._answered is None:  # nobody asked anything: whatever this is, it is not the next request's answer
            self.abort()
            return
        self._received += data
        try:
            self._read()
        except (ValueError, UnicodeDecodeError) as error:
            self._fail(f"not an answer in HTTP/1.1: {error}")
            self.abort()

    def _read(self) -> None:
        while not self._status:
            end = self._received.find(_END)
            if end < 0:
                if len(self._received) > HEAD_LIMIT:
                    raise ValueError("a head without end")
                return
            head = bytes(self._received[:end])
            del self._received[: end + 4]
            self._head(head)
        if self._chunked:
            self._chunks()
        elif self._rest >= 0 and len(self._received) >= self._rest:
            body = bytes(self._received[: self._rest])
            del self._received[: self._rest]
            self._finish(body)

    def _head(self, head: bytes) -> None:
        first, *lines = head.split(b"\r\n")
        version, _, rest = first.partition(b" ")
        if not version.startswith(b"HTTP/1."):
            raise ValueError(f"begins with {first[:40]!r}")
        status = int(rest[:3])
        if 100 <= status < 200:  # the real answer follows
            return
        self._status, self._retry_after, self._chunked, self._rest, self._parts = status, None, False, -1, []
        keep = version != b"HTTP/1.0"
        for line in lines:
            name, _, value = line.partition(b":")
            if len(name) not in _LENGTHS:  # most headers are none of those that matter here
                continue
            name = name.lower()
            if name == b"content-length":
                self._rest = _length(value.strip(), 10)
            elif name == b"transfer-encoding":
                if value.strip().lower() != b"chunked":
                    raise ValueError(f"transfer encoding {value[:40]!r}")
                self._chunked = True
            elif name == b"connection":
                keep = keep and b"close" not in value.lower()
            elif name == b"retry-after":
                self._retry_after = value.strip().decode("ascii")
        if status in _BODILESS:
            self._chunked, self._rest = False, 0
        if self._chunked:
            self._rest = 0
        self.usable = self.usable and keep and (self._chunked or self._rest >= 0)

    def _chunks(self) -> None:
        """Take whole chunks out of what has arrived; the one of length 0, and what trails it, ends the body."""
        while True:
            end = self._received.find(b"\r\n")
            if end < 0:
                if len(self._received) > HEAD_LIMIT:
                    raise ValueError("a chunk without its length")
                return
            size = _length(bytes(self._received[:end]).partition(b";")[0].strip(), 16)
            if size:
                if len(self._received) < end + 2 + size + 2:
                    return
                self._parts.append(bytes(self._received[end + 2 : end + 2 + size]))
                if self._received[end + 2 + size : end + 4 + size] != b"\r\n":
                    raise ValueError("a chunk longer than it says")
                del self._received[: end + 4 + size]
                continue
            if self._received[end : end + 4] == _END:
                trailer = end + 4
            else:
                trailer = self._received.find(_END, end) + 4
                if trailer < 4:
                    return
            del self._received[:trailer]
            self._finish(b"".join(self._parts))
            return

    def _finish(self, body: bytes) -> None:
        answered, self._answered = self._answered, None
        if self._received or (self._transport is not None and self._transport.get_write_buffer_size()):
            self.usable = False  # more than the answer came, or it came before the request was out
        self._parts = []
        self.idle_since = self._loop.time()
        if answered is not None and not answered.done():
            answered.set_result(Answer(self._status, body, self._retry_after))

    def _fail(self, why: str) -> None:
        answered, self._answered = self._answered, None
        self.usable = False
        if answered is not None and not answered.done():
            answered.set_exception(BrokenAnswerError(why))


class Wire:
    """Connections to one server, at most so many at once. Use as an async context manager.

    Args:
        server: its URL; a path in it is put before that of each request.
        tls: for https.
        server_name: the name that the certificate must carry, if not the URL's host.
        headers: sent with every request.
        connections: at most.
        prepare: sets the options of each new socket.
    """

    def __init__(
        self,
        server: str,
        *,
        tls: ssl.SSLContext | None,
        server_name: str | None,
        headers: dict[str, str],
        connections: int,
        prepare: Callable[[socket.socket], None] = lambda _: None,
    ) -> None:
        url = urlsplit(server)
        secure = url.scheme == "https"
        self._host = url.hostname or ""
        self._port = url.port or (443 if secure else 80)
        self._prefix = url.path.rstrip("/")
        self._tls = (tls or ssl.create_default_context()) if secure else None
        self._server_name = (server_name or self._host) if secure else None
        self._common = _lines({"Host": url.netloc.rpartition("@")[2], **headers})
        self._connections = connections
        self._prepare = prepare
        self._open = 0
        self._idle: list[_Connection] = []
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        for connection in self._idle:
            connection.abort()
        self._idle.clear()
        await asyncio.sleep(0)  # the transports close in the loop's next turn

    async def request(
        self,
        method: str,
        target: str,
        *,
        headers: dict[str, str],
        body: bytes | None,
        timeout_seconds: float,
        connect_seconds: float,
        guard: Callable[[], None] | None = None,
    ) -> Answer:
        """Send one request, once, and return its answer.

        Args:
            method: the HTTP method.
            target: path and query, encoded.
            headers: besides those of every request.
            body: with its length it makes one write.
            timeout_seconds: for all of it.
            connect_seconds: for getting a connection.
            guard: called when there is a connection, right before the request is written; raises where it must not be.

        Raises:
            NotConnectedError: there was no connection in time.
            BrokenAnswerError: the answer did not come whole.
            TimeoutError: it did not come in time.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        if body is not None:
            headers = {**headers, "Content-Length": str(len(body))}
        elif method in {"POST", "PUT", "PATCH"}:
            headers = {**headers, "Content-Length": "0"}
        head = f"{_plain(method)} {_plain(self._prefix + target)} HTTP/1.1\r\n{self._common}{_lines(headers)}\r\n"
        connection = self._spare(loop)
        if connection is None:
            try:
                async with asyncio.timeout(min(connect_seconds, timeout_seconds)):
                    connection = await self._connection(loop)
            except NotConnectedError:
                raise
            except TimeoutError:
                raise NotConnectedError("no connection in time") from None
            except OSError as error:
                raise NotConnectedError(str(error) or type(error).__name__) from error
        try:
            if guard is not None:
                guard()
            answered = connection.send(head.encode("ascii") + (body or b""), deadline)
            try:
                return await answered
            finally:
                if not answered.done() or answered.cancelled() or answered.exception() is not None:
                    connection.abort()  # its answer may still come, and must not be taken for another's
        finally:
            self._release(connection)

    async def open(self, count: int, *, connect_seconds: float) -> int:
        """Have so many connections ready before they are needed; how many could be made in time.

        Where many requests begin at once, each would else make its own first, and the server would do nothing but
        shake hands for a while.
        """
        loop = asyncio.get_running_loop()
        places = asyncio.Semaphore(OPENED_AT_ONCE)

        async def one() -> bool:
            async with places:
                try:
                    connection = await self._connection(loop)
                except OSError:
                    return False
                connection.idle_since = loop.time()
                self._release(connection)
                return True

        wanted = min(count, self._connections - self._open) - len(self._idle)
        tasks = [asyncio.ensure_future(one()) for _ in range(wanted)]
        if not tasks:
            return 0
        done, late = await asyncio.wait(tasks, timeout=connect_seconds)
        for task in late:
            task.cancel()
        return sum(task.result() for task in done)

    def _spare(self, loop: asyncio.AbstractEventLoop) -> _Connection | None:
        """The connection that was used last, if it can be used again."""
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and loop.time() - connection.idle_since < IDLE_SECONDS:
                self._open += 1
                return connection
            connection.abort()
        return None

    async def _connection(self, loop: asyncio.AbstractEventLoop) -> _Connection:
        while self._open >= self._connections:
            turn = loop.create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._next()  # the turn was given to someone who no longer wants it
                raise
            spare = self._spare(loop)
            if spare is not None:
                return spare
        if self._closed:
            raise NotConnectedError("the client is closed")
        self._open += 1
        try:
            transport, connection = await loop.create_connection(
                lambda: _Connection(loop), self._host, self._port, ssl=self._tls, server_hostname=self._server_name
            )
        except BaseException:
            self._open -= 1
            self._next()
            raise
        self._prepare(transport.get_extra_info("socket"))
        return connection

    def _release(self, connection: _Connection) -> None:
        self._open -= 1
        if connection.usable and not self._closed:
            self._idle.append(connection)
        else:
            connection.abort()
        self._next()

    def _next(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return


def _length(text: bytes, base: int) -> int:
    """A length, which is digits and nothing else: `int` alone takes signs and underscores too.

    Raises:
        ValueError: it is none.
    """
    if not text or not text.isalnum():
        raise ValueError(f"length {text[:40]!r}")
    return int(text, base)


def _plain(text: str) -> str:
    """The text, which must not end the line that it is put into.

    Raises:
        ValueError: it would.
    """
    if not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError(f"not for a request line: {text[:80]!r}")
    return text


def _lines(headers: dict[str, str]) -> str:
    """Header lines.

    Raises:
        ValueError: a value would end its line.
    """
    return "".join([_line(name, value) for name, value in headers.items()])


@functools.lru_cache(maxsize=128)  # a token of a thousand characters is looked through once
def _line(name: str, value: str) -> str:
    if not value.isascii() or not value.isprintable():
        raise ValueError(f"not for a header: {name}")
    return f"{name}: {value}\r\n"
