"""One cycle: open a session, run the actions, say how each group stands.

With `loader`, the only module that knows concrete actions; it knows them by the policy.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from functools import partial

from kbatch.api.objects import PodDisruptionBudget
from kbatch.engine.carryover.awake import Awake, backlog_of
from kbatch.engine.carryover.holdings import Holdings
from kbatch.engine.carryover.lone_pods import LonePods
from kbatch.engine.carryover.memo import Memo
from kbatch.engine.carryover.unschedulable import UnschedulableCache
from kbatch.engine.context import CycleContext
from kbatch.engine.decisions import TURN, GroupError, Observer, Step, Transaction, Turn
from kbatch.engine.diagnosis.shortages import Shortages
from kbatch.engine.diagnosis.verdicts import verdicts
from kbatch.engine.placement.feasibility import Feasibility
from kbatch.engine.placement.foreknown import Foreknown
from kbatch.engine.placement.ranking import NodeRankings
from kbatch.engine.placement.scoring import Scoring
from kbatch.engine.plugin import QueueStanding
from kbatch.engine.policy.policy import Policy
from kbatch.engine.preemption.budgets import Budgets
from kbatch.engine.preemption.refusals import RefusedVictims
from kbatch.engine.preemption.sparing import Decided
from kbatch.engine.reservation.backfilling import BackfillArguments
from kbatch.engine.reservation.below_minimum import broken_after
from kbatch.engine.reservation.clocks import clocks_after
from kbatch.engine.reservation.ledger import Ledger
from kbatch.engine.reservation.nominations import ending, whole_or_none
from kbatch.engine.reservation.partial import binding_after
from kbatch.engine.reservation.planned import PlannedStarts
from kbatch.engine.reservation.promises import free_of, offered_of, promised, renew
from kbatch.engine.reservation.resting import resting_after
from kbatch.engine.reservation.resume import resume
from kbatch.engine.session.consent import Consent
from kbatch.engine.session.guarding import failing_after, own_up
from kbatch.engine.session.hourly import HourlyLimit
from kbatch.engine.session.session import Session
from kbatch.engine.state.cycle_state import CycleState
from kbatch.engine.state.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a cycle.

    Attributes:
        memo: saves the next cycle work, and changes none of its decisions.
        state: goes into the next snapshot (`take_snapshot(model, now, state)`), and changes what is decided.
        next_wake: when the same snapshot could first be decided otherwise, in microseconds since the epoch, or None.
        errors: what was raised while a group was worked on; see `kbatch.engine.session.guarding`.
        whole, gone: how the cycle's verdicts are to be read; see `kbatch.engine.decisions.Report`.
        queues: by name what is to be written to the status of queues; None: nothing has happened since it was said.
        opinion: when a plugin's opinion on the same cluster changes by itself, and with it what is decided, in
            microseconds since the epoch; None: never.
        planned: by key the groups for whose planned start room is kept, and when that is (microseconds; None: nobody
            knows).
    """

    memo: Memo
    state: CycleState
    next_wake: int | None
    errors: tuple[GroupError, ...] = ()
    whole: bool = False
    gone: tuple[str, ...] = ()
    queues: Mapping[str, QueueStanding] | None = None
    opinion: int | None = None
    planned: Mapping[str, int | None] = field(default_factory=dict)


def cycle(snapshot: Snapshot, policy: Policy, memo: Memo, observer: Observer) -> Generator[Step, None, Outcome]:
    """Decide on a snapshot: yields transactions as they are found and verdicts at the end; returns the `Outcome`.

    Nominations that ended are told after the verdicts. In between it yields a `Turn` every few milliseconds, however
    much there is to look at. The same snapshot, policy and memo give the same decisions, byte for byte; the memo saves
    work, and changes none.
    """
    with observer.span("snapshot"):
        for _ in snapshot.open():
            yield TURN
    if memo.policy != policy.fingerprint:
        memo = Memo(policy.fingerprint)
    if memo.idle is not None:
        generation, wake = memo.idle
        if generation == snapshot.generation and (wake is None or snapshot.now < wake):
            return Outcome(memo, snapshot.state, wake, opinion=memo.opinion)
    with observer.span("session"):
        context = _context(snapshot, policy, memo)
    try:
        return (yield from _decide(context, memo, observer))
    finally:
        context.close()


def _context(snapshot: Snapshot, policy: Policy, memo: Memo) -> CycleContext:
    """The parts of one cycle."""
    session = Session(snapshot, policy)
    rankings = NodeRankings(
        session.room, session.plugins.predicates, session.plugins.scores, policy.fingerprint, scoring=Scoring(session)
    )
    consent = Consent(session)
    if session.model.objects.get(PodDisruptionBudget):
        budgets = Budgets(session.model)
        consent.guards.append(budgets)
        session.plugins.removed_hooks.append(budgets.removed)
    hourly = HourlyLimit(session, snapshot.state.evictions)
    if hourly:
        consent.guards.append(hourly)
        session.plugins.removed_hooks.append(hourly.removed)
    refusals = session.model.refusals
    if refusals.evictions:
        consent.guards.append(RefusedVictims(refusals.evictions))
    session.wake.extend(refusals.ends())
    standing = memo.trials_at == snapshot.capacity_generation
    if standing:
        feasibility = Feasibility(session, memo.trials, memo.alike, memo.proved, memo.most)
    else:
        feasibility = Feasibility(session, {}, {})
    session.trying = feasibility.standing
    holdings = memo.holdings if memo.holdings is not None else Holdings()
    rankings.counts = partial(holdings.free, session.room)
    arguments = policy.arguments_of("backfill")
    plans = arguments if isinstance(arguments, BackfillArguments) and arguments.starts else None
    return CycleContext(
        session,
        rankings,
        feasibility,
        consent,
        Ledger(session, rankings),
        UnschedulableCache(session, rankings, memo),
        backlog_of(memo, snapshot),
        snapshot.state,
        hourly,
        Foreknown(session),
        PlannedStarts(session, plans, memo.ends) if plans is not None else None,
        holdings,
        memo.lone_pods if memo.lone_pods is not None else LonePods(),
    )


def _decide(context: CycleContext, memo: Memo, observer: Observer) -> Generator[Step, None, Outcome]:
    """The cycle over a session."""
    session = context.session
    snapshot, policy = session.snapshot, session.policy
    with observer.span("session"):
        yield TURN
        awake = Awake(memo, context.backlog, snapshot)
        yield from session.open(awake.jobs, context.backlog.resting)
        own_up(session)
        session.caches += [context.rankings.close, context.feasibility.forget, context.foreknown.forget]
    decided = False
    session.phase = "resume"
    with observer.span("resume"):
        for step in resume(session, context.rankings):
            decided = decided or isinstance(step, Transaction)
            yield step
        session.phase = "promises"
        if context.planned is not None and context.planned.keeps:
            for step in renew(context.planned, context.feasibility, context.ledger, context.rankings):
                decided = decided or isinstance(step, Transaction)
                yield step
    session.phase = "estimates"
    with observer.span("estimates"):
        yield from session.plugins.foresee()
    if not decided and not session.withdrawn:
        context.unschedulable.begin()
    for kind, arguments in zip(policy.action_types, policy.action_arguments, strict=True):
        session.phase = kind.name
        action = kind()
        action.arguments = arguments
        with observer.span(f"action:{kind.name}"):
            for step in action.run(context):
                decided = decided or isinstance(step, Transaction)
                yield context.hourly.telling(step) if isinstance(step, Transaction) else step
    if context.planned is not None:
        context.planned.lift()
    session.phase = "ending"
    yield from whole_or_none(session)
    for step in Decided(context).telling():
        decided = decided or isinstance(step, Transaction)
        yield step
    session.phase = "verdicts"
    with observer.span("verdicts"):
        shortages = Shortages(context, memo)
        yield from verdicts(context, shortages)
    session.phase = "ending"
    for withdrawal in ending(session):
        decided = True
        yield withdrawal
    expected = context.planned.wake() if context.planned is not None else None
    if expected is not None:
        session.wake.append(expected)
    state = yield from _state_after(context)
    opinion = session.plugins.opinion(session.wake)
    wake = session.next_wake(opinion)
    after = Memo(policy.fingerprint)
    context.unschedulable.keep(after)
    after.trials, after.trials_at = context.feasibility.trials, snapshot.capacity_generation
    after.alike, after.proved = context.feasibility.alike, context.feasibility.proved
    after.most = context.feasibility.by_class
    shortages.keep(after)
    # Without what failed the next may decide otherwise; so it may where gangs do not count as being bound any more, and
    # beside other promises, or other gathered room, than this one found; or those that are due: they move on with time.
    last = snapshot.state
    moved = (state.binding, state.planned, state.gathered) != (last.binding, last.planned, last.gathered)
    due = any(start.at is not None and start.at <= snapshot.now for start in state.planned)
    if not (decided or session.failed.keys() & session.errors.keys() or moved or due):
        after.idle = (snapshot.generation, wake)
    after.opinion = opinion
    after.holdings = context.holdings.keep(session.queues)
    after.lone_pods = context.lone_pods.keep(session.queues)
    after.ends = context.planned.ends.left() if context.planned is not None else None
    awake.leave(after, session, (yield from resting_after(session)))
    queues = session.plugins.standings()
    planned = context.planned
    starts = {key: each.at for key, each in planned.starts.items() if planned.stands(each)} if planned else {}
    outcome = Outcome(
        after, state, wake, tuple(session.errors.values()), awake.whole, awake.gone, queues, opinion, starts
    )
    yield from context.feasibility.let_go()
    yield from context.rankings.let_go()
    yield from session.let_go()
    return outcome


def _state_after(context: CycleContext) -> Generator[Turn, None, CycleState]:
    """What the next cycle is to know that the API server does not say."""
    session, gathered = context.session, context.ledger.gathered
    kept = {gathered.job} if gathered is not None else set()
    if context.planned is not None:
        kept |= context.planned.starts.keys()
    clocks = yield from clocks_after(session, kept)
    binding = yield from binding_after(session)
    broken = yield from broken_after(session)
    planned = promised(context.planned) if context.planned is not None and context.planned.keeps else ()
    return CycleState(
        plugins=session.plugins.states(session.snapshot.state.plugins),
        clocks=clocks,
        gathered=gathered,
        binding=binding,
        failing=failing_after(session),
        evictions=context.hourly.after(),
        broken=broken,
        planned=planned,
        free=free_of(session) if planned else None,
        offered=offered_of(session) if planned else None,
        begun=context.planned.ends.begun() if context.planned is not None and planned else {},
    )
