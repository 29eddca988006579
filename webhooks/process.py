"""The admission webhook as a process: `kbatch-webhook`. It needs no Lease: every replica answers."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn

from kbatch.api.names import DEFAULT_QUEUE
from kbatch.kube.client import Client
from kbatch.kube.credentials import load_credentials
from kbatch.kube.informer import Informer
from kbatch.kube.kinds import JOBS, PODGROUPS, PODS, QUEUES, RESOURCEQUOTAS
from kbatch.metrics import LedgerMetrics, RequestMetrics, WatchMetrics, WebhookMetrics
from kbatch.process import memory
from kbatch.process.certificates import CertificateError, Certificates
from kbatch.process.feed import Feed
from kbatch.process.kopf_host import KopfHost, operator_settings
from kbatch.process.measured import Attempts, Measured
from kbatch.process.preflight import Preflight
from kbatch.process.run import Runtime, before_stop
from kbatch.process.run import main as run_process
from kbatch.process.settings import ProcessSettings, flag
from webhooks.admission import OFF, QUEUE, QUOTA_POLICIES, REFUSE, RESERVATION_POLICIES, Admission, Rules
from webhooks.cluster_view import ClusterView
from webhooks.commits import Ledgers
from webhooks.handlers import HANDLERS, make_registry, passes
from webhooks.paths import Paths, PathSecretError
from webhooks.server import ReviewServer

_log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class WebhookSettings(ProcessSettings):
    """The admission webhook: fills in what PodGroups leave open, suspends Jobs that must wait, guards quotas."""

    port: int = flag(9443, "port of the reviews, over TLS; 0 for a free one")
    certificates: str = flag("/etc/kbatch/certificates", "folder with tls.crt and tls.key")
    path_secret: str = flag(
        "", "file with the secret from which the URL paths are made; if empty: anybody may send reviews"
    )
    client_authority: str = flag("", "file with the authority of client certificates; if empty: none are asked for")
    client_names: str = flag("", "accepted common names of client certificates, separated by commas; if empty: any")
    default_queue: str = flag(DEFAULT_QUEUE, "the Queue of groups that name none")
    quota_policy: str = flag(
        QUEUE,
        "whether groups over the quota of their namespace wait in the queue or are rejected",
        choices=QUOTA_POLICIES,
    )
    ledger_namespace: str = flag("kbatch-system", "namespace in which the quota policy Reject keeps its ledgers")
    reservations: str = flag(
        REFUSE,
        "whether pods that would use quota promised to groups in queue are refused, gated, or let pass",
        choices=RESERVATION_POLICIES,
    )
    gate_pods: bool = flag(default=False, text="add a scheduling gate to pods of groups that are not in queue")


def main() -> NoReturn:
    """Run the process."""
    run_process("webhook", WebhookSettings, serve)


async def serve(runtime: Runtime[WebhookSettings]) -> None:
    """Answer reviews until a stop is asked for."""
    await before_stop(_serve(runtime), runtime.stopping)


async def _serve(runtime: Runtime[WebhookSettings]) -> None:
    settings = runtime.settings
    credentials = load_credentials(settings.kubeconfig or None)
    certificates = Certificates(
        Path(settings.certificates),
        Path(settings.client_authority) if settings.client_authority else None,
        [name for name in settings.client_names.split(",") if name],
    )
    paths = Paths(Path(settings.path_secret) if settings.path_secret else None)
    metrics = WebhookMetrics(runtime.registry, HANDLERS)
    requests = RequestMetrics(runtime.registry)
    async with Client(credentials, user_agent=runtime.user_agent, heard=Attempts(requests).heard) as client:
        view = ClusterView(settings.scheduler_name, pods_later=True)
        api = Measured(client, requests)
        ledgers = Ledgers(api, view, namespace=settings.ledger_namespace, metrics=LedgerMetrics(runtime.registry))
        admission = Admission(_rules(settings), view, api, ledgers)
        server = ReviewServer(
            address=settings.bind_address,
            port=settings.port,
            certificates=certificates,
            paths=paths,
            handlers=HANDLERS,
            metrics=metrics,
            passes=passes(admission),
        )
        informers, of_pods = _informers(client, settings)
        watches = WatchMetrics(runtime.registry)
        feed, pods = Feed(informers, view.receive, watches), Feed(of_pods, view.receive, watches)
        # kopf learns the kinds once, at its start: one that came later it would answer with 404 for ever.
        listed = [informer.kind for informer in (*informers, *of_pods)]
        preflight = Preflight(client, needed=[PODGROUPS, QUEUES], listed=listed)
        runtime.health.ready("crds", preflight.check)
        runtime.health.ready("synced", feed.unsynced)
        runtime.health.ready("certificate", certificates.check)
        runtime.health.ready("paths", paths.check)
        runtime.health.ready("port", server.check)
        runtime.health.ready("watches", lambda: feed.stale() or pods.stale())
        await _first_of(certificates.reload, CertificateError)
        await _first_of(paths.reload, PathSecretError)
        metrics.certificate_expiry.set(certificates.expires or 0.0)
        await preflight.wait()
        kopf_settings = operator_settings()
        kopf_settings.admission.server = server
        async with asyncio.TaskGroup() as group:
            group.create_task(feed.run(), name="feed")
            await feed.synced.wait()  # no review is answered out of half a picture
            if of_pods:
                group.create_task(_once_wanted(view, pods), name="feed of pods")
                if view.wants_pods.is_set():
                    await pods.synced.wait()
            memory.settle()
            group.create_task(server.serve(), name="server")
            host = KopfHost(
                name="webhook",
                registry=make_registry(admission),
                settings=kopf_settings,
                credentials=credentials,
                user_agent=runtime.user_agent,
            )
            async with host:
                await host.ended()


def _rules(settings: WebhookSettings) -> Rules:
    return Rules(
        scheduler_name=settings.scheduler_name,
        default_queue=settings.default_queue,
        quota_policy=settings.quota_policy,
        reservations=settings.reservations,
        gate_pods=settings.gate_pods,
    )


def _informers(client: Client, settings: WebhookSettings) -> tuple[list[Informer[Any]], list[Informer[Any]]]:
    """What must be known for the rules chosen, and what only once a quota has something to guard; the chart grants
    just these rights.
    """
    informers: list[Informer[Any]] = [Informer(client, RESOURCEQUOTAS), Informer(client, PODGROUPS)]
    if settings.reservations == OFF:
        return informers, []
    of_ours = f"spec.schedulerName={settings.scheduler_name}"
    return [*informers, Informer(client, JOBS)], [Informer(client, PODS, field_selector=of_ours)]


async def _once_wanted(view: ClusterView, pods: Feed) -> None:
    """Read pods from when there is something to guard on: each watch of them costs the API server as much as it has
    changes of pods to tell.
    """
    await view.wants_pods.wait()
    _log.info("a namespace with a ResourceQuota has PodGroups: pods are watched from now on")
    await pods.run()


async def _first_of(read: Callable[[], object], refused: type[Exception]) -> None:
    """Wait until what is mounted can be used; each new reason why it cannot is said once."""
    said = ""
    while True:
        try:
            read()
        except refused as error:
            if str(error) != said:
                said = str(error)
                _log.warning("waiting for what is mounted: %s", said)
            await asyncio.sleep(_RETRY_SECONDS)
        else:
            return
