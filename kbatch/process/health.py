"""The health and metrics endpoints of a process.

`/healthz` says whether the process must be restarted, `/readyz` whether it does its work (or stands by to). Each is
made of named checks: functions without arguments that return None when all is well and otherwise one sentence. They
answer from the process's own event loop, so a loop that hangs fails its probe by not answering.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from kbatch.process.certificates import CertificateError, Certificates
from kbatch.process.readers import Readers

Check: TypeAlias = Callable[[], str | None]
"""None when all is well, else what is wrong."""

_log = logging.getLogger(__name__)
_SHUTDOWN_SECONDS: Final = 1.0
RELOAD_SECONDS: Final = 10.0
"""Between two looks at the certificate."""

_Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Health:
    """The named checks of a process. Adding one under a known name replaces it."""

    def __init__(self) -> None:
        self._live: dict[str, Check] = {}
        self._ready: dict[str, Check] = {}
        self._facts: dict[str, Callable[[], str]] = {}

    def say(self, name: str, fact: Callable[[], str]) -> None:
        """Add a word to what /readyz and /healthz answer, such as whether this process leads; it decides nothing."""
        self._facts[name] = fact

    def facts(self) -> dict[str, str]:
        """What there is to say besides the checks."""
        return {name: fact() for name, fact in self._facts.items()}

    def live(self, name: str, check: Check) -> None:
        """Add a check to /healthz: while it fails the process should be restarted."""
        self._live[name] = check

    def ready(self, name: str, check: Check) -> None:
        """Add a check to /readyz: while it fails the process does not do its work."""
        self._ready[name] = check

    def failing_live(self) -> dict[str, str]:
        """What is wrong now, by the name of the check, for /healthz."""
        return _failing(self._live)

    def failing_ready(self) -> dict[str, str]:
        """What is wrong now, by the name of the check, for /readyz; a process that is not alive is not ready."""
        return _failing(self._live | self._ready)

    def names(self, *, ready: bool) -> list[str]:
        """The names of the checks behind /readyz or /healthz."""
        return list(self._live | self._ready if ready else self._live)


def _failing(checks: Mapping[str, Check]) -> dict[str, str]:
    failing: dict[str, str] = {}
    for name, check in checks.items():
        try:
            wrong = check()
        except Exception as error:  # noqa: BLE001 - a check that breaks is a failed check, not a failed server
            wrong = f"the check itself failed: {type(error).__name__}: {error}"
        if wrong is not None:
            failing[name] = wrong
    return failing


class HealthServer:
    """Serves /healthz and /readyz on one port, /metrics and /configz on another (or the same).

    `configz` gives what /configz answers, as data for JSON. With `certificates` the second port speaks https; with
    `readers` what it shows is for those that they let in. The probes stay as they are: a kubelet shows nothing. After
    entering, `health_port` and `metrics_port` are the real ports, also where 0 was asked for.
    """

    def __init__(
        self,
        health: Health,
        registry: CollectorRegistry,
        *,
        address: str,
        health_port: int,
        metrics_port: int,
        configz: Callable[[], Any] = dict,
        certificates: Certificates | None = None,
        readers: Readers | None = None,
    ) -> None:
        self._health = health
        self._registry = registry
        self._address = address
        self._say = configz
        self.health_port = health_port
        self.metrics_port = metrics_port
        self._certificates = certificates
        self._readers = readers
        self._reloading: asyncio.Task[None] | None = None
        self._runners: list[web.AppRunner] = []

    async def __aenter__(self) -> Self:
        probes = [web.get("/healthz", self._healthz), web.get("/readyz", self._readyz)]
        metrics = [web.get("/metrics", self._metrics), web.get("/configz", self._configz)]
        try:
            if self.health_port == self.metrics_port != 0 and not self._guarded:
                await self._serve([*probes, *metrics], self.health_port)
            else:
                self.health_port = await self._serve(probes, self.health_port)
                self.metrics_port = await self._serve(metrics, self.metrics_port, guarded=self._guarded)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._reloading is not None:
            self._reloading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reloading
            self._reloading = None
        for runner in self._runners:
            await runner.cleanup()
        self._runners.clear()

    @property
    def _guarded(self) -> bool:
        return self._certificates is not None or self._readers is not None

    async def _serve(self, routes: list[web.RouteDef], port: int, *, guarded: bool = False) -> int:
        context = None
        if guarded and self._certificates is not None:
            self._certificates.reload()
            self._reloading = asyncio.create_task(self._reload(self._certificates), name="metrics certificate")
            context = self._certificates.context
        app = web.Application(client_max_size=4096, middlewares=[self._guard] if guarded else [])
        app.add_routes(routes)
        runner = web.AppRunner(app, handle_signals=False, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
        await runner.setup()
        self._runners.append(runner)
        try:
            await web.TCPSite(runner, self._address, port, ssl_context=context).start()
        except OSError as error:
            raise PortTakenError(self._address, port, error.strerror or str(error)) from None
        real: int = runner.addresses[0][1]
        return real

    @staticmethod
    async def _reload(certificates: Certificates) -> None:
        while True:
            await asyncio.sleep(RELOAD_SECONDS)
            try:
                certificates.reload()
            except CertificateError as error:
                _log.warning("the renewed certificate of the metrics is not taken: %s", error)

    @web.middleware
    async def _guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Show nothing to those who may not read it, not even whether it is there."""
        if self._readers is not None:
            status = await self._readers.status(request.headers.get("Authorization", ""), request.path)
            if status != 200:
                named = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
                return web.Response(status=status, headers=named)
        return await handler(request)

    async def _healthz(self, _: web.Request) -> web.Response:
        return _answer(self._health.names(ready=False), self._health.failing_live(), self._health.facts())

    async def _readyz(self, _: web.Request) -> web.Response:
        return _answer(self._health.names(ready=True), self._health.failing_ready(), self._health.facts())

    async def _metrics(self, _: web.Request) -> web.Response:
        text = await asyncio.to_thread(generate_latest, self._registry)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _configz(self, _: web.Request) -> web.Response:
        return web.Response(text=json.dumps(self._say(), default=str), content_type="application/json")


class PortTakenError(OSError):
    """An endpoint could not be opened."""

    def __init__(self, address: str, port: int, why: str) -> None:
        super().__init__(f"cannot listen on {address}:{port}: {why}")


def _answer(names: list[str], failing: Mapping[str, str], facts: Mapping[str, str]) -> web.Response:
    body = {
        "status": "failing" if failing else "ok",
        **facts,
        "checks": {name: failing.get(name, "ok") for name in names},
    }
    return web.Response(status=503 if failing else 200, text=json.dumps(body), content_type="application/json")
