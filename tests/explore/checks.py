"""What must hold in every state, of every cycle, and of what a world comes to that nobody disturbs.

All raise AssertionError with a sentence that says what does not hold.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from kbatch.api.conditions import ENQUEUED, REASON_MEMBERS_LOST, TRUE
from kbatch.engine import Report, Transaction, Verdict
from kbatch.engine.decisions import MINIMUM_LOST, OWN_SAKE, TAKEN_BACK
from kbatch.model.cluster import ClusterModel
from tests.explore.moves import Decided, Write, name_of, writes
from tests.explore.state import State, enqueued, used
from tests.explore.world import World, slot
from tests.property.test_engine import _Before, _check_nodes, codes
from tests.unit.engine.worlds import Decisions

MOST_CYCLES = 12
"""Cycles that decide at one instant; see tests/property/test_reservations.py."""


def standing(model: ClusterModel) -> None:
    """Of the state itself: the model's sums, room of nodes, caps of queues."""
    model.validate()
    _check_nodes(model)
    for queue in model.queues.values():
        for name, most in (queue.capability or {}).items():
            held = sum(job.bound.get(name, 0) for job in queue.jobs.values())
            assert held <= most, f"queue {queue.name} holds {held} of {name}, its capability is {most}"
    within_maximums(model, promised=False)


def within_maximums(model: ClusterModel, *, promised: bool) -> None:
    """No role has more pods that hold nodes or have succeeded than its maxMember; nor, with those that have a promised
    node.
    """
    for key, job in model.jobs.items():
        if not any(role.max_member is not None for role in job.roles):
            continue
        tasks = [task for task in job.tasks.values() if task.holds or task.succeeded or (promised and task.nominated)]
        counts = Counter(task.role for task in tasks)
        for role in job.roles:
            most = role.max_member
            assert most is None or counts[role.name] <= most, (
                f"{key} has {counts[role.name]} of {role.name}, its maxMember is {most}"
            )


def within_quota(world: World, state: State, decided: Decided) -> None:
    """Of a quota no more is used than it allows; and who is let in queue has room in it for its minimum, beside what is
    used and what others in queue have not used yet of theirs.
    """
    if not world.quota:
        return
    cores = used(world, state)
    assert cores <= world.quota, f"pods use {cores} cores of a quota of {world.quota}"
    own = Counter[int]()
    for name, _ in state.pods:  # those that have ended, too: nobody comes in their place
        own[slot(name)[0]] += world.groups[slot(name)[0]].cpu
    stood = {f"ns/g{place}" for place, one in enumerate(state.groups) if one is not None and enqueued(one)}
    told = {one.group: bool(one.enqueued) for one in decided.verdicts}
    stands = {key for key in {*stood, *told} if told.get(key, key in stood)}
    lacking: dict[str, int] = {}
    for key in stands:
        place = slot(name_of(key))[0]
        spec = world.groups[place]
        lacking[key] = max(0, spec.minimum * spec.cpu - own[place])
    for key in sorted(stands - stood):
        kept = cores + sum(lacking.values())
        assert not lacking[key] or kept <= world.quota, (
            f"{key} comes in queue: {kept} cores of a quota of {world.quota}"
        )


def equal(one: Decided, other: Decided, what: str) -> None:
    """Two cycles over one state say the same, and leave the same."""
    assert one.transactions == other.transactions, f"decisions depend on {what}"
    assert one.verdicts == other.verdicts, f"verdicts depend on {what}"
    assert one.outcome.state == other.outcome.state, f"what a cycle leaves depends on {what}"
    assert one.outcome.next_wake == other.outcome.next_wake, f"the next wake depends on {what}"


def remembered(alone: Decided, kept: Decided, standing: dict[str, Verdict]) -> dict[str, Verdict]:
    """A cycle that goes on from others decides as one that remembers nothing, and leaves the same. What it does not say
    again stands as before (`standing`), but for numbers, for which it may wake earlier. Returns what stands now.
    """
    what = "the memo or the order of events"
    found = Report({verdict.job: verdict for verdict in kept.verdicts}, kept.outcome.whole, kept.outcome.gone)
    stands = found.onto(standing)
    assert alone.transactions == kept.transactions, f"decisions depend on {what}"
    anew = {verdict.job: verdict for verdict in alone.verdicts}
    assert codes(Decisions(verdicts=anew)) == codes(Decisions(verdicts=stands)), f"verdicts depend on {what}"
    assert alone.outcome.state == kept.outcome.state, f"what a cycle leaves depends on {what}"
    wakes = [math.inf if one.outcome.next_wake is None else one.outcome.next_wake for one in (kept, alone)]
    assert wakes[0] <= wakes[1], f"the next wake depends on {what}"
    return stands


class Before:
    """What a cycle's decisions are judged by, taken before they are carried out."""

    def __init__(self, model: ClusterModel) -> None:
        self.model = model
        self.sums = _Before(model)
        self.waiting = {key for key, job in model.jobs.items() if any(task.nominated for task in job.waiting)}
        self.taken_back: set[str] = set()
        """The gangs bound in part of which as much is evicted as can be: what the API server refuses goes later."""

    def decisions(self, decided: Decided) -> None:
        """Each transaction by itself, after those before it."""
        for error in decided.outcome.errors:
            raise AssertionError(f"work on {error.group} failed in {error.phase}: {error.text}")
        seen: set[str] = set()
        self.sums.foresee(decided.transactions)
        for transaction in decided.transactions:
            self._once(transaction, seen)
            self.sums.check(transaction)
            placed = [*transaction.binds, *(one for one in transaction.nominations if one.node)]
            if placed:
                self.waiting.add(transaction.job)  # what else goes for its sake may be decided later in the cycle
            for gone in transaction.evictions:
                served = placed or gone.beneficiary in self.waiting
                assert gone.action in OWN_SAKE or served, f"{gone.pod} is evicted for nobody"
                if gone.action == TAKEN_BACK:
                    assert not self.model.jobs[transaction.job].whole(), f"{gone.pod} of a whole gang is taken back"
                    self.taken_back.add(transaction.job)
        self.sums.check_victims()

    def _once(self, transaction: Transaction, seen: set[str]) -> None:
        named = [*(one.pod for one in transaction.binds), *(one.pod for one in transaction.evictions)]
        for pod in named:
            assert pod not in seen, f"{pod} is decided on twice in one cycle"
            seen.add(pod)

    def carried_out(self, model: ClusterModel) -> None:
        """The state after all of them: no gang begun by halves, none that waits with less than it needs."""
        _check_nodes(model)
        within_maximums(model, promised=True)
        for queue in model.queues.values():
            for name, most in (queue.capability or {}).items():
                held = queue.allocated.get(name, 0)
                assert held <= most, f"{held} of {name} of queue {queue.name} are held or promised, not {most} at most"
        for key, job in model.jobs.items():
            held, was = job.holding + job.succeeded, self.sums.holding.get(key, 0)
            if job.gang and job.holding and held < job.minimum and key not in self.taken_back:
                assert 0 < was < job.minimum, f"{key} is bound in part: {held} of {job.minimum}"
                assert held >= was, f"{key}, bound in part, loses more: {held} of {was}"
            promised = len([task for task in job.waiting if task.nominated])
            if job.gang and promised and not job.holding:
                count = promised + job.succeeded
                assert count >= job.minimum, f"{key} waits with {count} nominations, {job.minimum} are its minimum"


@dataclass
class Following:
    """What is expected of a world that nobody disturbs, while it is followed.

    Attributes:
        strict: whether two things are counted too that follow from the order of actions, and from a process that ends
            in the middle of a plan: a pod that is bound and, at the same instant, reclaimed, or evicted for a more
            important group of its queue; and a nomination that the next process withdraws and makes again at the
            instant at which it began.
        began: that instant.
        owed: groups for which pods were evicted, and that have not bound one since.
        evicted: how often each pod was. bound: when each pod was.
        told: the nodes that each pod was nominated to at this instant, in order. cycles: how many decided at it.
        late: the groups of which an eviction was on its way at it.
    """

    strict: bool = False
    began: int = -1
    owed: set[str] = field(default_factory=set)
    evicted: Counter[str] = field(default_factory=Counter)
    bound: dict[str, int] = field(default_factory=dict)
    told: dict[str, list[str]] = field(default_factory=dict)
    cycles: int = 0
    late: set[int] = field(default_factory=set)
    now: int = -1

    def step(self, world: World, state: State, decided: Decided) -> None:
        """One more cycle whose decisions are carried out."""
        if state.now != self.now:
            self.now, self.cycles = state.now, 0
            self.told.clear()
            self.late.clear()
        self.late |= {slot(name)[0] for name in state.evicting}
        todo = writes(decided)
        self.cycles += bool(todo)
        assert self.cycles <= MOST_CYCLES, "cycles at one instant never end"
        nominated = {name: one.nominated for name, one in state.pods}
        for one in todo:
            if one.what == "nominate":
                nodes = self.told.setdefault(one.pod, [nominated[one.pod]])
                nodes.append(one.node)
                named = [name for name in nodes if name]
                if state.now == self.began and not self.strict:
                    continue
                most = max(Counter(named).values(), default=0)
                assert most <= (1 if self.strict else 2), f"{one.pod} goes back to where it was: {nodes}"
            elif one.what == "bind":
                self.bound[one.pod] = state.now
            else:
                self.evicted[one.pod] += 1
                assert self.evicted[one.pod] == 1, f"{one.pod} is evicted twice"
        # Of a group below its minimum for too long the rest is taken back, and it begins again from its place in queue.
        gone_all = [gone for transaction in decided.transactions for gone in transaction.evictions]
        anew = {slot(name_of(gone.pod))[0] for gone in gone_all if gone.action == MINIMUM_LOST}
        for name in [name for name in self.told if slot(name)[0] in anew]:
            del self.told[name]
        self.owed -= {f"ns/g{place}" for place in anew}
        self._pass_on(world, todo)
        for transaction in decided.transactions:
            self.owed |= {gone.beneficiary for gone in transaction.evictions if gone.beneficiary}
            for gone in transaction.evictions:
                group = slot(name_of(gone.pod))[0]
                outranked = (
                    gone.action == "reclaim"
                    or (gone.action == MINIMUM_LOST and group in self.late)
                    or (
                        gone.action == "preempt"
                        and (
                            _rank(world, gone.beneficiary) > _rank(world, gone.pod)
                            or _surplus(world, state, group)
                            or self._only_now_whole(gone.beneficiary, state)
                        )
                    )
                )
                at_once = self.bound.get(name_of(gone.pod)) == state.now
                assert not at_once or (outranked and not self.strict), (
                    f"{gone.pod} is evicted at the instant of its bind"
                )
            if transaction.binds:
                self.owed.discard(f"ns/g{slot(name_of(transaction.binds[0].pod))[0]}")

    def _pass_on(self, world: World, todo: Sequence[Write]) -> None:
        """What was made for a group whose nominations end is owed to who takes it: those that matter more."""
        for place in {slot(one.pod)[0] for one in todo if one.what == "nominate" and not one.node}:
            placed = {slot(one.pod)[0] for one in todo if one.node and one.what != "evict"}
            heirs = {f"ns/g{heir}" for heir in placed if world.groups[heir].queue == world.groups[place].queue}
            ahead = {heir for heir in heirs if _rank(world, heir) > _rank(world, f"ns/g{place}")}
            if ahead and f"ns/g{place}" in self.owed:
                self.owed.discard(f"ns/g{place}")
                self.owed |= ahead

    def _only_now_whole(self, group: str, state: State) -> bool:
        """Whether a group's minimum was bound at this instant: only then may it ask for what exceeds it."""
        place = slot(name_of(group))[0]
        return any(at == state.now and slot(pod)[0] == place for pod, at in self.bound.items())

    def rest(self, world: World, state: State) -> None:
        """Nothing is left to happen."""
        there = {f"ns/g{place}" for place, one in enumerate(state.groups) if one is not None}
        assert not self.owed & there, f"pods were evicted for {sorted(self.owed & there)}, who did not start"
        at_rest(world, state)


def _rank(world: World, key: str) -> int:
    """How much a group matters, given its key or that of one of its pods."""
    return {"": 0, "low": 1, "high": 100}[world.groups[slot(name_of(key))[0]].priority]


def _surplus(world: World, state: State, place: int) -> bool:
    """Whether the group holds more than its minimum."""
    mine = [one for name, one in state.pods if slot(name)[0] == place and one.leaves is None]
    return sum(one.ended or bool(one.node) for one in mine) > world.groups[place].minimum


def at_rest(world: World, state: State) -> None:
    """Of a state in which nothing is left to happen: no room is kept, no gang stands in part."""
    for name, one in state.pods:
        assert not one.nominated or one.node, f"{name} stays nominated to {one.nominated}"
    for place, group in enumerate(state.groups):
        spec = world.groups[place]
        if group is None:
            continue
        mine = [one for name, one in state.pods if slot(name)[0] == place]
        placed = sum(one.ended or bool(one.node) for one in mine)
        running = sum(bool(one.node) and not one.ended for one in mine)
        usable = min(len(mine), spec.usable())
        # With fewer pods than that, nobody can tell binds that were never made from pods that are gone.
        if running and placed < spec.minimum <= usable:
            assert group.was_whole, f"g{place} stays bound in part: {placed} of {spec.minimum}"
        told = {(one.type, one.status, one.reason) for one in group.conditions}
        if spec.lost is not None and (ENQUEUED, TRUE, REASON_MEMBERS_LOST) in told:
            assert not running, f"g{place} has lost members, and what is left of it stays for good"


def loops(world: World, states: Collection[tuple[State, Decided]]) -> None:
    """Of states that follow each other for ever: nothing is bound or evicted in them."""
    for _, decided in states:
        for one in writes(decided):
            assert one.what == "nominate", f"a world that nobody disturbs never comes to rest: {one}"
