"""The HTTPS server in front of kopf's handlers.

kopf's own server lets whatever it is sent run into its handlers. This one answers for itself what is no review (400),
too large (413) or addressed to nobody (404), and hands the rest to kopf; so no request can do more than be answered.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Collection
from typing import Any, Final, Literal

import kopf
import msgspec
from aiohttp import web

from kbatch.api.objects import Metadata
from kbatch.metrics import WebhookMetrics
from webhooks.answers import encoded, reviewing
from webhooks.certificates import CertificateError, Certificates

_log = logging.getLogger(__name__)

MOST_BYTES: Final = 8 * 2**20
"""A review holds an object twice, and the API server takes objects of up to 3 MiB."""
READ_SECONDS: Final = 10.0
MOST_AT_ONCE: Final = 64
RELOAD_SECONDS: Final = 5.0
_DRAIN_SECONDS: Final = 3.0


class _Resource(msgspec.Struct):
    group: str
    version: str
    resource: str


class _Object(msgspec.Struct):
    metadata: Metadata


class _Request(msgspec.Struct, rename="camel"):
    uid: str
    resource: _Resource
    operation: Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]
    user_info: dict[str, Any]
    object: _Object | None = None
    old_object: _Object | None = None
    namespace: str | None = None
    name: str | None = None
    dry_run: bool | None = None
    sub_resource: str | None = None


class _Review(msgspec.Struct, rename="camel"):
    """What must be right of an AdmissionReview for it to be handed on."""

    api_version: Literal["admission.k8s.io/v1"]
    kind: Literal["AdmissionReview"]
    request: _Request


class MalformedReviewError(ValueError):
    """The body is no admission review."""


_CHECK: Final = msgspec.json.Decoder(_Review)


def parse_review(body: bytes) -> dict[str, Any]:
    """The review as plain data.

    Raises:
        MalformedReviewError: it is not one; the message names the field.
    """
    try:
        review = _CHECK.decode(body)
        if review.request.object is None and review.request.old_object is None:
            raise MalformedReviewError("neither `$.request.object` nor `$.request.oldObject` is given")
        plain: dict[str, Any] = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise MalformedReviewError(str(error) or type(error).__name__) from error
    return plain


class ReviewServer:
    """kopf's `settings.admission.server`.

    Args:
        address, port: where to listen; port 0 for any free one, `port` is the real one then.
        certificates: for TLS; looked at again every few seconds.
        handlers: the ids of kopf's handlers; each is served at `/<id>`, anything else is 404.
    """

    def __init__(
        self,
        *,
        address: str,
        port: int,
        certificates: Certificates,
        handlers: Collection[str],
        metrics: WebhookMetrics,
    ) -> None:
        self.port = port
        self._address = address
        self._certificates = certificates
        self._handlers = frozenset(handlers)
        self._metrics = metrics
        self._listening = False

    def check(self) -> str | None:
        """None while the port is open."""
        return None if self._listening else "the port is not open yet"

    async def __call__(self, review: kopf.WebhookFn) -> AsyncIterator[Any]:
        """Serve until cancelled. Called by kopf once it knows the kinds."""
        endpoint = _Endpoint(review, self._handlers, self._metrics)
        app = web.Application(client_max_size=MOST_BYTES)
        app.add_routes([web.post("/{handler}", endpoint.answer)])
        runner = web.AppRunner(app, handle_signals=False, access_log=None, shutdown_timeout=_DRAIN_SECONDS)
        await runner.setup()
        try:
            context = self._certificates.context
            await web.TCPSite(runner, self._address, self.port, ssl_context=context).start()
            self.port = runner.addresses[0][1]
            self._listening = True
            _log.info("reviewing on port %d", self.port, extra={"webhook_port": self.port})
            yield {"url": f"https://{self._address}:{self.port}"}
            while True:
                await asyncio.sleep(RELOAD_SECONDS)
                self._reload()
        finally:
            self._listening = False
            await runner.cleanup()

    def _reload(self) -> None:
        try:
            self._certificates.reload()
        except CertificateError as error:
            _log.warning("the renewed certificate is not taken: %s", error)
        self._metrics.certificate_expiry.set(self._certificates.expires or 0.0)


class _Endpoint:
    """Answers single requests."""

    def __init__(self, review: kopf.WebhookFn, handlers: frozenset[str], metrics: WebhookMetrics) -> None:
        self._review = review
        self._handlers = handlers
        self._metrics = metrics
        self._limit = asyncio.Semaphore(MOST_AT_ONCE)

    async def answer(self, request: web.Request) -> web.Response:
        handler = request.match_info["handler"]
        if handler not in self._handlers:
            return _refuse(404, f"no handler {handler[:64]!r} here")
        started = time.monotonic()
        async with self._limit:
            outcome, response = await self._answered(request, handler, started)
        self._metrics.reviews.labels(handler, outcome).inc()
        self._metrics.seconds.labels(handler).observe(time.monotonic() - started)
        return response

    async def _answered(self, request: web.Request, handler: str, arrived: float) -> tuple[str, web.Response]:
        try:
            async with asyncio.timeout(READ_SECONDS):
                body = await request.read()
            review = parse_review(body)
        except web.HTTPRequestEntityTooLarge:
            return "malformed", _refuse(413, f"a review has at most {MOST_BYTES} bytes")
        except TimeoutError:
            return "malformed", _refuse(408, f"the review did not arrive within {READ_SECONDS:g} s")
        except MalformedReviewError as error:
            return "malformed", _refuse(400, f"not an admission review: {error}")
        try:
            with reviewing(arrived, request.query.get("timeout")) as context:
                answer: Any = await self._review(review, webhook=handler, headers=dict(request.headers))  # type: ignore[arg-type]
        except Exception as error:  # noqa: BLE001 - answered with a status, so that failurePolicy decides
            if type(error).__name__ == "UnknownResourceError":  # kopf does not export the class
                return "malformed", _refuse(404, "no handler for this resource")
            _log.exception("a review failed", exc_info=error)
            return "failed", _refuse(500, "the review failed")
        if context.operations and answer["response"]["allowed"]:
            answer["response"] |= {"patchType": "JSONPatch", "patch": encoded(context.operations)}
        return _outcome(answer["response"]), web.Response(
            body=msgspec.json.encode(answer), content_type="application/json"
        )


def _outcome(response: Any) -> str:
    if not response["allowed"]:
        return "denied"
    return "patched" if response.get("patch") else "allowed"


def _refuse(status: int, message: str) -> web.Response:
    return web.json_response({"message": message}, status=status)
