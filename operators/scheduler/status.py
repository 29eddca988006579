"""Writes down how groups stand: the scheduler's conditions on PodGroups, by server-side apply.

Written only when they differ from what is there; when, and what before what, is decided by the `StatusQueue`.

Each write holds only for the version of the group that it was made from: a word of before must not overwrite a later
one, of a successor or of another group of the same name. Where the server has another version the group is looked at
again as soon as the watch tells of it.

That a gang is scheduled is said when its binds are confirmed, not when they are decided: else it would be untrue for as
long as they take, and a successor would take a gang that was bound in part for one that once ran. Only where it stands
that it is not scheduled is that taken back with the decision: with some pods running it would mean that the rest cannot
be placed. Where binds fail for long, that is said. In the same way, that a gang loses its place is said when its
pods are evicted: where there are many victims that takes seconds, and a plan may be given up.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final

import msgspec

from kbatch.api import conditions
from kbatch.api.objects import EstimatedStart, PodGroup, timestamp_us
from kbatch.api.reasons import BindFailed, NotEnoughTasks, Reason
from kbatch.engine import Report, Verdict, verdict_conditions
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
from operators.scheduler.deferred import Rank
from operators.scheduler.pace import MESSAGE_SECONDS, Pace
from operators.scheduler.put_off_starts import PutOffStarts
from operators.scheduler.status_diff import Difference, Wanted, difference, fell, manifest, start_moved, start_of
from operators.scheduler.status_queue import Due, StatusQueue
from operators.scheduler.unconfirmed import Unconfirmed
from operators.scheduler.write_loop import Write, WriteLoop

_log = logging.getLogger(__name__)

FIRST_SECONDS: Final = 4.0
"""What a new group lacks pods for is said only after so long."""

WAKE_SECONDS: Final = 0.2
"""What may be due by itself is looked for so often."""

LOOK_SECONDS: Final = 0.05
"""How often it is seen whether binds have been confirmed."""

_OF_THIS_GROUP: Final = frozenset({400, 403, 413, 422})
"""Refusals that say nothing of other groups' writes: such a group is tried again as patiently as one whose message has
changed, and holds up nobody."""

GONE: Final = 200
"""Of so many groups that are gone it may be remembered when they were written."""

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
        self._failure = failure
        self._clock = clock
        self._refused_seconds = message_seconds
        self._pace = Pace(clock, message_seconds=message_seconds)
        self._queue = StatusQueue(cache.groups.get, self._pace, binding=binding, clock=clock)
        self._loop = WriteLoop(self._next, at_once=self._at_once, look_again=self._left)
        self._held = Unconfirmed(cache.model)
        self._look_again = 0.0
        self._lonely: dict[str, float] = {}
        """Of new groups without pods: since when that is known."""
        cache.listeners.append(self._heard)
        self._noted: dict[str, tuple[Verdict, PodGroup]] = {}
        """What was last made of a group: while neither verdict nor group changes, nothing else comes of it, but for a
        start whose correction was put off."""
        self._put_off = PutOffStarts()

    @property
    def pending(self) -> int:
        """Groups whose status is still to be written, the unhurried ones included."""
        return len(self._queue) + len(self._held)

    def report(self, report: Report) -> Iterator[None]:
        """Note how groups stand after a cycle; never waits, but goes over them in pieces of a few milliseconds."""
        for key in self._noted.keys() - report.verdicts.keys() if report.whole else report.gone:
            self._forget(key)
        for number, (key, verdict) in enumerate(report.verdicts.items(), start=1):
            if not number % GROUPS_AT_ONCE:
                yield
            group = self._cache.groups.get(key)
            if verdict.shadow or group is None:
                self._forget(key)
                continue
            noted = self._noted.get(key)
            if noted is not None and noted[1] is group and noted[0] == verdict:
                continue
            self._note(key, group, verdict)
        for number, key in enumerate(self._put_off.due(), start=1):
            if not number % GROUPS_AT_ONCE:
                yield
            group = self._cache.groups.get(key)
            noted = self._noted.get(key)
            if group is not None and noted is not None and noted[1].metadata.uid == group.metadata.uid:
                self._note(key, group, noted[0])
        if self.pending:
            self._loop.wake()

    def _note(self, key: str, group: PodGroup, verdict: Verdict) -> None:
        """This is how a group stands: what is to be said of it, and when."""
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
        self._queue.discard(key)
        self._held.discard(key)
        self._sort(key, group, verdict, wanted)
        self._put_off.look(key, group.status.estimated_start, verdict.estimate)

    def _forget(self, key: str) -> None:
        """Nothing is to be said of a group as it was."""
        self._noted.pop(key, None)
        self._put_off.discard(key)

    def _written(self, key: str, group: PodGroup) -> None:
        """A group says what it was to say. By now its start may be another one, which is to be written later."""
        noted = self._noted.get(key)
        if noted is not None and noted[1].metadata.uid == group.metadata.uid:
            self._put_off.look(key, group.status.estimated_start, noted[0].estimate)

    def _sort(self, key: str, group: PodGroup, verdict: Verdict, wanted: Wanted) -> None:
        """Have it written when its time has come."""
        if self._makes_pods(key, group, wanted):
            self._queue.put_first(key, wanted if not verdict.scheduled else wanted.let_in)
            if not verdict.scheduled:
                return
        if not verdict.scheduled and self._cache.leaving(key):
            self._held.put(key, wanted, verdict)
            return
        if verdict.scheduled and self._cache.under_way(key):
            self._held.put(key, wanted, verdict)
            standing = conditions.find(group.status.conditions, conditions.SCHEDULED)
            refused = standing is not None and standing.status == conditions.FALSE
            if standing is None or not refused or standing.reason == BindFailed.code:
                return
        apart = difference(group, wanted)
        if apart is Difference.STATUS and isinstance(verdict.reason, NotEnoughTasks) and _new(group):
            # Nobody has made its pods yet; they are most likely being made, and then there is more to say.
            began = self._lonely.setdefault(key, self._clock())
            self._queue.put_later(key, wanted, began + FIRST_SECONDS)
        else:
            moved = start_moved(group.status.estimated_start, wanted.estimate)
            self._queue.put(key, wanted, apart, moved=moved)

    def _makes_pods(self, key: str, group: PodGroup, wanted: Wanted) -> bool:
        """Whether pods of the group are made as soon as it says that it is in queue, which it does not yet."""
        if not conditions.is_true(wanted.conditions, conditions.ENQUEUED):
            return False
        if conditions.let_in(group.status.conditions):
            return False
        job = self._cache.model.members.get(key)
        return job is not None and any(some.sure and some.count for some in job.to_come)

    def _heard(self, events: tuple[Event, ...]) -> None:
        """Note what may be confirmed by now; go on where a newer version of a group was waited for."""
        self._held.heard(events)
        if self._queue.outdated and any(isinstance(one, Upsert) and isinstance(one.obj, PodGroup) for one in events):
            self._loop.wake()

    def _look(self, *, whole: bool = False) -> None:
        """Say of groups that their binds or evictions are confirmed, or that binds fail."""
        began = self._clock()
        for key, (wanted, verdict) in self._held.due(began, whole=whole):
            group = self._cache.groups.get(key)
            if group is None or group.metadata.uid != wanted.uid:
                self._held.discard(key)
            elif not verdict.scheduled:
                self._look_at_leaving(key, wanted)
            elif not self._cache.under_way(key):
                self._held.discard(key)
                self._queue.put_deferred(key, wanted, began, self._rank(key, group))
            else:
                reason = self._failure(key)
                if reason is not None:
                    waits = msgspec.structs.replace(verdict, scheduled=False, reason=reason)
                    said = verdict_conditions(waits, group.metadata.generation)
                    failed = Wanted(wanted.uid, said, wanted.attempts, wanted.charged)
                    if difference(group, failed) >= Difference.REASON:
                        self._queue.put_urgent(key, failed)
        ended = self._clock()
        self._held.looked(ended)
        self._look_again = ended + LOOK_SECONDS

    def _look_at_leaving(self, key: str, wanted: Wanted) -> None:
        if self._cache.leaving(key):
            return
        self._held.discard(key)
        if self._cache.whole(key):
            # The evictions were given up: what the next cycle says counts, even if it is the same.
            self._forget(key)
        else:
            self._queue.put_urgent(key, wanted)

    def _rank(self, key: str, group: PodGroup) -> Rank:
        job = self._cache.model.members.get(key)
        if job is not None and job.minimum > 1:
            return Rank.GANG
        standing = conditions.find(group.status.conditions, conditions.SCHEDULED)
        return Rank.SINGLE if standing is None else Rank.CONTRADICTED

    async def run(self) -> None:
        """Write, until cancelled."""
        await self._loop.run()

    def _at_once(self) -> int:
        """How many writes may be on the wire now, after a look at what is confirmed by now: some of it may be late."""
        if self._held and self._clock() >= self._look_again:
            self._look()
        return self._queue.at_once()

    def _next(self) -> Write | None:
        due = self._queue.take()
        return Write(f"status {due.key}", self._write(due)) if due is not None else None

    def _left(self) -> float | None:
        """In how many seconds something may be due by itself."""
        if self._held:
            return max(0.0, self._look_again - self._clock())
        return WAKE_SECONDS if len(self._queue) else None

    async def drain(self, seconds: float) -> bool:
        """Wait until the changes that matter are written; False if that takes too long."""
        try:
            async with asyncio.timeout(seconds):
                self._look(whole=True)
                self._queue.hurry()
                self._loop.wake()
                while self._queue.changes:  # noqa: ASYNC110  (the last write ends whenever the server answers)
                    await asyncio.sleep(0.02)
        except TimeoutError:
            return False
        return True

    def _start(self, group: PodGroup, wanted: Wanted) -> tuple[EstimatedStart | None, bool]:
        """What is to be written now of when a group is to start: what stands, unless it moved and that may be said; and
        whether it moved.
        """
        standing = group.status.estimated_start
        moved = start_moved(standing, wanted.estimate)
        rests = standing is not None and wanted.estimate is not None and self._pace.start_rests(wanted.uid)
        return start_of(wanted.estimate) if moved and not rests else standing, moved

    async def _write(self, due: Due) -> bool:
        """Write one group's status; False if the server should be left alone for a moment."""
        key, wanted, since = due
        try:
            well = await self._apply(key, wanted, since)
        except Exception:  # noqa: BLE001 - one group's status must not end the writing of all
            _log.exception("status of %s", key)
            well = False
        finally:
            self._queue.done(key)
        if not well:
            # What was decided counts already, so no further cycle may look at the group and say it again.
            self._again(key, wanted)
        return well

    async def _apply(self, key: str, wanted: Wanted, since: float) -> bool:
        group = self._cache.groups.get(key)
        # By now the group may be gone, be another one, or say so already.
        if group is None or group.metadata.uid != wanted.uid:
            return True
        apart = difference(group, wanted)
        if apart is Difference.NOTHING:
            self._written(key, group)
            return True
        if self._queue.must_be_read(key):
            return await self._read(key, wanted)
        start, moved = self._start(group, wanted)
        told = start is not group.status.estimated_start
        if told and self._pace.due(wanted.uid, apart) > self._clock():
            apart = Difference.START  # the other words rest, and come along
        self._lonely.pop(key, None)
        if len(self._pace) + len(self._lonely) > GONE + 2 * len(self._cache.groups):
            self._pace.keep({known.metadata.uid for known in self._cache.groups.values()})
            self._lonely = {kept: at for kept, at in self._lonely.items() if kept in self._cache.groups}
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
                self._queue.conflict(key, group.metadata.resource_version)
                self._again(key, wanted)
                return True
            self._metrics.status_writes.labels("failed").inc()
            _log.warning("status of %s: %s", key, error)
            if error.status not in _OF_THIS_GROUP:
                return False
            self._later(key, wanted, self._clock() + self._refused_seconds)
            return True
        except (NoAnswerError, KubeError) as error:
            self._metrics.status_writes.labels("failed").inc()
            _log.info("status of %s: %s", key, error)
            return False
        self._metrics.status_writes.labels("ok").inc()
        self._pace.wrote(wanted.uid, apart, fell=fell(group, wanted))
        if told:
            self._pace.wrote_start(wanted.uid)
        elif moved:
            self._later(key, wanted, self._pace.due(wanted.uid, Difference.START))
        written = decoder(PodGroup).decode(payload)
        self._count_wait(group, written, since)
        self._cache.observed(written)
        self._written(key, written)
        return True

    def _count_wait(self, group: PodGroup, written: PodGroup, since: float) -> None:
        """A group was written; where it says for the first time that it is scheduled, how long it has waited counts."""
        if _scheduled(written) and not _scheduled(group) and written.metadata.creation_timestamp:
            created = datetime.fromisoformat(written.metadata.creation_timestamp)
            waited = (datetime.now(UTC) - created).total_seconds() - (self._clock() - since)
            self._metrics.group_seconds.observe(max(0.0, waited))
            record = self._cache.model.queues.get(written.spec.queue or self._cache.model.default_queue)
            if record is not None and record.queue is not None:  # a series for each name that a user may think of: no
                self._metrics.queue_wait.labels(record.name).observe(max(0.0, waited))

    def _later(self, key: str, wanted: Wanted, due: float) -> None:
        """Write it from a time on; where it stands elsewhere there is a newer word by now."""
        if key not in self._queue and key not in self._held:
            self._queue.put_later(key, wanted, due)

    def _again(self, key: str, wanted: Wanted) -> None:
        """Write it once more, unless there is a newer word by now."""
        group = self._cache.groups.get(key)
        first = group is not None and self._makes_pods(key, group, wanted)
        if first or key not in self._held:
            self._queue.put_again(key, wanted, first=first)

    async def _read(self, key: str, wanted: Wanted) -> bool:
        """The watch has not told of a version that the server has: ask for it, and write then."""
        namespace, name = split_key(key)
        try:
            group = await list_named(self._api, PODGROUPS, namespace=namespace, name=name)
        except KubeError as error:
            _log.info("reading %s: %s", key, error)
            return False
        self._queue.was_read(key)
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
