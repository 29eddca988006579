"""The life of a process: start, work, stop in bounded time, and an exit status that says what happened.

`main` is what a console script calls. It reads the settings, starts logs and endpoints, and runs the process's `serve`
coroutine until a signal asks it to stop. `while_leading` wraps work of which only one process may do it at a time: it
waits for the Lease, works, and ends the process when the Lease is lost. A process that lost its Lease does not try to
carry on: the supervisor starts it anew, with nothing in memory that somebody else has overtaken.

Exit status: 0 asked to stop and did; 1 failed, lost its Lease, or did not stop in time; 2 flags not understood.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import importlib.metadata
import logging
import os
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Generic, NoReturn, Protocol, TypeVar

from prometheus_client import CollectorRegistry, disable_created_metrics

from kbatch.kube.client import Client
from kbatch.kube.credentials import load_credentials
from kbatch.kube.depth import allow_deep_objects
from kbatch.kube.errors import KubeError
from kbatch.metrics import process_metrics
from kbatch.process import logs, memory, readers, turns
from kbatch.process.certificates import CertificateError, Certificates
from kbatch.process.diagnosis import Diagnosis, answering
from kbatch.process.health import Health, HealthServer
from kbatch.process.settings import ProcessSettings, parse_or_exit

SettingsT = TypeVar("SettingsT", bound=ProcessSettings)

STOP_SECONDS: Final = 8.0
"""How long the work may take to end after a stop was asked for; then it is cancelled."""
CANCEL_SECONDS: Final = 4.0
"""How long cancelled work may take; then the process ends without it."""
AT_LAST_SECONDS: Final = STOP_SECONDS + CANCEL_SECONDS + 2.0
"""So long after a stop was asked for the process has ended, whatever hangs; the grace period in the chart is longer."""

_log = logging.getLogger(__name__)


class ProcessError(Exception):
    """The process cannot go on; the message is one sentence for a person, without a traceback."""


class LeadershipLostError(ProcessError):
    """Another process may act now; this one must not."""


class Leadership(Protocol):
    """What `kbatch.kube.lease.Elector` offers: enter to take part, exit to release."""

    @property
    def is_leader(self) -> bool:
        """Whether a write may start now."""

    @property
    def lost(self) -> asyncio.Event:
        """Set when a Lease that was held is held no more."""

    async def wait_leader(self) -> object:
        """Return when the Lease is held."""

    async def stop(self) -> None:
        """Take part no more; what is held is given back."""

    async def __aenter__(self) -> object: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> object: ...


@dataclasses.dataclass
class Runtime(Generic[SettingsT]):
    """What a process's `serve` is given.

    Attributes:
        name: `scheduler`, `podgroup`, `queue` or `webhook`.
        settings: the flags.
        health: where checks are added.
        registry: where metrics are registered.
        stopping: set when a stop was asked for; `serve` then returns when its work is done.
        diagnosis: where is added what the process can be asked about.
    """

    name: str
    settings: SettingsT
    health: Health
    registry: CollectorRegistry
    stopping: asyncio.Event
    diagnosis: Diagnosis = dataclasses.field(default_factory=Diagnosis)

    @property
    def user_agent(self) -> str:
        """How the process calls itself towards the API server."""
        return f"kbatch-{self.name}/{version()}"


def version() -> str:
    """The version of the installed distribution, `0` in a bare checkout."""
    try:
        return importlib.metadata.version("kbatch-operators")
    except importlib.metadata.PackageNotFoundError:
        return "0"


def main(
    name: str,
    settings: type[SettingsT],
    serve: Callable[[Runtime[SettingsT]], Coroutine[Any, Any, None]],
    argv: Sequence[str] | None = None,
    *,
    gather: float = turns.GATHER_SECONDS,
) -> NoReturn:
    """Run the process and exit with its status; its event loop lets events gather for so many seconds."""
    chosen = parse_or_exit(settings, prog=f"kbatch-{name}", argv=argv)
    logs.configure(level=chosen.log_level, style=chosen.log_format)
    allow_deep_objects()
    disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series beside each counter that nobody asks for
    status = turns.run(run(name, chosen, serve, on_stop=_exit_at_last), gather)
    logging.shutdown()
    # Threads of libraries (kopf's, an executor's) must not keep a stopped process alive.
    os._exit(status)


def _exit_at_last() -> None:
    """End the process a little after everything orderly should be over, whatever still hangs."""
    timer = threading.Timer(AT_LAST_SECONDS, os._exit, (1,))
    timer.daemon = True
    timer.start()


async def run(
    name: str,
    settings: SettingsT,
    serve: Callable[[Runtime[SettingsT]], Coroutine[Any, Any, None]],
    *,
    on_stop: Callable[[], None] = lambda: None,
) -> int:
    """Run `serve` between signals and endpoints; the exit status. `on_stop` is called when a signal asks to stop."""
    memory.set_up()
    registry = CollectorRegistry()
    process_metrics(registry, name, version())
    runtime = Runtime(name, settings, Health(), registry, asyncio.Event())
    try:
        async with (
            _readers(settings, runtime.user_agent) as may_read,
            HealthServer(
                runtime.health,
                registry,
                address=settings.bind_address,
                health_port=settings.health_port,
                metrics_port=settings.metrics_port,
                configz=lambda: runtime.diagnosis.configz(name, version(), settings),
                certificates=Certificates(Path(settings.metrics_certificates))
                if settings.metrics_certificates
                else None,
                readers=may_read,
            ) as server,
        ):
            _log.info(
                "kbatch-%s %s started",
                name,
                version(),
                extra={"health_port": server.health_port, "metrics_port": server.metrics_port},
            )
            with _signals(runtime.stopping, on_stop), answering(runtime.diagnosis, settings.log_level):
                await _until_stopped(serve(runtime), runtime.stopping)
    except Exception as error:  # noqa: BLE001 - whatever it was: say it, and end with a status that gets us restarted
        expected = _sentences(error)
        if expected is None:
            _log.exception("kbatch-%s failed", name)
        else:
            _log.error("kbatch-%s ends: %s", name, expected)
        return 1
    _log.info("kbatch-%s stopped", name)
    return 0


@contextlib.asynccontextmanager
async def _readers(settings: ProcessSettings, user_agent: str) -> AsyncIterator[readers.Readers | None]:
    """Who may read the metrics; None for everybody. By connections of its own: scrapes keep no decision waiting."""
    if not settings.metrics_authorization:
        yield None
        return
    credentials = load_credentials(settings.kubeconfig or None)
    async with Client(credentials, user_agent=user_agent, connections=readers.AT_ONCE) as client:
        yield readers.Readers(client)


def _sentences(error: BaseException) -> str | None:
    """What errors say that are written for people; None if one among them is a defect and needs its traceback."""
    if isinstance(error, BaseExceptionGroup):
        parts = [_sentences(inner) for inner in error.exceptions]
        return None if None in parts else "; ".join(part for part in parts if part is not None)
    return str(error) if isinstance(error, ProcessError | KubeError | CertificateError | OSError) else None


async def _until_stopped(work: Coroutine[Any, Any, None], stopping: asyncio.Event) -> None:
    """Await the work; once stopping, give it a bounded time, then cancel it."""
    task = asyncio.create_task(work, name="serve")
    stop = asyncio.create_task(stopping.wait(), name="stop requested")
    try:
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            await asyncio.wait({task}, timeout=STOP_SECONDS)
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=CANCEL_SECONDS)
        if not task.done():
            raise ProcessError(f"did not stop within {STOP_SECONDS + CANCEL_SECONDS:g} s")
        with contextlib.suppress(asyncio.CancelledError):
            task.result()
        if not stopping.is_set():
            raise ProcessError("its work ended although nobody asked it to stop")
    finally:
        stop.cancel()
        if not task.done():
            task.cancel()


@contextlib.contextmanager
def _signals(stopping: asyncio.Event, on_stop: Callable[[], None]) -> Iterator[None]:
    """Turn SIGTERM and SIGINT into a request to stop."""
    loop = asyncio.get_running_loop()

    def stop(number: signal.Signals) -> None:
        if not stopping.is_set():
            _log.info("stopping on %s", number.name)
            stopping.set()
            on_stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


async def while_leading(
    runtime: Runtime[Any], leadership: Leadership | None, work: Callable[[], Awaitable[None]]
) -> None:
    """Do the work while holding the Lease (at once where there is none to hold).

    The work must return soon after `runtime.stopping` is set; the Lease is released only when it has.

    Raises:
        LeadershipLostError: the Lease was lost; the work was cancelled first.
    """
    if leadership is None:
        await work()
        return
    async with leadership:
        if not await before_stop(leadership.wait_leader(), runtime.stopping):
            return
        task = asyncio.ensure_future(work())
        lost = asyncio.create_task(leadership.lost.wait(), name="lease lost")
        try:
            await asyncio.wait({task, lost}, return_when=asyncio.FIRST_COMPLETED)
            if lost.done() and not task.done():
                # Won again while the work ends, the Lease would let through what was decided in another term.
                await leadership.stop()
                raise LeadershipLostError("the Lease was lost")
            await task
        finally:
            lost.cancel()
            await cancelled(task)


async def before_stop(wanted: Awaitable[object], stopping: asyncio.Event) -> bool:
    """Await something until a stop is asked for, and cancel it then; whether it ended by itself.

    What it raises is raised here.
    """
    first = asyncio.ensure_future(wanted)
    stop = asyncio.create_task(stopping.wait(), name="stop requested")
    try:
        await asyncio.wait({first, stop}, return_when=asyncio.FIRST_COMPLETED)
        if first.done():
            first.result()
            return not stopping.is_set()
        return False
    finally:
        await cancelled(first)
        await cancelled(stop)


async def cancelled(task: asyncio.Future[Any]) -> None:
    """Cancel a task and wait until it has ended; its own error, if any, stays with the task."""
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
