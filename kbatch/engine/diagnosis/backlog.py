"""Why a group does not come in queue, by what keeps it out."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final

import numpy as np

from kbatch.api.reasons import (
    GangExceedsReclaimableShare,
    MinResourcesTooLarge,
    QueueCapabilityExceeded,
    QuotaExceeded,
    Reason,
    RoomInPieces,
    SentBack,
    WaitingInQueue,
)
from kbatch.engine.admission.sums import Sums
from kbatch.engine.carryover.backlog import MOST, Backlog, Entry, Index
from kbatch.engine.carryover.standing import Standing
from kbatch.engine.context import CycleContext
from kbatch.engine.decisions import Turn
from kbatch.engine.diagnosis.shortages import too_small
from kbatch.engine.session.session import Session
from kbatch.engine.state.queues import QueueState
from kbatch.model.quota import Excess
from kbatch.resources import Resources, lacking
from kbatch.times import SECOND

TRIED: Final = frozenset({Standing.HOPELESS, Standing.UNFIT})
"""To say why, the group is placed on the emptied nodes."""


def reason_of(
    context: CycleContext, sums: Sums, entry: Entry, standing: Standing, ahead: int
) -> Generator[Turn, None, Reason]:
    """The reason for a standing, with the numbers of now; `ahead` groups of its queue come before the group."""
    if standing in TRIED and entry.fixed is None:
        job = context.session.job(entry.job.key)
        return too_small(context.session, job, (yield from context.feasibility.attempting(job)))
    return plain_reason(context.session, sums, entry, standing, ahead)


def plain_reason(session: Session, sums: Sums, entry: Entry, standing: Standing, ahead: int) -> Reason:
    """The same where nothing is tried for it."""
    if entry.fixed is not None:
        return entry.fixed
    queue = session.queue(entry.job.queue)
    if standing is Standing.WAITING:
        return _waiting(session, sums, entry, ahead)
    if standing is Standing.CAPABILITY:
        return _over_capability(sums, entry, queue) or _waiting(session, sums, entry, ahead)
    if standing is Standing.QUOTA:
        excess = sums.over_quota(entry)
        return excess_of(excess) if excess is not None else _waiting(session, sums, entry, ahead)
    if standing is Standing.LIMITED:
        limit = session.plugins.admission(session.job(entry.job.key), entry.kept)
        return limit if limit is not None else _waiting(session, sums, entry, ahead)
    if standing is Standing.TOO_LARGE:
        return _too_large(session, entry.least)
    if standing is Standing.SENT_BACK:
        return SentBack(queue.name, entry.attempts, session.policy.backoff(entry.attempts) // SECOND)
    beyond = sums.beyond(queue, entry) if standing is Standing.BEYOND_SHARE else None
    if beyond is not None:
        return GangExceedsReclaimableShare(
            queue.name, beyond, entry.least[beyond], queue.allocated.get(beyond, 0), queue.deserved.get(beyond, 0),
            max(0, min(session.idle(beyond), sums.free(beyond))),
        )  # fmt: skip
    return _waiting(session, sums, entry, ahead)


def reasons_of_waiting(
    session: Session, sums: Sums, backlog: Backlog, index: Index, places: Sequence[int]
) -> dict[int, Reason]:
    """`plain_reason` of these rows of the backlog, all of which are `WAITING`, at once; `places`: how many groups of
    its queue come before each.
    """
    rows = index.tolist()
    names = sorted(backlog.least)
    if not len(index) or not names:
        return {}
    least = np.stack([backlog.least[name][index] for name in names], axis=1)
    free = [sums.free(name) for name in names]
    short = least > np.array([max(0, min(amount, MOST)) for amount in free], np.int64)
    first = np.argmax(short, axis=1)
    asked = least[np.arange(len(index)), first]
    found: dict[int, Reason] = {}
    queues = backlog.queue[index].tolist()
    for row, queue, at, amount, ahead in zip(rows, queues, first.tolist(), asked.tolist(), places, strict=True):
        if max(0, free[at]) < amount < MOST:
            name = names[at]
            found[row] = WaitingInQueue(
                backlog.queues.thing(queue), name, amount, free[at], sums.promised.get(name, 0), ahead
            )
        else:
            found[row] = plain_reason(session, sums, backlog.entry(row), Standing.WAITING, ahead)
    return found


def excess_of(excess: Excess) -> QuotaExceeded:
    """The limit of a quota that would be passed."""
    return QuotaExceeded(excess.quota, excess.resource, excess.asked, excess.reserved, excess.used, excess.hard)


def _over_capability(sums: Sums, entry: Entry, queue: QueueState) -> QueueCapabilityExceeded | None:
    name = sums.over_capability(entry, queue)
    if name is None:
        return None
    overtaken = sums.overtaken(queue.name, entry.giving.priority).get(name, 0)
    reserved, used = sums.by_queue.get(queue.name, {}).get(name, 0) - overtaken, queue.allocated.get(name, 0)
    hard = (queue.record.capability or {})[name]
    return QueueCapabilityExceeded(queue.name, name, entry.least[name], reserved, used, hard)


def _too_large(session: Session, least: Resources) -> Reason:
    """Why no cluster of these nodes would hold what the group says it needs."""
    short = lacking(least, session.total)
    name = min(short, key=lambda name: (session.total.get(name, 0) / least[name], name))
    return MinResourcesTooLarge(name, least[name], session.total.get(name, 0), len(session.nodes))


def _waiting(session: Session, sums: Sums, entry: Entry, ahead: int) -> Reason:
    queue, least = entry.job.queue, entry.least
    name = sums.short_in_all(least)
    if name is None and least:
        job = session.job(entry.job.key)
        place = sums.confined.of(job)
        there = sums.short_there(place, job, least) if place is not None else None
        if place is not None and there is not None:
            kept = place.kept(there, queue, job.priority)
            return WaitingInQueue(queue, there, least[there], place.room(there) - kept, kept, ahead, place.count)
        if sums.in_vain.first(job):
            return RoomInPieces(queue, ahead)
    name = name or min(least, default="cpu")
    return WaitingInQueue(queue, name, least.get(name, 0), sums.free(name), sums.promised.get(name, 0), ahead)
