"""The podgroup operator as a process: `kbatch-podgroup`.

kopf watches PodGroups, typed informers watch pods and Jobs, and all of them only say which group to look at again.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from typing import Final, NoReturn

from kbatch.kube.client import Client
from kbatch.kube.credentials import Credentials, load_credentials
from kbatch.kube.errors import KubeError
from kbatch.kube.events import EventRecorder
from kbatch.kube.informer import Informer
from kbatch.kube.kinds import JOBS, PODGROUPS, PODS
from kbatch.kube.lease import Elector
from kbatch.metrics import EventMetrics, ReconcileMetrics, RequestMetrics, WatchMetrics
from kbatch.model.events import Event
from kbatch.process.feed import Feed
from kbatch.process.kopf_host import KopfHost, operator_settings
from kbatch.process.leading import elector_of, fenced, while_active
from kbatch.process.measured import Measured, counts_of
from kbatch.process.preflight import Preflight
from kbatch.process.run import Runtime, before_stop, settle_memory, while_leading
from kbatch.process.run import main as run_process
from kbatch.process.settings import LeaderSettings, flag
from operators.podgroup.controller import COUNTING_SECONDS, SETTLE_SECONDS, Controller
from operators.podgroup.handlers import DOMAIN, make_registry

_log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 2.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class PodGroupSettings(LeaderSettings):
    """The podgroup operator: keeps the phase, the counters and the end of each PodGroup."""

    resync_period: float = flag(300.0, "all PodGroups are listed and compared this often")
    workers: int = flag(16, "PodGroups worked on at one time")
    member_backoff: float = flag(10.0, "until a member that failed is made again from its template; doubles each time")


def main() -> NoReturn:
    """Run the process."""
    run_process("podgroup", PodGroupSettings, serve)


async def serve(runtime: Runtime[PodGroupSettings]) -> None:
    """Wait for the Lease, then operate."""
    credentials = load_credentials(runtime.settings.kubeconfig or None)
    async with Client(credentials, user_agent=runtime.user_agent) as client:
        elector = elector_of(runtime, client)
        operator = _Operator(runtime, client, elector, credentials)
        await while_leading(runtime, elector, operator.run)


class _Operator:
    """Everything that works while this process leads."""

    def __init__(
        self, runtime: Runtime[PodGroupSettings], client: Client, elector: Elector | None, credentials: Credentials
    ) -> None:
        self._runtime = runtime
        self._api = fenced(Measured(client, RequestMetrics(runtime.registry)), elector)
        self._preflight = Preflight(client, needed=[PODGROUPS], listed=[PODGROUPS, PODS, JOBS])
        settings = runtime.settings
        self._recorder = EventRecorder(self._api, controller="kbatch-podgroup", instance=settings.resolved_identity())
        EventMetrics(runtime.registry, lambda: counts_of(self._recorder))
        self._controller = Controller(
            self._api,
            ReconcileMetrics(runtime.registry),
            scheduler_name=settings.scheduler_name,
            recorder=self._recorder,
            member_backoff=settings.member_backoff,
            settle=SETTLE_SECONDS,
            counting=COUNTING_SECONDS,
        )
        pods = Informer(client, PODS, field_selector=f"spec.schedulerName={settings.scheduler_name}")
        jobs = Informer(client, JOBS)
        self._feed = Feed([pods, jobs], self._controller.receive, WatchMetrics(runtime.registry))
        self._kopf = KopfHost(
            name="podgroup",
            registry=make_registry(self._deliver),
            settings=operator_settings(DOMAIN),
            credentials=credentials,
            user_agent=runtime.user_agent,
        )
        self._loop = asyncio.get_running_loop()
        while_active(runtime.health, elector, "crds", self._preflight.check)
        while_active(runtime.health, elector, "synced", self._unsynced)
        while_active(runtime.health, elector, "kopf", self._kopf.check)
        runtime.health.live("watches", self._feed.stale)

    async def run(self) -> None:
        """Operate until a stop is asked for."""
        await before_stop(self._operate(), self._runtime.stopping)

    async def _operate(self) -> None:
        await self._preflight.wait()
        async with self._recorder, self._kopf, asyncio.TaskGroup() as group:
            group.create_task(self._kopf.ended(), name="kopf")
            group.create_task(self._feed.run(), name="feed")
            group.create_task(self._resync(), name="resync")
            await self._feed.synced.wait()
            await self._controller.listed.wait()
            settle_memory()
            _log.info("synced: %d PodGroups", len(self._controller.world.groups))
            group.create_task(self._controller.run(self._runtime.settings.workers), name="workers")

    async def _resync(self) -> None:
        while True:
            try:
                await self._controller.resync()
            except KubeError as error:
                _log.warning("listing PodGroups: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                await asyncio.sleep(self._runtime.settings.resync_period)

    def _deliver(self, event: Event) -> None:
        """From kopf's thread into ours; while the process ends there may be no loop any more."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._controller.hint, event)

    def _unsynced(self) -> str | None:
        if (reason := self._feed.unsynced()) is not None:
            return reason
        return None if self._controller.listed.is_set() else "waiting for the first list of podgroups"
