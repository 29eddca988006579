"""The admission webhook as a process: `kbatch-webhook`. It needs no Lease: every replica answers."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from pathlib import Path
from typing import Final, NoReturn

from kbatch.api.names import DEFAULT_QUEUE
from kbatch.kube.client import Client
from kbatch.kube.credentials import load_credentials
from kbatch.kube.kinds import PODGROUPS
from kbatch.metrics import WebhookMetrics
from kbatch.process.kopf_host import KopfHost, operator_settings
from kbatch.process.preflight import Preflight
from kbatch.process.run import Runtime, before_stop
from kbatch.process.run import main as run_process
from kbatch.process.settings import ProcessSettings, flag
from webhooks.certificates import CertificateError, Certificates
from webhooks.handlers import DOMAIN, HANDLERS, make_registry
from webhooks.server import ReviewServer

_log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class WebhookSettings(ProcessSettings):
    """The admission webhook: fills in what PodGroups leave open."""

    port: int = flag(9443, "port of the reviews, over TLS; 0 for a free one")
    certificates: str = flag("/etc/kbatch/certificates", "folder with tls.crt and tls.key")
    default_queue: str = flag(DEFAULT_QUEUE, "the queue of groups that name none")


def main() -> NoReturn:
    """Run the process."""
    run_process("webhook", WebhookSettings, serve)


async def serve(runtime: Runtime[WebhookSettings]) -> None:
    """Answer reviews until a stop is asked for."""
    await before_stop(_serve(runtime), runtime.stopping)


async def _serve(runtime: Runtime[WebhookSettings]) -> None:
    settings = runtime.settings
    credentials = load_credentials(settings.kubeconfig or None)
    certificates = Certificates(Path(settings.certificates))
    metrics = WebhookMetrics(runtime.registry)
    server = ReviewServer(
        address=settings.bind_address,
        port=settings.port,
        certificates=certificates,
        handlers=HANDLERS,
        metrics=metrics,
    )
    async with Client(credentials, user_agent=runtime.user_agent) as client:
        # kopf learns the kinds once, at its start: one that came later it would answer with 404 for ever.
        preflight = Preflight(client, needed=[PODGROUPS])
        runtime.health.ready("crds", preflight.check)
        runtime.health.ready("certificate", certificates.check)
        runtime.health.ready("port", server.check)
        await _first_certificate(certificates)
        metrics.certificate_expiry.set(certificates.expires or 0.0)
        await preflight.wait()
    kopf_settings = operator_settings(DOMAIN)
    kopf_settings.admission.server = server
    async with KopfHost(
        name="webhook",
        registry=make_registry(settings.default_queue),
        settings=kopf_settings,
        credentials=credentials,
        user_agent=runtime.user_agent,
    ) as host:
        await host.ended()


async def _first_certificate(certificates: Certificates) -> None:
    """Wait for a certificate that can be used; each new reason why there is none is said once."""
    said = ""
    while True:
        try:
            certificates.reload()
        except CertificateError as error:
            if str(error) != said:
                said = str(error)
                _log.warning("waiting for a certificate: %s", said)
            await asyncio.sleep(_RETRY_SECONDS)
        else:
            return
