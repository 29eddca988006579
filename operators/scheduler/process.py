"""The scheduler's process: what is put together, and in which order it starts and ends.

A replica that stands by has read everything and keeps up with it: when it wins the Lease it decides at once. One that
leaves finishes what it has begun, waits for the watch to confirm it, and only then gives the Lease back, so that its
successor sees all of it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from kbatch.api.names import DEFAULT_QUEUE
from kbatch.api.objects import PersistentVolumeClaim
from kbatch.decisions.records import PolicyText
from kbatch.engine import Report
from kbatch.kube.client import Client
from kbatch.kube.credentials import load_credentials
from kbatch.kube.errors import CredentialsError
from kbatch.kube.events import EventRecorder, Regarding
from kbatch.kube.informer import Informer
from kbatch.kube.kinds import (
    CSINODES,
    JOBS,
    NAMESPACES,
    NODES,
    PERSISTENTVOLUMECLAIMS,
    PERSISTENTVOLUMES,
    PODDISRUPTIONBUDGETS,
    PODGROUPS,
    PODS,
    PRIORITYCLASSES,
    QUEUES,
    RESOURCEQUOTAS,
    STORAGECLASSES,
    AnyKind,
)
from kbatch.metrics import (
    DecisionLogMetrics,
    EventMetrics,
    FlowMetrics,
    RequestMetrics,
    SchedulerMetrics,
    StartMetrics,
    WatchMetrics,
)
from kbatch.process import huge_pages, memory
from kbatch.process.feed import Feed
from kbatch.process.leading import LEASE_CONNECTIONS, elector_of, fenced, while_active
from kbatch.process.measured import Attempts, Measured, counts_of
from kbatch.process.preflight import Preflight
from kbatch.process.run import ProcessError, Runtime, before_stop, while_leading
from kbatch.process.run import main as run_process
from kbatch.process.scope import Scope
from kbatch.process.settings import LeaderSettings, flag
from operators.scheduler.cache import Cache
from operators.scheduler.configuration import ConfigurationFile
from operators.scheduler.decision_log import DecisionLog
from operators.scheduler.dispatch import PARALLELISM, Dispatcher
from operators.scheduler.dump import parts_of
from operators.scheduler.failing import FailingGroups
from operators.scheduler.learned import LearnedKeeper
from operators.scheduler.left_out import LeftOut
from operators.scheduler.loop import Scheduler
from operators.scheduler.pods import PodReporter
from operators.scheduler.queues import QueueWriter
from operators.scheduler.starts import Starts
from operators.scheduler.status import StatusWriter
from operators.scheduler.unheeded import UnheededTopology
from operators.scheduler.volumes import VOLUME_SECONDS

_log = logging.getLogger(__name__)

CONTROLLER = "kbatch-scheduler"
KINDS: tuple[AnyKind, ...] = (
    PODS,
    NODES,
    PODGROUPS,
    QUEUES,
    PRIORITYCLASSES,
    RESOURCEQUOTAS,
    PODDISRUPTIONBUDGETS,
    NAMESPACES,
    JOBS,
    PERSISTENTVOLUMES,
    PERSISTENTVOLUMECLAIMS,
    STORAGECLASSES,
    CSINODES,
)
WATCHING_SECONDS = 6.0
"""How long a new leader waits for watches that are cut; they are tried again every five seconds at least."""
CONNECT_SECONDS = 1.0
"""How long a new leader may take for connecting before its first cycle."""
DRAIN_SECONDS = 4.0
"""How long a leaving process finishes its binds; the status writes get half of that."""
EVENT_SECONDS = 0.5
"""How long it writes Events that wait, before it gives up its Lease and with that the right to write."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SchedulerSettings(LeaderSettings):
    """Places groups of pods on nodes."""

    scheduler_conf: str = flag("/etc/kbatch/scheduler/scheduler.yaml", "file with the actions and the tiers of plugins")
    schedule_period: float = flag(1.0, "longest time between two cycles")
    cycle_gap: float = flag(0.05, "shortest time between the starts of two cycles")
    default_queue: str = flag(DEFAULT_QUEUE, "the Queue of groups and pods that name none")
    bind_parallelism: int = flag(PARALLELISM, "binds that are sent at the same time")
    volume_timeout: float = flag(VOLUME_SECONDS, "how long to wait for the volumes of a gang before it is bound")
    decision_log: str = flag("", "folder for decision logs, for `kbatch replay`; if empty: none are written")
    decision_log_max_bytes: int = flag(
        64 * 1024 * 1024, "size of all decision logs together; the oldest are deleted first"
    )
    decision_log_max_files: int = flag(8, "number of decision logs; the oldest are deleted first")


def main() -> NoReturn:
    """Entry point of `kbatch-scheduler`."""
    run_process("scheduler", SchedulerSettings, serve)


async def serve(runtime: Runtime[SchedulerSettings]) -> None:
    """Schedule until a stop is asked for.

    Raises:
        ProcessError: no credentials, or a setting that cannot work.
    """
    settings = runtime.settings
    if settings.bind_parallelism < 1:
        raise ProcessError("--bind-parallelism: at least 1")
    if settings.volume_timeout <= 0:
        raise ProcessError("--volume-timeout: more than 0")
    try:
        credentials = load_credentials(settings.kubeconfig or None)
    except CredentialsError as error:
        raise ProcessError(str(error)) from error
    # Replicas share a ServiceAccount: in the API server's audit log only this tells them apart.
    agent = f"{runtime.user_agent} ({settings.resolved_identity()})"
    requests = RequestMetrics(runtime.registry)
    heard = Attempts(requests).heard
    client = Client(credentials, user_agent=agent, connections=settings.bind_parallelism + 32, heard=heard)
    leases = Client(credentials, user_agent=agent, connections=LEASE_CONNECTIONS, heard=heard)
    async with client, leases:
        await _Assembly(runtime, client, leases, Measured(client, requests), agent).run()


def own_pod(settings: SchedulerSettings) -> Regarding:
    """The pod that this process runs in, for Events, as the chart tells it; `kubectl describe` asks by the uid."""
    return Regarding(
        "v1",
        "Pod",
        os.environ.get("POD_NAMESPACE") or settings.resolved_lease_namespace(),
        os.environ.get("POD_NAME") or settings.resolved_identity(),
        os.environ.get("POD_UID", ""),
    )


class _Assembly:
    """The parts of one scheduler."""

    def __init__(
        self, runtime: Runtime[SchedulerSettings], client: Client, leases: Client, measured: Measured, agent: str
    ) -> None:
        settings = runtime.settings
        self.runtime = runtime
        self.client = client
        self.waits: str | None = "waiting for all that was known of pods and nodes when this process began to lead"
        self.vacant: int | None = None
        """The term before which nobody has led since before the first lists; None where somebody may have."""
        self.metrics = SchedulerMetrics(runtime.registry)
        self.elector = elector_of(runtime, leases)
        self.api = fenced(measured, self.elector)
        identity = settings.resolved_identity()
        self.recorder = EventRecorder(self.api, controller=CONTROLLER, instance=identity)
        EventMetrics(runtime.registry, lambda: counts_of(self.recorder))
        self.self_ = own_pod(settings)
        self.log = DecisionLog(
            settings.decision_log,
            scheduler_name=settings.scheduler_name,
            default_queue=settings.default_queue,
            policy=lambda: PolicyText(self.configuration.text, settings.scheduler_conf),
            max_bytes=settings.decision_log_max_bytes,
            max_files=settings.decision_log_max_files,
            written_by=agent,
        )
        self.log.model.objects[PersistentVolumeClaim] = {}  # a claim that is not there does not exist
        DecisionLogMetrics(runtime.registry, self.log.ended)
        self.cache = Cache(self.log.model)
        self.left_out = LeftOut(self.recorder, KINDS, self.cache.unreadable.get)
        self.cache.report_unreadable = self.left_out.note
        receive = Scope(settings.namespaces, settings.scheduler_name).over(self.cache.receive)
        self.feed = Feed([Informer(client, kind) for kind in KINDS], receive, WatchMetrics(runtime.registry))
        self.preflight = Preflight(client, needed=[PODGROUPS, QUEUES], listed=KINDS)
        self.configuration = ConfigurationFile(
            Path(settings.scheduler_conf), metrics=self.metrics, refused=self.refused
        )
        self.dispatcher = Dispatcher(
            self.api,
            self.cache,
            metrics=self.metrics,
            recorder=self.recorder,
            parallelism=settings.bind_parallelism,
            volume_seconds=settings.volume_timeout,
        )
        self.status = StatusWriter(
            self.api,
            self.cache,
            metrics=self.metrics,
            binding=lambda: self.dispatcher.backlog > 0,
            failure=self.dispatcher.failure,
        )
        self.pods = PodReporter(self.api, self.cache, self.recorder, binding=lambda: self.dispatcher.backlog > 0)
        self.queues = QueueWriter(self.api, self.cache, FlowMetrics(runtime.registry))
        self.learned = LearnedKeeper(self.api, settings.resolved_lease_namespace())
        self.unheeded = UnheededTopology(self.cache, self.recorder, lambda: self.configuration.policy)
        self.scheduler = Scheduler(
            self.cache,
            lambda: self.configuration.policy,
            self.dispatcher,
            self.report,
            metrics=self.metrics,
            gap=settings.cycle_gap,
            period=settings.schedule_period,
            decide=self.log.decide,
            failed=FailingGroups(self.cache, self.recorder).note,
            queues=self.queues.take,
            starts=Starts(StartMetrics(runtime.registry)).take,
            left=self.learned.take,
            begin=self.learned.begin,
        )

        runtime.diagnosis.parts |= parts_of(self.cache, lambda: self.scheduler.state)
        runtime.diagnosis.parts |= self.dispatcher.parts()
        runtime.diagnosis.configuration["schedulerConfiguration"] = self.configuration.described

    async def run(self) -> None:
        health = self.runtime.health
        self.feed.tell(health)
        health.ready("api", self.preflight.check)
        health.ready("lists", self.feed.unsynced)
        health.ready("configuration", self.configuration.missing)
        while_active(health, self.elector, "picture", lambda: self.waits)
        while_active(health, self.elector, "cycles", self.scheduler.failing)
        async with self.recorder, asyncio.TaskGroup() as group:
            background = [
                group.create_task(self.configuration.run(), name="configuration"),
                group.create_task(self._feed(), name="feed"),
            ]
            try:
                if await before_stop(self._prepared(), self.runtime.stopping):
                    memory.settle()
                    background.append(group.create_task(huge_pages.keep_using(), name="huge pages"))
                    await while_leading(self.runtime, self.elector, self._lead)
            finally:
                for task in background:
                    task.cancel()

    async def _feed(self) -> None:
        await self.preflight.wait()
        if self.elector is not None:
            self.vacant = await self.elector.vacant_term()
        await self.feed.run()

    async def _prepared(self) -> None:
        """Return when every list was read whole and there is a policy: never decide on half a picture."""
        await self.feed.synced.wait()
        await self.cache.caught_up()
        await self.configuration.ready.wait()
        _log.info("everything is listed: %d pods, %d nodes", len(self.cache.model.tasks), len(self.cache.model.nodes))

    async def _up_to_date(self) -> None:
        """Return when all is known that a predecessor did: from the watches alone.

        Of pods and nodes that is made sure, however long it takes: to place pods where others stand already is worse
        than to place none. Where nobody has led since before the lists were begun, they hold all there is to know.
        """
        if not await self.feed.watching(WATCHING_SECONDS):
            _log.warning("deciding although not every kind is watched")
        if self.elector is not None and self.elector.token != self.vacant:
            await self.feed.caught_up(self.client, (PODS, NODES))
        self.waits = None

    async def _lead(self) -> None:
        """Decide and carry out, while this process leads."""
        if not await before_stop(self._up_to_date(), self.runtime.stopping):
            return
        await self.client.open_connections(self.runtime.settings.bind_parallelism, seconds=CONNECT_SECONDS)
        async with asyncio.TaskGroup() as group:
            writers = [
                group.create_task(self.dispatcher.run(), name="dispatch"),
                group.create_task(self.status.run(), name="status"),
                group.create_task(self.pods.run(), name="pods"),
                group.create_task(self.queues.run(), name="queues"),
                group.create_task(self.left_out.run(), name="left out"),
                group.create_task(self.learned.run(), name="learned"),
            ]
            try:
                self.scheduler.resume(await self.learned.read(self.configuration.policy))
                await self.scheduler.run(self.runtime.stopping)
                if not await self.dispatcher.drain(DRAIN_SECONDS):
                    _log.warning("leaving with %d decisions not carried out", self.dispatcher.in_flight)
                await asyncio.gather(
                    self.status.drain(DRAIN_SECONDS / 2),
                    self.queues.drain(DRAIN_SECONDS / 2),
                    self.learned.drain(DRAIN_SECONDS / 2),
                    self.recorder.flush(EVENT_SECONDS),
                )
            finally:
                for task in writers:
                    task.cancel()
                await self.log.close()

    def report(self, report: Report) -> Iterator[None]:
        """Hand a cycle's verdicts to those who write them down, in pieces."""
        yield from self.status.report(report)
        yield from self.pods.report(report)
        yield from self.unheeded.report(report)

    def refused(self, why: str) -> None:
        """Say where people look that a configuration is not in force."""
        self.recorder.warning(self.self_, "ConfigurationRefused", "Configuring", why)
