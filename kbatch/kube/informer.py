"""A kind's objects as the model's events, for ever, losing none.

List, then watch from the list's version; when the server has forgotten that version, list again and say what the gap
has hidden: the objects that are gone, and those that were made anew under the same name. A list that is older than
what was said before is of a cluster that was restored from a backup, and ends the informer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

import msgspec

from kbatch.api.objects import AnyObject, Metadata
from kbatch.kube.backoff import Backoff
from kbatch.kube.client import Api
from kbatch.kube.decoding import Change, Page
from kbatch.kube.errors import KubeError
from kbatch.kube.kinds import Kind, key_of
from kbatch.kube.lists import PAGE_SIZE, list_pages, older, version_number
from kbatch.kube.watches import SILENCE, ExpiredError, Heartbeat, watch_continuously
from kbatch.model.events import Delete, Event, Unreadable, Upsert

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Batch:
    """Events that arrived together, in order.

    `complete` is False only while the very first list is still coming in, page by page: from the first True on, whoever
    has applied every batch has a whole picture.

    `listed` stands at the end of a list: the kind, and the version that the list was of.
    """

    events: tuple[Event, ...]
    complete: bool
    listed: tuple[type[AnyObject], str] | None = None


class RestoredError(Exception):
    """The server has gone back behind what it said before. What was seen and done since is of a past that never was."""

    def __init__(self, plural: str, what: str) -> None:
        super().__init__(
            f"the cluster was restored from a backup: the list of {plural} is older than what was seen ({what})"
        )


class Informer(Generic[T]):
    """One kind, listed and watched. Iterate over it once: `async for batch in informer`.

    It never ends by itself: a server that is away, refuses or lacks the kind is asked again, at growing intervals. It
    raises RestoredError, alone, before anything is told of a list that is older than what was seen: lists are of the
    moment, and no version ever goes down but by a restore. `synced` is set once the first whole list has been handed
    out and taken.
    """

    def __init__(
        self,
        api: Api,
        kind: Kind[T],
        *,
        namespace: str | None = None,
        field_selector: str | None = None,
        label_selector: str | None = None,
        page_size: int = PAGE_SIZE,
        silence: float = SILENCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.kind = kind
        self.synced = asyncio.Event()
        self.relists = 0
        """How often the list had to be made again after the first."""
        self.reached = 0
        """All that the server said up to this version was handed out and taken; 0 before the first whole list."""
        self._api = api
        self._namespace = namespace
        self._field_selector = field_selector
        self._label_selector = label_selector
        self._page_size = page_size
        self._silence = silence
        self._clock = clock
        self._heartbeat = Heartbeat(clock)
        self._version = ""
        self._asked = False
        self._alarm: asyncio.Timeout | None = None
        self._known: dict[str, tuple[str, str, str, str]] = {}  # key -> namespace, name, uid, version

    @property
    def last_activity(self) -> float | None:
        """When the server was last heard, on the monotonic clock; None before the first answer."""
        return self._heartbeat.last

    @property
    def watching(self) -> bool:
        """Whether a watch is open now; without one, what was told may be old."""
        return self._heartbeat.watching

    def stale(self, limit: float | None = None) -> bool:
        """Whether nothing was heard for longer than `limit` seconds (by default three times the silence allowed)."""
        last = self._heartbeat.last
        return last is None or self._clock() - last > (3 * self._silence if limit is None else limit)

    def list_anew(self) -> None:
        """Have all of it listed soon, whatever the watch says; where a list is under way, once more after it."""
        self._asked = True
        if self._alarm is not None and not self._alarm.expired():
            self._alarm.reschedule(asyncio.get_running_loop().time())

    async def __aiter__(self) -> AsyncIterator[Batch]:
        backoff = Backoff()
        failures = 0
        while True:
            try:
                self._asked = False
                async with aclosing(self._listed()) as listed:
                    async for batch in listed:
                        yield batch
                self.synced.set()
                self.reached = version_number(self._version)
                backoff.reset()
                failures = 0
                async with aclosing(self._watched()) as watched:
                    while (changes := await self._next(watched)) is not None:
                        events = tuple(event for one in changes for event in self._changed(one))
                        if events:
                            yield Batch(events, complete=True)
                        self.reached = max(self.reached, version_number(changes[-1].resource_version))
                self.relists += 1
                _log.info("listing %s anew: it is asked for", self.kind.plural)
                continue
            except ExpiredError as reason:
                self.relists += 1
                _log.info("listing %s anew: %s", self.kind.plural, reason)
            except (KubeError, msgspec.DecodeError) as error:
                failures += 1
                level = logging.WARNING if failures & (failures - 1) == 0 else logging.DEBUG  # 1st, 2nd, 4th, 8th ...
                _log.log(level, "listing %s failed %d times: %s", self.kind.plural, failures, error)
            await asyncio.sleep(backoff.next())

    async def _next(self, watched: AsyncGenerator[list[Change[T]], None]) -> list[Change[T]] | None:
        """What the watch says next; None where a list is asked for instead."""
        if self._asked:
            return None
        alarm = self._alarm = asyncio.timeout(None)
        try:
            async with alarm:
                return await anext(watched)
        except TimeoutError:
            if alarm.expired():
                return None
            raise
        finally:
            self._alarm = None

    async def _listed(self) -> AsyncGenerator[Batch, None]:
        """The batches of one list; its version is where the watch begins."""
        first = not self.synced.is_set()
        seen: set[str] = set()
        held: list[T | Unreadable] = []
        async for page in self._pages():
            self._heartbeat.beat()
            self._version = page.resource_version
            if older(self._version, str(self.reached)):
                raise RestoredError(self.kind.plural, f"version {self._version} after {self.reached}")
            held += self._news(page, seen)
            if first and page.continue_:
                yield Batch(tuple(self._told(held)), complete=False)
                held = []
        # Of a later list nothing is told before its end: a half-told one would look like a cluster that never was. Nor
        # is anything of it remembered before: should it break off, the next one must tell the same again.
        gone = [key for key in self._known if key not in seen]
        deletes: list[Event] = [self._forget(key) for key in gone]
        listed = cast("type[AnyObject]", self.kind.type), self._version
        yield Batch((*deletes, *self._told(held)), complete=True, listed=listed)

    def _watched(self) -> AsyncGenerator[list[Change[T]], None]:
        return watch_continuously(
            self._api,
            self.kind,
            self._version,
            namespace=self._namespace,
            field_selector=self._field_selector,
            label_selector=self._label_selector,
            silence=self._silence,
            heartbeat=self._heartbeat,
        )

    def _pages(self) -> AsyncIterator[Page[T]]:
        return list_pages(
            self._api,
            self.kind,
            namespace=self._namespace,
            field_selector=self._field_selector,
            label_selector=self._label_selector,
            page_size=self._page_size,
        )

    def _news(self, page: Page[T], seen: set[str]) -> list[T | Unreadable]:
        """What of a page is not known yet as it is; `seen` gets all its keys."""
        news: list[T | Unreadable] = []
        for obj in page.objects:
            metadata = _metadata(obj)
            key = key_of(metadata.namespace, metadata.name)
            seen.add(key)
            known = self._known.get(key)
            if known is None or known[3] != metadata.resource_version or known[2] != metadata.uid:
                news.append(obj)
                # Revisions that the restore has left out hide that the list is old; its objects show it.
                if known is not None and older(metadata.resource_version, known[3]):
                    raise RestoredError(self.kind.plural, f"{key}: {metadata.resource_version} after {known[3]}")
        seen.update(key_of(one.namespace, one.name) for one in page.unreadable)
        return news + page.unreadable

    def _told(self, news: list[T | Unreadable]) -> list[Event]:
        events: list[Event] = []
        for one in news:
            events += self._unreadable(one, self._version) if isinstance(one, Unreadable) else self._upserted(one)
        return events

    def _changed(self, change: Change[T]) -> list[Event]:
        if change.type == "BOOKMARK":
            return []
        if change.type != "DELETED":
            if change.object is not None:
                return self._upserted(change.object)
            return self._unreadable(cast(Unreadable, change.unreadable), change.resource_version)
        if change.object is not None:
            metadata = _metadata(change.object)
            key = key_of(metadata.namespace, metadata.name)
        else:
            bad = cast(Unreadable, change.unreadable)
            key = key_of(bad.namespace, bad.name)
        return [self._forget(key)] if key in self._known else []

    def _upserted(self, obj: T) -> list[Event]:
        metadata = _metadata(obj)
        events = self._replaced(metadata.namespace, metadata.name, metadata.uid, metadata.resource_version)
        events.append(Upsert(cast(AnyObject, obj)))
        return events

    def _unreadable(self, one: Unreadable, version: str) -> list[Event]:
        events = self._replaced(one.namespace, one.name, one.uid, version)
        events.append(one)
        return events

    def _replaced(self, namespace: str, name: str, uid: str, version: str) -> list[Event]:
        """Remember the object; where another one had its name, say first that that one is gone."""
        key = key_of(namespace, name)
        known = self._known.get(key)
        events: list[Event] = [] if known is None or known[2] == uid else [self._forget(key)]
        self._known[key] = (namespace, name, uid, version)
        return events

    def _forget(self, key: str) -> Delete:
        namespace, name, _, _ = self._known.pop(key)
        return Delete(cast("type[AnyObject]", self.kind.type), namespace, name)


def informer(
    api: Api,
    kind: Kind[T],
    *,
    namespace: str | None = None,
    field_selector: str | None = None,
    label_selector: str | None = None,
) -> Informer[T]:
    """The objects of a kind as events, for ever; see `Informer`."""
    return Informer(api, kind, namespace=namespace, field_selector=field_selector, label_selector=label_selector)


def _metadata(obj: object) -> Metadata:
    return cast(Metadata, getattr(obj, "metadata"))  # noqa: B009  (every kind's struct has one; the type variable cannot say so)
