"""kopf, hosted in a thread and event loop of its own.

kopf takes every task that appears in its loop for one of its own and cancels them all when it ends; and a burst of
events keeps its loop busy. So it shares a loop with nothing: what its handlers learn crosses over by
`call_soon_threadsafe`, and the endpoints, the Lease and the writes live on in the process's own loop.

Outages are outlived: kopf asks again for ever, at most five seconds apart. If it ends all the same, `ended` says so,
and the process ends with it. What it sees is never the only way in which something is seen: informers see the same
kinds, so that a kind that kopf did not find at its start, or a deletion that its watch missed, is lost to nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import kopf

from kbatch.kube.credentials import Credentials
from kbatch.process import memory
from kbatch.process.run import ProcessError

_log = logging.getLogger(__name__)

STOP_SECONDS: Final = 4.0


class Backoffs:
    """kopf's waits between attempts, in seconds, without an end."""

    def __iter__(self) -> Iterator[float]:
        yield from (0.5, 1.0, 2.0, 3.0)
        while True:
            yield 5.0


class _NoDifferences(kopf.DiffBaseStorage):
    """Keeps nothing of an object to compare it with later: no handler of ours asks what changed, and copying each
    object for it takes kopf half of its time.
    """

    def build(self, *, body: kopf.Body, extra_fields: Iterable[kopf.FieldSpec] | None = None) -> kopf.BodyEssence:
        return {}

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        pass


class _NoProgress(kopf.ProgressStorage):
    """Keeps no progress on the objects: no handler of ours is tried again by kopf."""

    def fetch(self, *, key: kopf.HandlerId, body: kopf.Body) -> kopf.ProgressRecord | None:
        return None

    def store(self, *, key: kopf.HandlerId, record: kopf.ProgressRecord, body: kopf.Body, patch: kopf.Patch) -> None:
        pass

    def purge(self, *, key: kopf.HandlerId, body: kopf.Body, patch: kopf.Patch) -> None:
        pass

    def touch(self, *, body: kopf.Body, patch: kopf.Patch, value: str | None) -> None:
        pass

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        return essence


def operator_settings() -> kopf.OperatorSettings:
    """Settings of kbatch's operators.

    CRDs and namespaces are not scanned (it would take rights that the operator does not need), log lines are not posted
    as Events, nothing is kept on the objects, and the webhook configuration is Helm's business.
    """
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = True
    settings.posting.loggers = False
    settings.peering.standalone = True
    settings.persistence.progress_storage = _NoProgress()
    settings.persistence.diffbase_storage = _NoDifferences()
    settings.networking.error_backoffs = Backoffs()
    settings.networking.connect_timeout = 10.0
    settings.watching.server_timeout = 300  # a whole number, or the API server refuses it
    settings.watching.chunk_size = 500
    settings.queueing.exit_timeout = 0.5
    settings.process.ultimate_exiting_timeout = None
    return settings


class KopfHost:
    """Runs a kopf operator while its context is open. `registry` must be the operator's own, without login handlers."""

    def __init__(
        self,
        *,
        name: str,
        registry: kopf.OperatorRegistry,
        settings: kopf.OperatorSettings,
        credentials: Credentials,
        user_agent: str,
    ) -> None:
        self._registry = registry
        self._settings = settings
        self._credentials = credentials
        self._user_agent = user_agent
        self._thread = threading.Thread(target=self._run, name=f"kopf {name}", daemon=True)
        self._ready = threading.Event()
        self._kopf_loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Future[BaseException | None] | None = None
        self._trimming: asyncio.Task[None] | None = None

        @kopf.on.login(registry=registry, id="login")
        async def login(**_: Any) -> kopf.AiohttpSession:
            return self._session()

    def check(self) -> str | None:
        """None while kopf runs, else what it does instead."""
        if self._ended is None or self._ended.done():
            return "kopf does not run"
        return None if self._ready.is_set() else "kopf is starting"

    async def ended(self) -> None:
        """Wait until kopf ends although nobody stopped it.

        Raises:
            ProcessError: always, with kopf's reason.
        """
        if self._ended is None:
            raise RuntimeError("the host was not entered")
        error = await asyncio.shield(self._ended)
        raise ProcessError(f"kopf ended: {error or 'without saying why'}")

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()
        memory.live_beside_kopf()
        self._trimming = asyncio.create_task(memory.keep_trimming(), name="memory")
        self._thread.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopping = True
        if self._trimming is not None:
            self._trimming.cancel()
        if self._kopf_loop is not None and self._stop is not None:
            with contextlib.suppress(RuntimeError):  # kopf has ended by itself, and its loop is closed
                self._kopf_loop.call_soon_threadsafe(self._stop.set)
        if self._ended is not None:
            done, _ = await asyncio.wait({self._ended}, timeout=STOP_SECONDS)
            if not done:
                _log.warning("kopf did not stop within %g s", STOP_SECONDS)

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            asyncio.run(self._operate())
        except BaseException as raised:  # noqa: BLE001 - carried over to the process's loop, which ends by it
            error = raised
        loop, ended = self._loop, self._ended
        if loop is not None and ended is not None and not loop.is_closed():
            loop.call_soon_threadsafe(_resolve, ended, error)

    async def _operate(self) -> None:
        self._stop = asyncio.Event()
        self._kopf_loop = asyncio.get_running_loop()
        if self._stopping:
            return
        await kopf.operator(
            registry=self._registry,
            settings=self._settings,
            standalone=True,
            clusterwide=True,
            stop_flag=self._stop,
            ready_flag=self._ready,
        )

    def _session(self) -> kopf.AiohttpSession:
        """A session with kbatch's credentials: token files are read again, as everywhere else in kbatch."""
        token = self._credentials.token

        async def authorize(
            request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
        ) -> aiohttp.ClientResponse:
            value = token.current() or await token.refresh()
            if value:
                request.headers["Authorization"] = value
            response = await handler(request)
            if response.status == 401:
                token.invalidate()
            return response

        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self._credentials.tls or True),
            headers={"User-Agent": self._user_agent},
            proxy=self._credentials.proxy,
            middlewares=(authorize,),
        )
        return kopf.AiohttpSession(
            server=self._credentials.server,
            default_namespace=self._credentials.namespace,
            aiohttp_session=session,
        )


def _resolve(future: asyncio.Future[BaseException | None], value: BaseException | None) -> None:
    if not future.done():
        future.set_result(value)


class _Quiet(logging.Filter):
    """Drops kopf's warning that it runs outside the main thread: that is the point."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is kept."""
        return not record.getMessage().startswith("OS signals are ignored")


logging.getLogger("kopf._core.reactor.running").addFilter(_Quiet())
