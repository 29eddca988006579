"""Writes down how groups stand: the scheduler's conditions on PodGroups, by server-side apply.

Written only when they differ from what is there, the newest of a group instead of each, and with a budget of its own:
while binds wait, few status writes are on the wire, and that all is well is said later. Any other change of a
condition's status or reason is written at once; one of numbers in a message waits, because in a busy cluster the
numbers change all the time. Before all else goes what makes pods: that a group came in queue whose Job is resumed then,
or whose members are made.

Each write holds only for the version of the group that it was made from: a word of before must not overwrite a later
one, of a successor or of another group of the same name. Where the server has another version the group is looked at
again as soon as the watch tells of it.

That a gang is scheduled is said when its binds are confirmed, not when they are decided: else it would be untrue for as
long as they take, and a successor would take a gang that was bound in part for one that once ran. Only where it stands
that it is not scheduled is that taken back with the decision: with some pods running it would mean that the rest cannot
be placed. Where binds fail for long, that is said. In the same way, that a gang loses its place is said when its
pods are evicted: where there are many victims that takes seconds, and a plan may be given up.

When a group is to start is written with the rest, or when it has moved much since it was: by more than half a minute,
and more than a tenth of what is left to wait.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final

import msgspec

from kbatch.api import conditions
from kbatch.api.objects import EstimatedStart, PodGroup, timestamp_us
from kbatch.api.reasons import BindFailed, NotEnoughTasks, Reason
from kbatch.engine import Report, Verdict, verdict_conditions
from kbatch.kube.backoff import Backoff
from kbatch.kube.client import Api
from kbatch.kube.decoding import decoder
from kbatch.kube.errors import ApiError, KubeError, NoAnswerError, NotLeadingError
from kbatch.kube.kinds import PODGROUPS, split_key
from kbatch.kube.lists import list_named
from kbatch.kube.writes import apply_status
from kbatch.metrics import SchedulerMetrics
from kbatch.model.events import Event, Upsert
from kbatch.resources import in_units
from kbatch.times import SECOND
from operators.scheduler import FIELD_MANAGER
from operators.scheduler.cache import Cache
from operators.scheduler.good_news import GoodNews
from operators.scheduler.wanted import (
    Difference,
    Wanted,
    conditions_differ,
    difference,
    manifest,
    start_moved,
    start_of,
)

_log = logging.getLogger(__name__)

AT_ONCE: Final = 16
AT_ONCE_WHILE_BINDING: Final = 4
AT_ONCE_IN_A_FLOOD: Final = 2
FLOOD: Final = 200
"""Where more groups than this wait to be written, thousands of small ones most likely, binds go first all the more:
each such write takes the API server as long as a bind, and then there are as many of them."""

MESSAGE_SECONDS: Final = 5.0
"""A group's message alone is not rewritten sooner than this after the last write for the group."""

FIRST_SECONDS: Final = 2.0
"""What a new group lacks pods for is said only after so long."""

MESSAGES_A_SECOND: Final = 20

START_SECONDS: Final = 30.0
"""When a group is to start is not rewritten sooner than this after it was written."""

LOOK_SECONDS: Final = 0.05
"""How often it is seen whether binds have been confirmed."""

LOOK_SHARE: Final = 20
"""But where there are thousands of groups to look at, not sooner than so many times what the last look took."""

_OF_THIS_GROUP: Final = frozenset({400, 403, 413, 422})
"""Refusals that say nothing of other groups' writes: such a group is tried again as patiently as one whose message has
changed, and holds up nobody."""

AGAIN_SECONDS: Final = 1.0
"""A group of which the server has another version than this process is read, if the watch tells of it no sooner."""

GROUPS_AT_ONCE: Final = 50
"""To say how so many groups stand takes a millisecond or two."""


class StatusWriter:
    """Takes verdicts; writes what differs.

    Args:
        api: refuses writes while this process does not lead.
        cache: knows the groups as they are, and learns what was written.
        binding: whether binds are waiting.
        failure: why a group (by its key) is not bound yet, though the binds are tried again and again; None if all is
            well.
    """

    def __init__(
        self,
        api: Api,
        cache: Cache,
        *,
        metrics: SchedulerMetrics,
        binding: Callable[[], bool],
        failure: Callable[[str], Reason | None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        message_seconds: float = MESSAGE_SECONDS,
    ) -> None:
        self._api = api
        self._cache = cache
        self._metrics = metrics
        self._binding = binding
        self._failure = failure
        self._clock = clock
        self._message_seconds = message_seconds
        self._first: OrderedDict[str, Wanted] = OrderedDict()
        """Of groups whose pods are made when they are known to be in queue."""
        self._urgent: OrderedDict[str, Wanted] = OrderedDict()
        self._patient: OrderedDict[str, Wanted] = OrderedDict()
        self._good: GoodNews[Wanted] = GoodNews()
        """Of groups whose binds are confirmed."""
        self._held: dict[str, tuple[Wanted, Verdict]] = {}
        """Of groups whose binds or evictions are under way: what is true when they are confirmed."""
        self._look_again = 0.0
        self._wrote: dict[str, float] = {}
        self._started: dict[str, float] = {}
        """When it was last written when a group is to start."""
        self._next_message = 0.0
        self._work = asyncio.Event()
        self._writing: set[str] = set()
        self._outdated: dict[str, tuple[str, float]] = {}
        """By group: the version that the server has left behind, and when it is read if the watch says nothing."""
        cache.listeners.append(self._heard)
        self._noted: dict[str, tuple[Verdict, PodGroup]] = {}
        """What was last made of a group: while neither verdict nor group changes, nothing else comes of it."""

    @property
    def pending(self) -> int:
        """Groups whose status is still to be written, the unhurried ones included."""
        waiting = (self._first, self._urgent, self._good, self._patient, self._writing, self._held)
        return sum(len(some) for some in waiting)

    def report(self, report: Report) -> Iterator[None]:
        """Note how groups stand after a cycle; never waits, but goes over them in pieces of a few milliseconds."""
        for key in self._noted.keys() - report.verdicts.keys() if report.whole else report.gone:
            self._noted.pop(key, None)
        for number, (key, verdict) in enumerate(report.verdicts.items(), start=1):
            if not number % GROUPS_AT_ONCE:
                yield
            group = self._cache.groups.get(key)
            if verdict.shadow or group is None:
                self._noted.pop(key, None)
                continue
            noted = self._noted.get(key)
            if noted is not None and noted[1] is group and noted[0] == verdict:
                continue
            self._noted[key] = verdict, group
            wanted = Wanted(
                group.metadata.uid,
                verdict_conditions(verdict, group.metadata.generation),
                verdict.attempts,
                in_units(verdict.charged) if verdict.charged else None,
                verdict.estimate,
            )
            # What a waiting group lacks may be another thing in a moment: that counts only once it is written.
            sure = {conditions.ENQUEUED} if not verdict.scheduled else conditions.SCHEDULER_TYPES
            counts = conditions.of_types(wanted.conditions, sure)
            self._cache.decided(key, wanted.uid, counts, wanted.attempts, wanted.charged)
            apart = difference(group, wanted)
            if apart is Difference.STATUS and isinstance(verdict.reason, NotEnoughTasks) and _new(group):
                # Nobody has made its pods yet; they are most likely being made, and then there is more to say.
                apart = Difference.MESSAGE
                self._wrote.setdefault(key, self._clock() - self._message_seconds + FIRST_SECONDS)
            self._first.pop(key, None)
            self._urgent.pop(key, None)
            self._patient.pop(key, None)
            self._good.discard(key)
            self._held.pop(key, None)
            if self._makes_pods(key, group, wanted):
                self._first[key] = wanted if not verdict.scheduled else wanted.let_in
                if not verdict.scheduled:
                    continue
            if not verdict.scheduled and self._cache.leaving(key):
                self._held[key] = wanted, verdict
                continue
            if verdict.scheduled and self._cache.under_way(key):
                self._held[key] = wanted, verdict
                standing = conditions.find(group.status.conditions, conditions.SCHEDULED)
                refused = standing is not None and standing.status == conditions.FALSE
                if standing is None or not refused or standing.reason == BindFailed.code:
                    continue
            if apart is Difference.STATUS:
                self._urgent[key] = wanted
            elif apart is Difference.MESSAGE:
                self._patient[key] = wanted
        if self._first or self._urgent or self._patient or self._held:
            self._work.set()

    def _makes_pods(self, key: str, group: PodGroup, wanted: Wanted) -> bool:
        """Whether pods of the group are made as soon as it says that it is in queue, which it does not yet."""
        if not conditions.is_true(wanted.conditions, conditions.ENQUEUED):
            return False
        if conditions.is_true(group.status.conditions, conditions.ENQUEUED):
            return False
        job = self._cache.model.members.get(key)
        return job is not None and any(some.sure and some.count for some in job.to_come)

    def _heard(self, events: tuple[Event, ...]) -> None:
        """Go on where a newer version of a group was waited for."""
        if self._outdated and any(isinstance(one, Upsert) and isinstance(one.obj, PodGroup) for one in events):
            self._work.set()

    def _look(self) -> None:
        """Say of groups that their binds or evictions are confirmed, or that binds fail."""
        began = self._clock()
        for key, (wanted, verdict) in list(self._held.items()):
            group = self._cache.groups.get(key)
            if group is None or group.metadata.uid != wanted.uid:
                del self._held[key]
            elif not verdict.scheduled:
                self._look_at_leaving(key, wanted)
            elif not self._cache.under_way(key):
                del self._held[key]
                standing = conditions.find(group.status.conditions, conditions.SCHEDULED)
                self._good.put(key, wanted, began, contradicted=standing is not None)
            else:
                reason = self._failure(key)
                if reason is not None:
                    waits = msgspec.structs.replace(verdict, scheduled=False, reason=reason)
                    said = verdict_conditions(waits, group.metadata.generation)
                    failed = Wanted(wanted.uid, said, wanted.attempts, wanted.charged)
                    if difference(group, failed) is Difference.STATUS:
                        self._urgent[key] = failed
        ended = self._clock()
        self._look_again = ended + max(LOOK_SECONDS, LOOK_SHARE * (ended - began))

    def _look_at_leaving(self, key: str, wanted: Wanted) -> None:
        if self._cache.leaving(key):
            return
        del self._held[key]
        if self._cache.whole(key):
            # The evictions were given up: what the next cycle says counts, even if it is the same.
            self._noted.pop(key, None)
        else:
            self._urgent[key] = wanted

    async def run(self) -> None:
        """Write, until cancelled."""
        backoff = Backoff()
        tasks: set[asyncio.Task[bool]] = set()
        try:
            while True:
                if self._held and self._clock() >= self._look_again:
                    self._look()
                while len(tasks) < self._at_once():
                    chosen = self._choose()
                    if chosen is None:
                        break
                    key, wanted, since = chosen
                    self._writing.add(key)
                    tasks.add(asyncio.create_task(self._write(key, wanted, since), name=f"status {key}"))
                self._work.clear()
                waiting = asyncio.ensure_future(self._work.wait())
                # Looked at again after a moment also for messages whose time has come.
                timeout = 0.2 if self._first or self._patient or self._urgent or self._good else None
                if self._held:
                    timeout = max(0.0, self._look_again - self._clock())
                done, _ = await asyncio.wait({waiting, *tasks}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                finished = {task for task in tasks if task in done}
                tasks -= finished
                if any(not task.result() for task in finished):
                    await asyncio.sleep(backoff.next())
                elif finished:
                    backoff.reset()
        finally:
            for task in tasks:
                task.cancel()

    def _at_once(self) -> int:
        """How many writes may be on the wire now."""
        if not self._binding():
            return AT_ONCE
        if self._first or len(self._urgent) + len(self._good) <= FLOOD:
            return AT_ONCE_WHILE_BINDING
        return AT_ONCE_IN_A_FLOOD

    async def drain(self, seconds: float) -> bool:
        """Wait until the changes that matter are written; False if that takes too long."""
        try:
            async with asyncio.timeout(seconds):
                self._look()
                self._urgent |= self._good.take_all()
                self._work.set()
                while self._first or self._urgent or self._writing:  # noqa: ASYNC110  (the last write ends whenever the server answers)
                    await asyncio.sleep(0.02)
        except TimeoutError:
            return False
        return True

    def _choose(self) -> tuple[str, Wanted, float] | None:
        """What to write next, and since when it is true; None where nothing is due."""
        now = self._clock()
        busy = self._writing | self._waiting_for_news(now) if self._outdated else self._writing
        for some in (self._first, self._urgent):
            for key, wanted in some.items():
                if key not in busy:
                    del some[key]
                    return key, wanted, now
        good = self._good.due(now, hold=self._binding(), busy=busy)
        if good is not None:
            return good
        if now < self._next_message:
            return None
        for key, wanted in self._patient.items():
            rests = now - self._wrote.get(key, 0.0) < self._message_seconds or self._only_start(key, wanted, now)
            if key not in busy and not rests:
                del self._patient[key]
                self._next_message = now + 1 / MESSAGES_A_SECOND
                return key, wanted, now
        return None

    def _waiting_for_news(self, now: float) -> set[str]:
        """The groups of which nothing is written now, because a newer version of them is to be known in a moment."""
        found: set[str] = set()
        for key, (version, until) in list(self._outdated.items()):
            group = self._cache.groups.get(key)
            if group is None or group.metadata.resource_version != version:
                del self._outdated[key]
            elif now < until:
                found.add(key)
        return found

    def _only_start(self, key: str, wanted: Wanted, now: float) -> bool:
        """Whether nothing is to be said of a group but when it is to start, and that was said a moment ago."""
        group = self._cache.groups.get(key)
        if group is None or now - self._started.get(key, now - START_SECONDS) >= START_SECONDS:
            return False
        return conditions_differ(group, wanted) is Difference.NOTHING

    def _start(self, key: str, group: PodGroup, wanted: Wanted) -> EstimatedStart | None:
        """What is to be written now of when a group is to start: what stands, unless it moved and that may be said."""
        standing, now = group.status.estimated_start, self._wrote[key]
        rests = now - self._started.get(key, now - START_SECONDS) < START_SECONDS
        moved = start_moved(standing, wanted.estimate)
        if not moved or (rests and standing is not None and wanted.estimate is not None):
            return standing
        self._started[key] = now
        return start_of(wanted.estimate)

    async def _write(self, key: str, wanted: Wanted, since: float) -> bool:
        """Write one group's status; False if the server should be left alone for a moment."""
        try:
            well = await self._apply(key, wanted, since)
        except Exception:  # noqa: BLE001 - one group's status must not end the writing of all
            _log.exception("status of %s", key)
            well = False
        finally:
            self._writing.discard(key)
            self._work.set()
        if not well:
            # What was decided counts already, so no further cycle may look at the group and say it again.
            self._again(key, wanted)
        return well

    async def _apply(self, key: str, wanted: Wanted, since: float) -> bool:
        group = self._cache.groups.get(key)
        # By now the group may be gone, be another one, or say so already.
        if group is None or group.metadata.uid != wanted.uid or difference(group, wanted) is Difference.NOTHING:
            return True
        if key in self._outdated:
            return await self._read(key, wanted)
        self._wrote[key] = self._clock()
        start = self._start(key, group, wanted)
        if len(self._wrote) > 10_000 + 2 * len(self._cache.groups):
            self._wrote = {kept: at for kept, at in self._wrote.items() if kept in self._cache.groups}
            self._started = {kept: at for kept, at in self._started.items() if kept in self._cache.groups}
        try:
            wording = manifest(group, wanted, start)
            payload = await apply_status(self._api, PODGROUPS, wording, FIELD_MANAGER, force=True)
        except NotLeadingError:
            return False
        except ApiError as error:
            if error.status == 404:
                self._metrics.status_writes.labels("gone").inc()
                return True
            if error.status == 409:
                self._metrics.status_writes.labels("conflict").inc()
                self._outdated[key] = group.metadata.resource_version, self._clock() + AGAIN_SECONDS
                self._again(key, wanted)
                return True
            self._metrics.status_writes.labels("failed").inc()
            _log.warning("status of %s: %s", key, error)
            if error.status not in _OF_THIS_GROUP:
                return False
            # Where it stands elsewhere there is a newer word by now.
            if not any(key in some for some in (self._first, self._urgent, self._good, self._held)):
                self._patient.setdefault(key, wanted)
            return True
        except (NoAnswerError, KubeError) as error:
            self._metrics.status_writes.labels("failed").inc()
            _log.info("status of %s: %s", key, error)
            return False
        self._metrics.status_writes.labels("ok").inc()
        written = decoder(PodGroup).decode(payload)
        if _scheduled(written) and not _scheduled(group) and written.metadata.creation_timestamp:
            created = datetime.fromisoformat(written.metadata.creation_timestamp)
            waited = (datetime.now(UTC) - created).total_seconds() - (self._clock() - since)
            self._metrics.group_seconds.observe(max(0.0, waited))
        self._cache.observed(written)
        return True

    def _again(self, key: str, wanted: Wanted) -> None:
        """Write it once more, unless there is a newer word by now."""
        group = self._cache.groups.get(key)
        if group is not None and self._makes_pods(key, group, wanted):
            self._first.setdefault(key, wanted)
        elif not any(key in some for some in (self._first, self._patient, self._good, self._held)):
            self._urgent.setdefault(key, wanted)

    async def _read(self, key: str, wanted: Wanted) -> bool:
        """The watch has not told of a version that the server has: ask for it, and write then."""
        namespace, name = split_key(key)
        try:
            group = await list_named(self._api, PODGROUPS, namespace=namespace, name=name)
        except KubeError as error:
            _log.info("reading %s: %s", key, error)
            return False
        self._outdated.pop(key, None)
        if group is not None:
            self._cache.observed(group)
            if group.metadata.uid == wanted.uid:
                self._again(key, wanted)
        return True


def _new(group: PodGroup) -> bool:
    """Whether nothing was said of the group yet, and it was made a moment ago."""
    created = timestamp_us(group.metadata.creation_timestamp)
    return not group.status.conditions and created is not None and time.time() - created / SECOND < 2 * FIRST_SECONDS


def _scheduled(group: PodGroup) -> bool:
    return conditions.is_true(group.status.conditions, conditions.SCHEDULED)
