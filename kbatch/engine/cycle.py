"""One cycle: open a session, run the actions, say how each group stands."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from kbatch.api.reasons import (
    Gated,
    NotEnoughTasks,
    PodGroupNotFound,
    Reason,
    VictimsTerminating,
    most_specific,
)
from kbatch.engine.actions import ACTIONS
from kbatch.engine.decisions import TURN, Memo, Observer, Outcome, Step, Transaction, Turn, Verdict
from kbatch.engine.diagnosis.shortages import Shortages, restated
from kbatch.engine.placement.gang import unplaced
from kbatch.engine.policy.policy import Policy
from kbatch.engine.reservation.resume import take_up
from kbatch.engine.session.session import Session
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.snapshot import Snapshot


def cycle(snapshot: Snapshot, policy: Policy, memo: Memo, observer: Observer) -> Generator[Step, None, Outcome]:
    """Decide on a snapshot: yields transactions as they are found and verdicts at the end; returns the `Outcome`.

    In between it yields a `Turn` every few milliseconds, however much there is to look at. The same snapshot, policy
    and memo give the same decisions, byte for byte; the memo saves work, and changes none.
    """
    with observer.span("snapshot"):
        for _ in snapshot.open():
            yield TURN
    if memo.policy != policy.fingerprint:
        memo = Memo(policy.fingerprint)
    if memo.idle is not None:
        generation, wake, verdicts = memo.idle
        if generation == snapshot.generation and (wake is None or snapshot.now < wake):
            yield from verdicts
            return Outcome(memo, wake)
    with observer.span("session"):
        session = Session(snapshot, policy, memo)
    try:
        return (yield from _decide(session, observer))
    finally:
        session.close()


def _decide(session: Session, observer: Observer) -> Generator[Step, None, Outcome]:
    """The cycle over a session."""
    snapshot, policy = session.snapshot, session.policy
    with observer.span("session"):
        yield TURN
        yield from session.open()
    decided = False
    with observer.span("standing"):
        for step in take_up(session):
            decided = decided or isinstance(step, Transaction)
            yield step
    if not decided:
        session.failures.begin()
    for action in policy.actions:
        with observer.span(f"action:{action}"):
            for step in ACTIONS[action](session):
                decided = decided or isinstance(step, Transaction)
                yield step
    with observer.span("verdicts"):
        found = []
        shortages = Shortages(session, session.memo)
        for word in _verdicts(session, shortages):
            if isinstance(word, Verdict):
                found.append(word)
            yield word
    wake = min((instant for instant in session.wake if instant > snapshot.now), default=None)
    after = Memo(policy.fingerprint)
    session.keep(after)
    shortages.keep(after)
    if not decided:
        after.idle = (snapshot.generation, wake, tuple(found))
    return Outcome(after, wake)


def _verdicts(session: Session, shortages: Shortages) -> Iterator[Verdict | Turn]:
    for job in session.live():
        model = job.job
        if model.group is None and not model.shadow:
            reason: Reason | None = PodGroupNotFound(model.name)
            yield Verdict(model.name, shadow=True, enqueued=None, scheduled=False, reason=reason, job=model.key)
            continue
        whole = session.ready(job) and job.whole
        reason = None if whole else (yield from _reason(session, job, shortages))
        attempted = not whole and model.key in session.attempted
        yield Verdict(
            group=model.name,
            shadow=model.shadow,
            enqueued=None if model.shadow else job.in_queue,
            scheduled=whole,
            reason=reason,
            attempted=attempted,
            pods_unschedulable=attempted and reason is not None and reason.lacks_capacity,
            attempts=0 if whole else job.attempts,
            job=model.key,
        )


def _reason(session: Session, job: JobState, shortages: Shortages) -> Generator[Turn, None, Reason]:
    """The one reason why a group waits."""
    reasons = [restated(session, job, reason) for reason in session.reasons.get(job.key, ())]
    if job.key in session.unfit and not job.nominated and unplaced(job):
        reasons.append((yield from shortages.of(job)))
    if job.nominated:
        rows = {row for _, row in job.nominated.values()}
        names = {session.nodes.names[row] for row in rows}
        leaving = sum(
            1 for name in names for task in session.model.nodes[name].tasks.values()
            if task.terminating or task.key in session.leaving
        )  # fmt: skip
        waits = VictimsTerminating(leaving, len(rows))
        if not job.missing():
            return waits
        reasons = [*(reason for reason in reasons if not reason.lacks_capacity), waits]
    invalid = session.valid(job) if job.in_queue or not reasons else None
    if invalid is not None:
        reasons.append(invalid)
    if job.gated and job.missing() > len(job.waiting):
        reasons.append(_gated(job))
    found = most_specific(reasons)
    if found is None and unplaced(job):
        # Nobody has refused it: others that come first took in this cycle what it was promised.
        found = yield from shortages.of(job)
    return found if found is not None else NotEnoughTasks(job.pipelined, job.minimum)


def _gated(job: JobState) -> Gated:
    gates = sorted({gate.name for task in job.job.waiting for gate in task.pod.spec.scheduling_gates or ()})
    return Gated(job.gated, job.minimum, tuple(gates))
