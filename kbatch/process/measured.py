"""The API server, with a count of what is asked of it and how that ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Unpack

from prometheus_client import Counter, Histogram

from kbatch.kube.client import Api, RequestOptions
from kbatch.kube.errors import ApiError, NoAnswerError, NotLeadingError
from kbatch.kube.events import EventRecorder
from kbatch.metrics import RequestMetrics

_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_OUTCOMES = {404: "gone", 409: "conflict", 410: "gone", 429: "throttled"}


class Measured:
    """An `Api` that counts its requests, each once however often it is tried; streams are not counted."""

    def __init__(self, api: Api, metrics: RequestMetrics) -> None:
        self._api = api
        self._metrics = metrics
        self._counters: dict[tuple[str, str, str], Counter] = {}

    async def request(self, method: str, path: str, **options: Unpack[RequestOptions]) -> bytes:
        """As `Client.request`."""
        outcome = "failed"
        try:
            answer = await self._api.request(method, path, **options)
            outcome = "ok"
        except ApiError as error:
            outcome = _OUTCOMES.get(error.status, "refused" if error.status < 500 else "failed")
            raise
        except NotLeadingError:
            outcome = "fenced"
            raise
        except NoAnswerError:
            outcome = "unanswered"
            raise
        finally:
            self._count(method, resource_of(path), outcome)
        return answer

    def _count(self, method: str, resource: str, outcome: str) -> None:
        key = (method, resource, outcome)
        counter = self._counters.get(key)
        if counter is None:
            verb = _VERBS.get(method, method.lower())
            counter = self._counters[key] = self._metrics.requests.labels(verb, resource, outcome)
        counter.inc()

    def stream(
        self, path: str, *, params: Mapping[str, str] | None = None, silence: float
    ) -> AbstractAsyncContextManager[AsyncIterator[list[bytes]]]:
        """As `Client.stream`."""
        return self._api.stream(path, params=params, silence=silence)


class Attempts:
    """What a `Client` tells of its attempts, for the metrics."""

    def __init__(self, metrics: RequestMetrics) -> None:
        self._metrics = metrics
        self._known: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def heard(self, method: str, path: str, seconds: float, status: int) -> None:
        """As `kbatch.kube.client.Heard`."""
        key = (method, resource_of(path), status)
        known = self._known.get(key)
        if known is None:
            verb, resource = _VERBS.get(method, method.lower()), key[1]
            code = str(status) if status else "none"
            counter = self._metrics.attempts.labels(verb, resource, code)
            known = self._known[key] = counter, self._metrics.seconds.labels(verb, resource)
        known[0].inc()
        known[1].observe(seconds)


def counts_of(recorder: EventRecorder) -> dict[str, int]:
    """What became of a recorder's Events, for `EventMetrics`."""
    return {"written": recorder.written, "failed": recorder.failed, "dropped": recorder.dropped}


def resource_of(path: str) -> str:
    """The resource that a path of the API speaks of, with its subresource: `pods/binding`; empty where it is none."""
    parts = path.partition("?")[0].strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]  # api/v1/... or apis/group/version/...
    if len(parts) > 2 and parts[0] == "namespaces":
        parts = parts[2:]
    if not parts:
        return ""
    return f"{parts[0]}/{parts[2]}" if len(parts) > 2 else parts[0]
