"""The run: time goes from event to event, and at each the engine decides until it has nothing more to say."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kbatch.api.objects import PodGroup
from kbatch.engine import CycleState, Memo, NullObserver, Policy, QueueStanding, cycle, take_snapshot
from kbatch.engine.decisions import TURN, Observer, StartEstimate, Transaction, Verdict
from kbatch.model.phase import Phase
from kbatch.model.shares import dominant_share
from kbatch.model.usage import Anchor
from kbatch.resources import Resources, in_millionths
from kbatch.simulator.closeness import asks_for_it, levels_of, stands_of
from kbatch.simulator.cluster import SimulatedCluster
from kbatch.simulator.foreseen import Foreseen, foreseen
from kbatch.simulator.groups import phase_of
from kbatch.simulator.manifests import Manifests
from kbatch.simulator.names import START
from kbatch.simulator.packing import PackingSums
from kbatch.simulator.result import CycleResult, FlowResult, GroupResult, Planned, PodResult, QueueResult, Result, Use
from kbatch.times import HOUR, SECOND

MAX_CYCLES: Final = 100_000
_OVER: Final = frozenset({Phase.COMPLETED, Phase.FAILED})
_AGEING: Final = 600 * SECOND
"""Default age at which a group is given a reservation: before that, an unchanged state may still move."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Where a run ends if it does not end by itself, and what follows it.

    Attributes:
        until: the last instant that is simulated, in microseconds after the start; None: no limit.
        max_cycles: how many cycles may run.
        extra_cycles: how many idle cycles run once nothing is left to happen.
    """

    until: int | None = None
    max_cycles: int = MAX_CYCLES
    extra_cycles: int = 0


Progress = Callable[[int, int, float], None]
"""Told often: the time (microseconds after the start), how many cycles ran, and which part of the run lies behind.

The part, from 0 to 1, is that of the time until the limit; without one, that of the pods of the input that were
placed."""


def simulate(
    manifests: Manifests,
    policy: Policy,
    limits: Limits | None = None,
    *,
    progress: Progress | None = None,
    observer: Observer | None = None,
) -> Result:
    """Run the engine over the input until nothing is left to happen, or to a limit.

    Raises:
        InputError: an object that a live cluster would refuse.
    """
    cluster = SimulatedCluster(manifests)
    if levels_of(policy) is None:
        close = [each.obj for each in manifests.objects if isinstance(each.obj, PodGroup) and asks_for_it(each.obj)]
        for group in close:
            name = f"{group.metadata.namespace}/{group.metadata.name}"
            cluster.store.warn(f"PodGroup {name}: nothing acts on topology: the plugin topology is not configured")
    run = _Run(cluster, policy, limits or Limits(), progress, observer or NullObserver())
    run.go()
    return run.result()


@dataclass(slots=True)
class _Run:
    cluster: SimulatedCluster
    policy: Policy
    limits: Limits
    progress: Progress | None
    observer: Observer
    memo: Memo = field(default_factory=Memo)
    state: CycleState = field(default_factory=CycleState)
    cycles: list[CycleResult] = field(default_factory=list)
    count: int = 0
    now: int = 0
    wake: int | None = None
    opinion: int | None = None
    standings: Mapping[str, QueueStanding] = field(default_factory=dict)
    limited: bool = False
    engine_seconds: float = 0.0
    longest_slice: float = 0.0
    idle_seconds: float | None = None
    uses: list[Use] = field(default_factory=list)
    dimensions: set[str] = field(default_factory=set)
    held: dict[str, Resources] = field(default_factory=dict)
    integrals: dict[str, Resources] = field(default_factory=dict)
    accounted: int = 0
    packing: PackingSums = field(default_factory=PackingSums)
    seen: set[Hashable] = field(default_factory=set)
    seen_at: int = -1
    planned: list[Planned] = field(default_factory=list)
    plans: Mapping[str, int | None] = field(default_factory=dict)
    noted: Mapping[str, int | None] = field(default_factory=dict)
    estimates: dict[str, StartEstimate] = field(default_factory=dict)
    first: dict[str, tuple[int, StartEstimate]] = field(default_factory=dict)
    started: dict[str, int] = field(default_factory=dict)
    backfilled: dict[str, int] = field(default_factory=dict)

    def go(self) -> None:
        """Go from instant to instant."""
        following: int | None = 0
        while following is not None:
            self.now = following
            self.cluster.advance(self.now)
            self.limited = not self._decide()
            if self.limited:
                break
            self._account()
            following = self._next()
        self._restate()
        if self.limits.extra_cycles and not self.limited:
            seconds = self.engine_seconds
            for _ in range(self.limits.extra_cycles):
                self._step()  # what it decides, although nothing happened, is not hidden
            self.idle_seconds = (self.engine_seconds - seconds) / self.limits.extra_cycles
            self.engine_seconds = seconds

    def _restate(self) -> None:
        """Say once more of all groups how they stand, with the numbers of now: meanwhile these are not kept current.

        Where the run was cut off, the cycle may have more to say than that: it is left out.
        """
        self.memo = Memo()
        seconds = self.engine_seconds
        _, verdicts = self._cycle()
        self.cluster.restate(verdicts, self.now, words=self.limited)
        self.count -= 1
        self.engine_seconds = seconds

    def _decide(self) -> bool:
        """Run cycles at this instant until one decides nothing; false where the limit is reached before that."""
        while True:
            if self.count >= self.limits.max_cycles:
                return False
            changed = self._step()
            due = self.cluster.store.timeline.next_time
            if due is not None and due <= self.now:
                self.cluster.advance(self.now)
            elif not changed:
                return True

    def _step(self) -> bool:
        """A cycle, and what it decides carried out and noted; whether that changed anything."""
        transactions, verdicts = self._cycle()
        self._note(verdicts)
        effects = self.cluster.carry_out(transactions, verdicts, self.now)
        binds = tuple(bind for transaction in effects.carried_out for bind in transaction.binds)
        evictions = tuple(eviction for transaction in effects.carried_out for eviction in transaction.evictions)
        if binds or evictions or effects.enqueued or effects.nominations:
            result = CycleResult(self.count, self.now, effects.enqueued, binds, evictions, effects.nominations)
            self.cycles.append(result)
        return effects.changed

    def _note(self, verdicts: Sequence[Verdict]) -> None:
        """Note which groups run, and what is told of the starts of others."""
        for verdict in verdicts:
            if verdict.scheduled:
                self.started.setdefault(verdict.group, self.now)
            if verdict.backfilled:
                self.backfilled.setdefault(verdict.group, self.now)
            estimate = verdict.estimate
            if estimate is None:
                self.estimates.pop(verdict.group, None)
            else:
                self.estimates[verdict.group] = estimate
                if estimate.time is not None:
                    self.first.setdefault(verdict.group, (self.now, estimate))
        jobs = self.cluster.store.model.jobs
        plans = {jobs[key].name: at for key, at in self.plans.items() if key in jobs}
        for name, at in plans.items():
            if name not in self.noted or self.noted[name] != at:
                self.planned.append(Planned(name, self.now, None if at is None else at - START))
        self.noted = plans

    def _cycle(self) -> tuple[list[Transaction], list[Verdict]]:
        """One cycle of the engine, timed; what it says is carried out only after it has ended."""
        transactions: list[Transaction] = []
        verdicts: list[Verdict] = []
        self.count += 1
        clock, longest = time.perf_counter, self.longest_slice
        begin = last = clock()
        steps = cycle(
            take_snapshot(self.cluster.store.model, START + self.now, self.state, numbers_current=False),
            self.policy,
            self.memo,
            self.observer,
        )
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                outcome = end.value
                break
            finally:
                instant = clock()
                if instant - last > longest:
                    longest = instant - last
            if self.progress is not None:
                self._tell(self.progress, transactions)
            if step is TURN:
                last = instant if self.progress is None else clock()
                continue
            if isinstance(step, Transaction):
                transactions.append(step)
            elif isinstance(step, Verdict):
                verdicts.append(step)
            last = clock()
        self.longest_slice = longest
        self.engine_seconds += clock() - begin
        self.memo, self.state = outcome.memo, outcome.state
        self.opinion = outcome.opinion
        self.plans = outcome.planned
        if outcome.queues is not None:
            self.standings = outcome.queues
        self.wake = None if outcome.next_wake is None else max(outcome.next_wake - START, self.now + 1)
        return transactions, verdicts

    def _tell(self, progress: Progress, transactions: Sequence[Transaction]) -> None:
        if self.limits.until:
            part = self.now / self.limits.until
        else:
            placed = self.cluster.placed + sum(len(transaction.binds) for transaction in transactions)
            part = placed / max(1, self.cluster.awaited)
        progress(self.now, self.count, part)

    def _next(self) -> int | None:
        """The next instant at which anything can happen; None at the end."""
        due = self.cluster.store.timeline.next_time
        if due is None and (self.wake is None or self._repeats()):
            return None
        following = min(moment for moment in (due, self.wake) if moment is not None)
        if self.limits.until is not None and following > self.limits.until:
            return None
        return following

    def _repeats(self) -> bool:
        """Whether all that is left are groups that time out, wait and come back to what was before.

        Without this a group that can never be placed would keep a run going for ever. It is asked when nothing happens
        by itself any more; since the last real event the same state was seen before, and nothing that has a set time
        (a lifetime, a minimum of run time, ageing) is still to come.
        """
        cluster = self.cluster
        if cluster.last_event != self.seen_at:
            self.seen.clear()
            self.seen_at = cluster.last_event
        # Of groups and pods that want nothing any more, nothing changes without an event.
        model, groups = cluster.store.model, cluster.store.groups
        model.refresh()
        live = sorted(model.live.items())
        state = (
            tuple(
                (key, *((each.type, each.status, each.reason) for each in groups[key].status.conditions or ()))
                for key, _ in live if key in groups
            ),
            tuple(sorted((task.key, task.nominated) for _, job in live for task in job.waiting)),
        )  # fmt: skip
        if state in self.seen:
            return self.now >= self._last_set_time()
        self.seen.add(state)
        return False

    def _last_set_time(self) -> int:
        """The last instant that some spec speaks of, in microseconds after the start."""
        last = max((instants[-1] + HOUR - START for instants in self.state.evictions.values()), default=0)
        if self.opinion is not None:
            last = max(last, self.opinion - START)
        for job in self.cluster.store.model.jobs.values():
            begin = (job.created if job.started is None else job.started) - START
            last = max(last, begin + _AGEING if job.waiting or job.outstanding else 0)
            if job.group is not None and job.holding:
                spec = job.group.spec
                last = max(last, begin + SECOND * max(spec.lifetime_seconds or 0, spec.min_runtime_seconds))
                if job.key in self.state.broken:
                    last = max(last, self.state.broken[job.key] - START + SECOND * (spec.minimum_lost_seconds or 0))
        return last

    # --- sums ---------------------------------------------------------------------------------------------------------

    def _account(self) -> None:
        """Note what is in use from this instant on."""
        model = self.cluster.store.model
        if self.cluster.last_event > self.accounted:
            self._integrate(self.cluster.last_event - self.accounted)
            self.packing.passed(self.cluster.last_event - self.accounted)
            self.accounted = self.cluster.last_event
        self.packing.look(model)
        self.held = {name: dict(record.allocated) for name, record in model.queues.items() if record.allocated}
        for record in model.queues.values():
            self.dimensions.update(record.request)
        use = Use(self.now, self.cluster.store.allocated(), model.capacity)
        if not self.uses or (self.uses[-1].allocated, self.uses[-1].capacity) != (use.allocated, use.capacity):
            self.uses.append(use)

    def _integrate(self, length: int) -> None:
        """What the queues held did not change for `length` microseconds."""
        for name, held in self.held.items():
            integral = self.integrals.setdefault(name, {})
            for resource, amount in held.items():
                integral[resource] = integral.get(resource, 0) + amount * length

    def result(self) -> Result:
        """All that there is to say."""
        self._account()
        cluster = self.cluster
        waits = self._waits()
        waited = [wait for each in waits.values() for wait in each]
        return Result(
            cycles=tuple(self.cycles),
            cycle_count=self.count,
            pods={
                key: PodResult(record.phase, record.node, record.bound, record.finished)
                for key, record in sorted(cluster.store.pods.items())
            },
            groups=self._groups(),
            queues=self._queues(waits),
            makespan=cluster.last_event,
            mean_wait=sum(waited) / len(waited) if waited else 0.0,
            utilisation=self._utilisation(),
            fragmentation=self.packing.fragmentation(),
            nodes_opened=len(self.packing.opened),
            uses=tuple(self.uses),
            engine_seconds=self.engine_seconds,
            longest_slice=self.longest_slice,
            idle_cycle_seconds=self.idle_seconds,
            limited=self.limited,
            warnings=tuple(cluster.store.warnings),
            planned=tuple(self.planned),
            foreseen=self._foreseen(),
            started=dict(self.started),
            backfilled=dict(self.backfilled),
        )

    def _foreseen(self) -> tuple[Foreseen, ...]:
        queues = {job.name: job.queue for job in self.cluster.store.model.jobs.values()}
        return foreseen(self.first, self.started, queues, START, self.now)

    def _groups(self) -> dict[str, GroupResult]:
        cluster = self.cluster
        groups: dict[str, GroupResult] = {}
        levels = levels_of(self.policy)
        for job in cluster.store.model.jobs.values():
            group = cluster.store.groups.get(job.key)
            if group is not None:
                standing, phase = group.status.conditions or (), group.status.phase
            elif job.name in cluster.store.groups:
                continue  # a shadow group of the same name as a PodGroup
            else:
                standing = cluster.store.shadow_conditions.get(job.key, ())
                phase = phase_of(job, standing, "").value
            arrival, started = (
                (None, None) if group is None else (cluster.arrivals[job.key], cluster.starts.get(job.key))
            )
            stands = stands_of(cluster.store.model, levels, job.key)
            objects = None
            if group is not None and group.spec.objects:
                objects = () if phase in _OVER else cluster.store.objects.get(job.key, ())
            raw = group.status.excess_charged if group is not None else None
            charged = in_millionths(raw) if raw is not None else None
            estimate = self.estimates.get(job.name)
            groups[job.name] = GroupResult(
                phase, job.queue, group is None, standing, arrival, started, stands, objects, charged,
                estimate,
            )  # fmt: skip
        return dict(sorted(groups.items()))

    def _waits(self) -> dict[str, list[int]]:
        """How long the pods waited that were bound, by the queue that they were bound in."""
        waits = {name: list(gone) for name, gone in self.cluster.store.waits.items()}
        for record in self.cluster.store.pods.values():
            if record.bound is not None:
                waits.setdefault(record.queue, []).append(record.bound - record.arrival)
        return waits

    def _flow(self, name: str) -> FlowResult | None:
        """How much the queue has used, as it is at the end."""
        standing = self.standings.get(name)
        if standing is None:
            return None
        flow = standing.flow or Anchor()
        value, unlimited = flow.at(START + self.now, standing.half_life)
        return FlowResult(
            value, unlimited, flow.usage, flow.unlimited_usage, standing.fair_share, standing.charged
        )  # fmt: skip

    def _queues(self, waits: dict[str, list[int]]) -> dict[str, QueueResult]:
        model = self.cluster.store.model
        deserved = model.deserved()
        dimensions = self.dimensions & model.capacity.keys()

        def shown(amounts: Resources) -> Resources:
            return {name: amounts.get(name, 0) for name in sorted(dimensions | {n for n, a in amounts.items() if a})}

        return {
            name: QueueResult(
                weight=record.weight,
                deserved=shown(deserved.get(name, {})),
                allocated=shown(record.allocated),
                share=round(float(dominant_share(record.allocated, deserved.get(name, {}))), 6),
                mean=self._mean(name, record.allocated),
                waits=tuple(waits.get(name, ())),
                assumed=self.cluster.assumed_queue and name == model.default_queue,
                flow=self._flow(name),
            )
            for name, record in sorted(model.queues.items())
            if record.queue is not None
        }

    def _mean(self, queue: str, at_end: Resources) -> Resources:
        """What a queue held on average up to the last event; at one single instant, what it holds then."""
        end = self.cluster.last_event
        if not end:
            return dict(at_end)
        return {name: round(amount / end) for name, amount in self.integrals.get(queue, {}).items()}

    def _utilisation(self) -> dict[str, float]:
        """Allocated over capacity, integrated up to the last event; at one single instant, as it is then."""
        end = self.cluster.last_event
        allocated: dict[str, int] = {}
        capacity: dict[str, int] = {}
        steps = self.uses if end else self.uses[-1:]
        for index, use in enumerate(steps):
            until = min(end, steps[index + 1].time) if index + 1 < len(steps) else end
            length = until - use.time if end else 1
            if length > 0:
                for name in self.dimensions:
                    allocated[name] = allocated.get(name, 0) + use.allocated.get(name, 0) * length
                    capacity[name] = capacity.get(name, 0) + use.capacity.get(name, 0) * length
        return {name: round(allocated[name] / capacity[name], 6) for name in sorted(capacity) if capacity[name] > 0}
