"""What a group that waits asks for, as its row in the backlog says it."""

from __future__ import annotations

from kbatch.api import conditions
from kbatch.api.reasons import NotEnoughTasks, Reason
from kbatch.engine.admission.demand import Needs
from kbatch.engine.carryover.backlog import Entry
from kbatch.engine.carryover.giving import Giving
from kbatch.engine.context import CycleContext
from kbatch.engine.diagnosis.verdicts import gates_of
from kbatch.engine.preemption.prospective import foreseen, never_preempts
from kbatch.engine.reservation.clocks import enqueued_since
from kbatch.engine.session.session import Session
from kbatch.engine.state.jobs import JobState


def is_plain(session: Session, job: JobState) -> bool:
    """Whether a row says all that matters of the group until it changes."""
    model = job.job
    return (
        session.plugins.by_job and model.group is not None and not job.bound and not model.nominees
        and not model.terminating and not model.is_true(conditions.ENQUEUED)
    )  # fmt: skip


def entry_of(context: CycleContext, job: JobState, wanted: Needs | None, *, plain: bool, ageing: int) -> Entry:
    """What the group asks for while it waits; `plain`: as `is_plain` says. `ageing`: see `InQueue`."""
    session, model = context.session, job.job
    fixed: Reason | None = None
    gated = gates_of(job)
    invalid = session.plugins.valid(job) if job.possible else None
    if not job.possible:
        fixed = session.reasons[job.key][0]
    elif wanted is None:
        fixed = invalid or (NotEnoughTasks(0, job.minimum) if not job.gated else gated)
    elif plain:
        fixed = session.plugins.enqueueable(job)
    demand = session.model.demand(model)
    wanted = wanted or Needs({}, {})
    sure = tuple(sorted(model.outstanding)) if not job.attempts and foreseen(session, job) else ()
    since = enqueued_since(session, job) if job.backing_off else None
    back = since + session.policy.backoff(job.attempts) if since is not None else 0
    return Entry(
        job=model,
        least=wanted.least,
        kept=wanted.kept,
        fixed=fixed,
        gated=gated,
        giving=Giving(model.queue, model.priority, model.lifetime is None, sure, never_preempts(session, job)),
        asks=job.asks or tuple(sorted(name for name, amount in wanted.kept.items() if amount)),
        shape=context.feasibility.mark(job),
        triable=not demand.short and bool(demand.uncreated or invalid is None),
        tried=invalid is None,
        strict=job.strict,
        choosing=not model.min_resources and len({task.cls.id for task in job.waiting}) > 1,
        stated=bool(model.min_resources),
        attempts=job.attempts,
        limit=session.plugins.limit_of(job, wanted.kept),
        due=model.created + ageing,
        back=back,
    )
