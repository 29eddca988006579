"""How each group stands at the end of a cycle, and the one reason why it waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from kbatch.api.reasons import (
    BindFailed,
    ExcessBudgetExceeded,
    GangExceedsReclaimableShare,
    Gated,
    InfiniteShareExceeded,
    NotEnoughResources,
    NotEnoughTasks,
    PodGroupNotFound,
    QueueCapabilityExceeded,
    QueueOverused,
    QuotaExceeded,
    Reason,
    Reserved,
    RoomInPieces,
    SentBack,
    VictimsTerminating,
    WaitingInQueue,
    most_specific,
)
from kbatch.engine.carryover.backlog import Entry
from kbatch.engine.context import CycleContext
from kbatch.engine.decisions import StartEstimate, Turn, Verdict
from kbatch.engine.diagnosis.shortages import Shortages, restated
from kbatch.engine.reservation.nominations import awaits_capability, leaving_of
from kbatch.engine.session.guarding import attempt, reason_of, sound, working
from kbatch.engine.session.session import Session
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.minimum import likeness, unplaced

_PASSING: Final = (
    BindFailed, ExcessBudgetExceeded, InfiniteShareExceeded, NotEnoughResources, QueueCapabilityExceeded, QueueOverused,
    QuotaExceeded, Reserved, RoomInPieces, SentBack, VictimsTerminating, WaitingInQueue,
)  # fmt: skip
"""What others may take away by ending: for a group that waits for it, it can be foreseen when it starts."""


def verdicts(context: CycleContext, shortages: Shortages) -> Iterator[Verdict | Turn]:
    """A verdict for each group that the cycle has looked at, and for those of the backlog of which there is something
    new to tell; the oldest first, turns in between.
    """
    session, planned = context.session, context.planned
    backlog = deque(context.told)
    known: dict[object, Reason] = {}
    for job in session.live():
        model = job.job
        while backlog and backlog[0][0].age < (model.created, model.key):
            yield _in_backlog(session, *backlog.popleft())
        if model.group is None and not model.shadow:
            reason: Reason | None = PodGroupNotFound(model.name)
            yield Verdict(model.name, shadow=True, enqueued=None, scheduled=False, reason=reason, job=model.key)
            continue
        found: tuple[bool, Reason | None] | None = None
        if model.key not in session.failed:
            if attempt(session, job, partial(_stands, session, job), False):
                found = True, None
            elif model.key not in session.failed:
                alike = _told_alike(session, job)
                why = known.get(alike) if alike is not None else None
                if why is None:
                    why = yield from working(session, job, partial(_reason, session, job, shortages), None)
                    if why is not None and alike is not None:
                        known[alike] = why
                found = (False, why) if why is not None else None
        whole, reason = found or (job.whole, None if job.whole else reason_of(session.failed[model.key]))
        attempted = found is not None and not whole and model.key in session.attempted
        estimate = _estimate(context, job, reason) if not whole else None
        rest = job.rest
        if rest is not None and rest.said is not None and job.in_queue and not whole:
            said = rest.said
            same = said.attempted == attempted and said.attempts == job.attempts and said.estimate == estimate
            if same and (said.reason is reason or said.reason == reason):
                yield said
                continue
        verdict = Verdict(
            group=model.name,
            shadow=model.shadow,
            enqueued=None if model.shadow else job.in_queue,
            scheduled=whole,
            reason=reason,
            attempted=attempted,
            pods_unschedulable=attempted and reason is not None and reason.lacks_capacity,
            attempts=0 if whole else job.attempts,
            job=model.key,
            members_lost=job.members_lost and not whole,
            charged=job.charged if job.in_queue or job.pipelined else 0,
            estimate=estimate,
            backfilled=whole and planned is not None and model.key in planned.backfilled,
        )
        if rest is not None:
            rest.said = verdict if verdict.enqueued and not whole else None
        yield verdict
    for entry, why in backlog:
        yield _in_backlog(session, entry, why)


def _told_alike(session: Session, job: JobState) -> object | None:
    """What decides why the job waits, where that is the same for all that are alike and were refused for the same.

    None: it is asked for by itself.
    """
    like = likeness(job)
    if not (like and session.plugins.by_job and sound(session, job)):
        return None
    reasons = session.reasons.get(job.key, ())
    if any(isinstance(reason, QueueOverused) for reason in reasons):
        return None  # its numbers are the job's
    protected = session.protected.get(job.key, ())
    return job.queue, like, job.key in session.unfit, tuple([id(reason) for reason in reasons]), protected


def _estimate(context: CycleContext, job: JobState, reason: Reason | None) -> StartEstimate | None:
    """When a group is to start that waits, as it is planned or else foreseen; None: neither."""
    planned = context.planned.estimate(job.key) if context.planned is not None else None
    if planned is not None:
        return planned
    return _foreseen(context.session, job.key, reason)


def _foreseen(session: Session, key: str, reason: Reason | None) -> StartEstimate | None:
    """When plugins say that a group starts; None: nobody does, or it waits for what does not pass."""
    if not session.plugins.starts:
        return None
    passes = isinstance(reason, _PASSING) and not reason.stays
    return session.plugins.starts.get(key) if passes else None


def _in_backlog(session: Session, entry: Entry, reason: Reason) -> Verdict:
    """How a group stands that is not in queue."""
    said = reason if entry.gated is None else most_specific([reason, entry.gated]) or reason
    attempted: bool = reason.lacks_capacity and entry.tried
    return Verdict(
        group=entry.job.name,
        shadow=False,
        enqueued=False,
        scheduled=False,
        reason=said,
        attempted=attempted,
        pods_unschedulable=attempted and said.lacks_capacity,
        attempts=entry.attempts,
        job=entry.job.key,
        estimate=_foreseen(session, entry.job.key, said),
    )


def _stands(session: Session, job: JobState) -> bool:
    """Whether the group's minimum is placed."""
    return session.plugins.ready(job) and job.whole


def _reason(session: Session, job: JobState, shortages: Shortages) -> Generator[Turn, None, Reason]:
    """The one reason why a group waits."""
    reasons = [restated(session, job, reason) for reason in session.reasons.get(job.key, ())]
    if job.key in session.unfit and not job.nominated and unplaced(job):
        reasons.append((yield from shortages.of(job)))
    if job.nominated:
        waits = _waits_for(session, job)
        if not job.missing():
            return waits
        reasons = [*(reason for reason in reasons if not reason.lacks_capacity), waits]
    invalid = session.plugins.valid(job) if job.in_queue or not reasons else None
    if invalid is not None:
        reasons.append(invalid)
    gates = gates_of(job)
    if gates is not None:
        reasons.append(gates)
    found = most_specific(reasons)
    if found is None and unplaced(job):
        # Nobody has refused it: others that come first took in this cycle what it was promised.
        found = yield from shortages.of(job)
    if found is None:
        return NotEnoughTasks(job.pipelined, job.minimum)
    protected = session.protected.get(job.key)
    if protected and (type(found) is NotEnoughResources or isinstance(found, GangExceedsReclaimableShare)):
        return replace(found, protected=protected)
    return found


def _waits_for(session: Session, job: JobState) -> VictimsTerminating:
    """What a nominated group waits for: the pods that leave its nodes, and those of its queue that leave any, where
    the queue's capability holds no more.
    """
    names = {session.nodes.names[row] for _, row in job.nominated.values()}
    leaving = {
        task.key: task.node for name in names for task in session.model.nodes[name].tasks.values()
        if task.terminating or task.key in session.leaving
    }  # fmt: skip
    if awaits_capability(session, job):
        leaving.update((task.key, task.node) for task in leaving_of(session, session.queue(job.queue)))
    return VictimsTerminating(len(leaving), len({*leaving.values()} or names))


def gates_of(job: JobState) -> Gated | None:
    """The gates behind which pods of the minimum wait, if they do."""
    if not job.gated or job.missing() <= len(job.waiting):
        return None
    gates = sorted({gate.name for task in job.job.waiting for gate in task.pod.spec.scheduling_gates or ()})
    return Gated(job.gated, job.minimum, tuple(gates))
