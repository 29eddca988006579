"""Watches that go on: one watch, inside a continuous one, which ends only when the server has forgotten too much.

The third and outermost of the nested generators, which then lists anew, is `kbatch.kube.informer`.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final, TypeVar

import msgspec

from kbatch.kube.backoff import Backoff
from kbatch.kube.client import Api, SilenceError
from kbatch.kube.decoding import Change, change, is_gone
from kbatch.kube.errors import ApiError, KubeError
from kbatch.kube.kinds import Kind
from kbatch.kube.lists import selectors

T = TypeVar("T")

_log = logging.getLogger(__name__)

SILENCE: Final = 150.0
"""Seconds without an event or a bookmark after which a watch is taken for dead. Bookmarks come every minute, but of
kinds that nobody touches one is left out now and then. A peer that is gone the kernel notices sooner (keep-alive)."""

SERVER_SECONDS: Final = 300
"""After about so long the server is asked to end a watch, so that connections spread over its replicas again."""

SETTLED_SECONDS: Final = 10.0
"""A watch that lived so long counts as a success, and the next failure waits the shortest time."""


ERRORS_IN_A_ROW: Final = 4
"""A watch that ends in an error each time it is begun, before anything else came, will not get past that version."""


class ExpiredError(Exception):
    """The server no longer holds the version to go on from, or has gone back behind it: list anew."""


class ErrorEventError(ApiError):
    """The server ended a watch that it had begun."""


class Heartbeat:
    """When something last arrived, on the monotonic clock (None before anything did), and whether a watch is open."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.last: float | None = None
        self.watching = False

    def beat(self) -> None:
        """Something arrived."""
        self.last = self._clock()


async def watch_once(
    api: Api,
    kind: Kind[T],
    version: str,
    *,
    namespace: str | None = None,
    field_selector: str | None = None,
    label_selector: str | None = None,
    silence: float = SILENCE,
    heartbeat: Heartbeat | None = None,
) -> AsyncGenerator[list[Change[T]], None]:
    """One watch request: changes after `version`, as many at a time as have arrived, until the server ends it.

    Bookmarks are among them. A line that is no event at all ends the watch, as a cut connection does.

    Raises:
        ApiError: the server refused, in an answer or in an ERROR event; 410 when `version` is too old.
        NoAnswerError: the connection was cut, or silent for `silence` seconds (`SilenceError`).
    """
    params = {
        "watch": "true",
        "resourceVersion": version,
        "allowWatchBookmarks": "true",
        "timeoutSeconds": str(round(SERVER_SECONDS * random.uniform(1.0, 2.0))),
    } | selectors(field_selector, label_selector)
    heart = heartbeat or Heartbeat()
    async with api.stream(kind.path(namespace), params=params, silence=silence) as arriving:
        heart.beat()
        heart.watching = True
        try:
            async for lines in arriving:
                heart.beat()
                changes: list[Change[T]] = []
                try:
                    for line in lines:
                        changes.append(change(kind, line))  # noqa: PERF401  (what came before an error is kept)
                except ApiError as error:
                    if changes:
                        yield changes
                    raise ErrorEventError(
                        error.status, error.reason, error.message, error.causes, error.retry_after
                    ) from error
                except msgspec.DecodeError as error:
                    if changes:
                        yield changes
                    _log.warning("watch of %s: not an event, watching anew: %s", kind.plural, error)
                    return
                yield changes
        finally:
            heart.watching = False


async def watch_continuously(
    api: Api,
    kind: Kind[T],
    version: str,
    *,
    namespace: str | None = None,
    field_selector: str | None = None,
    label_selector: str | None = None,
    silence: float = SILENCE,
    heartbeat: Heartbeat | None = None,
) -> AsyncGenerator[list[Change[T]], None]:
    """Watch after watch, each going on where the last one ended, through cut connections and restarts of the server.

    Raises:
        ExpiredError: only a new list can help: the server answered 410, or two watches in a row were silent from
            beginning to end (a server restored from a backup accepts a version of its future, then says nothing), or
            several ended in an error event and gave nothing else.
    """
    backoff = Backoff()
    silent = failures = errors = 0
    while True:
        began = time.monotonic()
        try:
            watch = watch_once(
                api,
                kind,
                version,
                namespace=namespace,
                field_selector=field_selector,
                label_selector=label_selector,
                silence=silence,
                heartbeat=heartbeat,
            )
            async with aclosing(watch):
                async for changes in watch:
                    silent = failures = errors = 0
                    backoff.reset()
                    version = changes[-1].resource_version or version
                    yield changes
        except SilenceError as error:
            silent += 1
            _log.warning("watch of %s: %s", kind.plural, error.why)
            if silent >= 2:
                raise ExpiredError(f"two watches of {kind.plural} in a row were silent") from error
        except ApiError as error:
            if is_gone(error):
                raise ExpiredError(error.message) from error
            failures += 1
            errors += isinstance(error, ErrorEventError)
            if errors >= ERRORS_IN_A_ROW:
                raise ExpiredError(f"{errors} watches of {kind.plural} in a row ended in an error: {error}") from error
            _log.log(_level(failures), "watch of %s: %s", kind.plural, error)
        except KubeError as error:
            failures += 1
            _log.log(_level(failures), "watch of %s: %s", kind.plural, error)
        else:
            if time.monotonic() - began >= SETTLED_SECONDS:
                backoff.reset()
        await asyncio.sleep(backoff.next())


def _level(failures: int) -> int:
    """The first failure is worth a line; of an outage that lasts, the 4th, the 16th and so on."""
    if failures == 1:
        return logging.INFO
    return logging.WARNING if failures.bit_count() == 1 and failures.bit_length() % 2 else logging.DEBUG
