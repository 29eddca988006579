"""The HTTPS server in front of kopf's handlers.

kopf's own server lets whatever it is sent run into its handlers. This one answers for itself what is no review (400),
too large (413) or addressed to nobody (404), and hands the rest to kopf; so no request can do more than be answered.

It lives in the process's own event loop and calls kopf's function for reviews there. Answered in kopf's thread, each
review would wait for the interpreter's lock as often as it needs something of the other loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any, Final

import kopf
import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from kbatch.metrics import WebhookMetrics
from kbatch.process.certificates import CertificateError, Certificates
from kbatch.process.offload import Offload
from kbatch.process.run import ProcessError
from webhooks.paths import Paths, PathSecretError
from webhooks.review import (
    MalformedReviewError,
    OtherResourceError,
    Resource,
    Review,
    answered_until,
    read_review,
)
from webhooks.review_context import reviewing

_log = logging.getLogger(__name__)
_http_log = logging.getLogger(f"{__name__}.http")

MOST_BYTES: Final = 8 * 2**20
"""A review holds an object twice, and the API server takes objects of up to 3 MiB."""
READ_SECONDS: Final = 10.0
LARGE_BYTES: Final = 256 * 2**10
MOST_LARGE: Final = 8
"""Bodies larger than that, or of a length that is not said, are read and taken apart so many at a time: what is read is
held in memory until it is whole. Others need no turn, so nobody holds them up by sending slowly.
"""
RELOAD_SECONDS: Final = 5.0
_DRAIN_SECONDS: Final = 3.0

Passes = Callable[[Review], bool]


class ReviewServer:
    """kopf's `settings.admission.server`.

    Args:
        address, port: where to listen; port 0 for any free one, `port` is the real one then.
        certificates: for TLS, and whose callers must have; looked at again every few seconds.
        paths: which callers must know; looked at again with them.
        handlers: the ids of kopf's handlers with the resource that each is for. Each is served at `/<id>/<token>`
            (`/<id>` where no token is asked for); any other path is 404, and so is any other resource.
        passes: whether a review can be allowed as it is, by what it says of itself; kopf is not asked then.
    """

    def __init__(
        self,
        *,
        address: str,
        port: int,
        certificates: Certificates,
        paths: Paths,
        handlers: Mapping[str, Resource],
        metrics: WebhookMetrics,
        passes: Passes = lambda _: False,
    ) -> None:
        self.port = port
        self._address = address
        self._certificates = certificates
        self._paths = paths
        self._handlers = dict(handlers)
        self._metrics = metrics
        self._passes = passes
        self.listening = asyncio.Event()
        """Set while the port is open."""
        self._handed: concurrent.futures.Future[kopf.WebhookFn] = concurrent.futures.Future()
        self._review: kopf.WebhookFn  # what was handed over; nothing is answered before
        self._large = asyncio.Semaphore(MOST_LARGE)
        self._offload = Offload("reviews")

    def check(self) -> str | None:
        """None while the port is open."""
        return None if self.listening.is_set() else "the port is not open yet"

    async def __call__(self, review: kopf.WebhookFn) -> AsyncIterator[Any]:
        """Called by kopf, in its own loop, once it knows the kinds: what it hands over is what `serve` waits for."""
        with contextlib.suppress(concurrent.futures.InvalidStateError):  # `serve` was cancelled meanwhile
            self._handed.set_result(review)
        yield {"url": f"https://{self._address}:{self.port}"}
        await asyncio.Event().wait()

    async def serve(self) -> None:
        """Answer reviews until cancelled. Nothing listens before kopf knows the kinds.

        Raises:
            ProcessError: kopf did not find one of them.
        """
        self._review = await asyncio.wrap_future(self._handed)
        await _try(self._review, self._handlers)
        app = web.Application(client_max_size=MOST_BYTES)
        app.add_routes([web.post(path, self._answer) for path in ("/{handler}", "/{handler}/{token}")])
        runner = web.AppRunner(
            app, handle_signals=False, access_log=None, shutdown_timeout=_DRAIN_SECONDS, logger=_http_log
        )
        await runner.setup()
        try:
            context = self._certificates.context
            await web.TCPSite(runner, self._address, self.port, ssl_context=context).start()
            self.port = runner.addresses[0][1]
            self.listening.set()
            _log.info("reviewing on port %d", self.port, extra={"webhook_port": self.port})
            while True:
                await asyncio.sleep(RELOAD_SECONDS)
                self._reload()
        finally:
            self.listening.clear()
            await runner.cleanup()

    def _reload(self) -> None:
        try:
            self._certificates.reload()
        except CertificateError as error:
            _log.warning("the renewed certificate is not taken: %s", error)
        try:
            self._paths.reload()
        except PathSecretError as error:
            _log.warning("the secret of the paths is not taken: %s", error)
        self._metrics.certificate_expiry.set(self._certificates.expires or 0.0)

    async def _answer(self, request: web.Request) -> web.Response:
        handler, token = request.match_info["handler"], request.match_info.get("token", "")
        peer = request.get_extra_info("peercert")
        if handler not in self._handlers or not (self._certificates.knows(peer) and self._paths.opens(handler, token)):
            return _refuse(404, "nothing is reviewed here")  # and nothing is read
        started = time.monotonic()
        outcome, response = await self._answered(request, handler, started)
        self._metrics.reviews.labels(handler, outcome).inc()
        self._metrics.seconds.labels(handler).observe(time.monotonic() - started)
        return response

    async def _answered(self, request: web.Request, handler: str, arrived: float) -> tuple[str, web.Response]:
        try:
            review = await self._received(request, handler, arrived)
        except web.HTTPRequestEntityTooLarge:
            return "malformed", _refuse(413, f"a review has at most {MOST_BYTES} bytes")
        except TimeoutError:
            return "malformed", _refuse(408, f"the review did not arrive within {READ_SECONDS:g} s")
        except MalformedReviewError as error:
            return "malformed", _refuse(400, f"not an admission review: {error}")
        except OtherResourceError as error:
            return "malformed", _refuse(404, str(error))
        if review.unreadable:
            message = f"this cannot be read: {review.unreadable}"
            return _reply(_answer_to(review, allowed=False, status={"code": 422, "message": message}))
        if self._passes(review):
            return _reply(_answer_to(review, allowed=True))
        try:
            with reviewing(review) as shown:
                answer: Any = await self._review(shown, webhook=handler)
        except Exception as error:  # noqa: BLE001 - answered with a status, so that failurePolicy decides
            _log.exception("a review failed", exc_info=error)
            return "failed", _refuse(500, "the review failed")
        if review.failed is not None:  # kopf has logged it
            return "failed", _refuse(500, "the review failed")
        response = answer["response"]
        if review.changes and response["allowed"]:
            patch = await self._offload.run(handler, review.patch) if review.large else review.patch()
            if patch:
                response |= {"patchType": "JSONPatch", "patch": patch}
        if review.warnings:
            response["warnings"] = review.warnings
        return _reply(answer)

    async def _received(self, request: web.Request, handler: str, arrived: float) -> Review:
        """What was sent. A large review is read beside the event loop, one after the other.

        Raises:
            HTTPRequestEntityTooLarge: it is longer than a review may be.
            MalformedReviewError: it is no review.
            OtherResourceError: it is not for this handler.
            TimeoutError: it did not arrive.
        """
        length = request.content_length
        if length is not None and length > MOST_BYTES:
            raise web.HTTPRequestEntityTooLarge(max_size=MOST_BYTES, actual_size=length)
        deadline = answered_until(arrived, request.query.get("timeout"))
        read = partial(read_review, resource=self._handlers[handler], deadline=deadline)
        if length is not None and length <= LARGE_BYTES:
            async with asyncio.timeout(READ_SECONDS):
                body = await request.read()
            return read(body)
        async with asyncio.timeout(READ_SECONDS) as reading, self._large:
            body = await request.read()
            reading.reschedule(None)  # it is here
            if len(body) <= LARGE_BYTES:
                return read(body)
            return await self._offload.run(handler, partial(read, body, large=True))


async def _try(review: kopf.WebhookFn, handlers: Mapping[str, Resource]) -> None:
    """Ask kopf about each handler once, with a review of no effect.

    Raises:
        ProcessError: kopf did not find one of the kinds. It looks for them once, at its start: it would refuse the
            reviews of one that came a moment later (or that the API server that was asked did not know yet) for ever.
    """
    for handler, resource in handlers.items():
        try:
            with reviewing(Review(resource, "CONNECT")) as shown:
                await review(shown, webhook=handler)
        except Exception as error:
            raise ProcessError(f"kopf does not review {resource.resource}: {error}") from error


class _NoStrangers(logging.Filter):
    """Drops what aiohttp says, with a traceback, of each request that is no HTTP: anybody can send them."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is kept."""
        return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


_http_log.addFilter(_NoStrangers())


def _answer_to(review: Review, **response: Any) -> dict[str, Any]:
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": review.uid, **response},
    }


def _reply(answer: Any) -> tuple[str, web.Response]:
    """The answer, and the word for its outcome."""
    response = answer["response"]
    outcome = "denied" if not response["allowed"] else "patched" if response.get("patch") else "allowed"
    return outcome, web.Response(body=msgspec.json.encode(answer), content_type="application/json")


def _refuse(status: int, message: str) -> web.Response:
    return web.json_response({"message": message}, status=status)
