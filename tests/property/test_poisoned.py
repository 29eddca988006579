"""One failing group stops nobody: a plugin that raises for one group, in any method, at any call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar
from unittest import mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kbatch.api.configuration import parse
from kbatch.api.reasons import EngineError
from kbatch.engine import (
    CycleState,
    Memo,
    NullObserver,
    Outcome,
    Policy,
    Transaction,
    Turn,
    Verdict,
    build_policy,
    cycle,
    take_snapshot,
)
from kbatch.engine.plugin import ABSTAIN, Plugin, Preemptor, Undo, Unit, Vote
from kbatch.engine.plugins import BUILTIN
from kbatch.engine.session.session import Session
from kbatch.engine.state.cycle_state import Failing
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.queues import QueueState
from kbatch.model.cluster import ClusterModel
from kbatch.model.tasks import Task
from kbatch.resources import Resources
from kbatch.times import SECOND
from tests.property.test_engine import ONE_TIER, PREEMPT_FIRST, World, relaxed, worlds
from tests.unit.engine.worlds import (
    ALLOCATE,
    EPOCH,
    EVERYTHING,
    group,
    members,
    node,
    pod,
    priority_class,
    queue,
    stamp,
    world,
)

METHODS = (
    "job_order_key", "task_order_key", "job_valid", "job_enqueueable", "job_ready", "job_pipelined", "overused",
    "preemptable", "reclaimable", "placed", "removed", "undo",
)  # fmt: skip


class PoisonError(Exception):
    """What the plugin raises."""


@dataclass
class Poison:
    """Raise for this group, in this method, from this call on."""

    job: str
    method: str
    after: int = 1
    calls: int = 0
    raised: int = 0

    def taste(self, job: str, method: str) -> None:
        if job == self.job and method == self.method:
            self.calls += 1
            if self.calls >= self.after:
                self.raised += 1
                raise PoisonError(f"{method} of {job}")


class Poisonous(Plugin):
    """Has no opinion, and counts what is placed: nothing may be left of it that was taken back."""

    name = "poisonous"
    agrees = frozenset()
    poison: ClassVar[Poison] = Poison("", "")
    open: ClassVar[list[str]] = []

    def job_order_key(self, job: JobState) -> tuple[int, ...]:
        self.poison.taste(job.key, "job_order_key")
        return ()

    def task_order_key(self, task: Task) -> tuple[int, ...]:
        self.poison.taste(task.job, "task_order_key")
        return ()

    def job_valid(self, job: JobState) -> None:
        self.poison.taste(job.key, "job_valid")

    def job_enqueueable(self, job: JobState) -> None:
        self.poison.taste(job.key, "job_enqueueable")

    def job_ready(self, job: JobState) -> None:
        self.poison.taste(job.key, "job_ready")

    def job_pipelined(self, job: JobState) -> None:
        self.poison.taste(job.key, "job_pipelined")

    def overused(self, queue: QueueState, job: JobState) -> None:
        self.poison.taste(job.key, "overused")

    def preemptable(self, preemptor: Preemptor, unit: Unit) -> Vote:
        self.poison.taste(unit.job.key, "preemptable")
        return ABSTAIN

    def reclaimable(self, preemptor: Preemptor, unit: Unit) -> Vote:
        self.poison.taste(unit.job.key, "reclaimable")
        return ABSTAIN

    def placed(self, task: Task, row: int) -> Undo:
        self.poison.taste(task.job, "placed")
        return self._counted(task, "placed")

    def removed(self, task: Task, row: int) -> Undo:
        self.poison.taste(task.job, "removed")
        return self._counted(task, "removed")

    def _counted(self, task: Task, how: str) -> Undo:
        self.open.append(f"{how} {task.key}")

        def undo() -> None:
            self.open.remove(f"{how} {task.key}")
            self.poison.taste(task.job, "undo")

        return undo


def with_poison(text: str) -> Policy:
    """The policy, with the plugin in a tier of its own before the others."""
    text = text.replace("tiers:\n", "tiers:\n- plugins: [{name: poisonous}]\n")
    return build_policy(parse(text, "test"), {**BUILTIN, Poisonous.name: Poisonous})


POLICIES = {name: with_poison(text) for name, text in (
    ("everything", EVERYTHING), ("one tier", ONE_TIER), ("preempt first", PREEMPT_FIRST),
)}  # fmt: skip


WITHOUT_A_PART = {
    "everything": ("task_order_key", "job_enqueueable"),
    "one tier": ("task_order_key", "job_order_key", "placed"),
    "preempt first": ("task_order_key", "job_enqueueable"),
}
"""By policy the methods that are asked before the group has a part in anything: it was promised nothing yet, nobody
was refused for its sake, and no order of queues was made with it."""


@dataclass
class Found:
    transactions: list[Transaction]
    verdicts: dict[str, Verdict]
    outcome: Outcome

    def but(self, job: str) -> tuple[Any, ...]:
        """What was decided on all other groups."""
        others = [each for each in self.transactions if each.job != job]
        words = {key: (each.enqueued, each.scheduled) for key, each in self.verdicts.items() if key != job}
        return others, words


def decide(model: ClusterModel, policy: Policy, poison: Poison, state: CycleState, memo: Memo | None = None) -> Found:
    """A cycle, at the end of which nothing but decisions is left in the session."""
    transactions: list[Transaction] = []
    verdicts: dict[str, Verdict] = {}
    with mock.patch.multiple(Poisonous, poison=poison, open=[]), checked(transactions):
        steps = cycle(take_snapshot(model, EPOCH, state), policy, memo or Memo(), NullObserver())
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                return Found(transactions, verdicts, end.value)
            if isinstance(step, Transaction):
                transactions.append(step)
            elif isinstance(step, Verdict):
                verdicts[step.job] = step


@contextmanager
def checked(transactions: list[Transaction]) -> Iterator[None]:
    """Compare the session's sums with those worked out anew when nothing more is decided."""
    let_go = Session.let_go

    def check(session: Session) -> Iterator[Turn]:
        if not session.emptied:  # that of trials is let go of too
            assert_only_decisions_are_left(session, transactions)
        return let_go(session)

    with mock.patch.object(Session, "let_go", check):
        yield


def assert_only_decisions_are_left(session: Session, transactions: list[Transaction]) -> None:
    assert not session.open_statements
    table, jobs = session.nodes, list(session._jobs.values())
    idle = {name: column.copy() for name, column in table.idle.items()}
    future = {name: column + table.releasing[name] for name, column in table.idle.items()}
    queues: dict[str, Resources] = {name: dict(state.record.allocated) for name, state in session.queues.items()}

    def count(job: JobState, task: Task, sign: int) -> None:
        sums = queues.get(job.queue, {})
        for name, amount in task.cls.request.items():
            sums[name] = sums.get(name, 0) + sign * amount

    for job in jobs:
        for task in job.job.nominees:
            count(job, task, -1)
        for where, change in ((job.placed, (idle, future)), (job.nominated, (future,))):
            for task, row in where.values():
                count(job, task, 1)
                for columns in change:
                    for name, amount in task.cls.needs:
                        columns[name][row] -= amount
        for task in job.evicted.values():
            count(job, task, -1)
            for name, amount in task.cls.needs:
                future[name][table.row[task.node]] += amount
    for name, column in idle.items():
        assert np.array_equal(session.room.idle[name], column), name
        assert np.array_equal(session.room.future[name], future[name]), name
    for name, state in session.queues.items():
        assert _plain(state.allocated) == _plain(queues[name]), name
    bound = {bind.pod for each in transactions for bind in each.binds}
    gone = {victim.pod for each in transactions for victim in each.evictions}
    assert {key for job in jobs for key in job.placed} == bound
    assert {key for job in jobs for key in job.evicted} == gone


def _plain(amounts: Resources) -> Resources:
    return {name: amount for name, amount in amounts.items() if amount}


def excluded(job: str) -> CycleState:
    """The state in which a group is left out from the start."""
    return CycleState(failing={job: Failing("PoisonError", "test", 1, EPOCH + 60 * SECOND)})


def jobs_of(model: ClusterModel) -> list[str]:
    return sorted(model.live)


@relaxed
@given(worlds(), st.data())
def test_a_failing_group_leaves_nothing_behind_and_is_left_out_of_the_next_cycle(
    found: World, data: st.DataObject
) -> None:
    model = found.model()
    live = jobs_of(model)
    if not live:
        return
    policy = POLICIES[data.draw(st.sampled_from(sorted(POLICIES)))]
    poison = Poison(
        data.draw(st.sampled_from(live)), data.draw(st.sampled_from(METHODS)), data.draw(st.integers(1, 12))
    )
    first = decide(model, policy, poison, CycleState())
    assert set(first.verdicts) == set(live), "each has its word"
    if not poison.raised:
        assert not first.outcome.errors
        return
    assert first.outcome.errors
    assert all("PoisonError" in error.text and "Traceback" in error.trace for error in first.outcome.errors)
    failing = first.outcome.state.failing
    if poison.method in ("preemptable", "reclaimable"):
        assert not failing, "a vote is the fault of either, and neither is left out for it"
        return
    assert set(failing) == {poison.job}, "nobody else is left out"
    verdict = first.verdicts[poison.job]
    assert verdict.scheduled or isinstance(verdict.reason, EngineError)
    # The next cycle, on the same cluster: the same as had it never been asked about.
    raised = poison.raised
    memo = first.outcome.memo if not first.transactions else None
    again = decide(model, policy, poison, first.outcome.state, memo)
    assert poison.raised == raised, "it is not even asked about"
    without = decide(model, policy, Poison("", ""), excluded(poison.job))
    assert again.but(poison.job) == without.but(poison.job)
    assert again.outcome.next_wake is not None
    assert again.outcome.next_wake <= failing[poison.job].until


@relaxed
@given(worlds(), st.data())
def test_with_a_group_that_fails_before_it_has_a_part_in_anything_all_else_is_as_without_it(
    found: World, data: st.DataObject
) -> None:
    model = found.model()
    live = jobs_of(model)
    if not live:
        return
    job = data.draw(st.sampled_from(live))
    policy = data.draw(st.sampled_from(sorted(WITHOUT_A_PART)))
    without = decide(model, POLICIES[policy], Poison("", ""), excluded(job)).but(job)
    for method in WITHOUT_A_PART[policy]:
        poison = Poison(job, method)
        found_so = decide(model, POLICIES[policy], poison, CycleState())
        if poison.raised:
            assert found_so.but(job) == without, (policy, method)


def crowd() -> ClusterModel:
    """A low group that stands in the way of two high ones."""
    objects: list[Any] = [priority_class("low", 1), priority_class("high", 100), queue(), node("n", "2")]
    objects += [group("low", 1, priority_class_name="low"), *members("low", 2, on="n")]
    for at, name in enumerate("ab", start=1):
        objects += [group(name, 2, at=at, priority_class_name="high"), *members(name, 2, at=at)]
    return world(objects)


def beneficiaries(found: Found) -> set[str]:
    return {eviction.beneficiary for each in found.transactions for eviction in each.evictions}


def test_every_way_to_fail_is_met_and_costs_others_nothing() -> None:
    """The group that comes first fails, in every method: the second gets the room."""
    met = set()
    for name, policy in sorted(POLICIES.items()):
        for method in METHODS:
            for victim in ("ns/a", "ns/low"):
                poison = Poison(victim, method)
                found = decide(crowd(), policy, poison, CycleState())
                if poison.raised:
                    met.add((method, victim))
                gone = beneficiaries(found)
                if victim == "ns/a" and poison.raised:
                    if not gone:  # what it was promised on its way in is free from the next cycle on
                        gone = beneficiaries(decide(crowd(), policy, poison, found.outcome.state))
                    # Whether it may run, and where else, is asked when its room is made already; and an undo that
                    # raises leaves the room to whoever's plan it was, if that is whole.
                    assert len(gone) == 1, (name, method)
                    assert gone == {"ns/b"} or method in ("job_ready", "removed", "undo"), (name, method)
                if victim == "ns/low" and method in ("preemptable", "removed"):
                    assert method != "removed" or set(found.outcome.state.failing) <= {victim}
                    assert not gone, "it is no victim as long as nobody knows what may be evicted"
    assert {method for method, _ in met} >= set(METHODS) - {"reclaimable", "job_pipelined"}


def test_the_pause_grows_while_a_group_fails_and_ends_with_its_success() -> None:
    policy, poison = POLICIES["everything"], Poison("ns/a", "job_valid")
    model, state, now = crowd(), CycleState(), EPOCH
    pauses = []
    for _ in range(12):
        with mock.patch.object(Poisonous, "poison", poison):
            steps = cycle(take_snapshot(model, now, state), policy, Memo(), NullObserver())
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    state = end.value.state
                    break
        pauses.append((state.failing["ns/a"].until - now) // SECOND)
        now = state.failing["ns/a"].until
    assert pauses == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]
    found = decide(model, policy, Poison("", ""), excluded("ns/a"))
    assert set(found.outcome.state.failing) == {"ns/a"}, "not before its time"
    late = CycleState(failing={"ns/a": Failing("PoisonError", "test", 9, EPOCH)})
    assert not decide(model, policy, Poison("", ""), late).outcome.state.failing


def test_a_group_whose_nominations_cannot_be_ended_stops_nobody() -> None:
    """Of `a` a pod is nominated, and there is no room for the other: at the end of the cycle neither waits."""
    waiting = members("a", 2, "2")
    waiting[0].status.nominated_node_name = "n"
    leaving = pod("leaving", "2", on="n")
    leaving.metadata.deletion_timestamp = stamp(60)
    model = world(queue(), node("n", "2"), node("m", "1"), leaving, group("a", 2), waiting, pod("b", at=1))
    met = 0
    for after in range(1, 12):
        poison = Poison("ns/a", "removed", after)
        found = decide(model, with_poison(ALLOCATE), poison, CycleState())
        met += poison.raised
        assert {bind.pod for each in found.transactions for bind in each.binds} == {"ns/b"}
        assert set(found.outcome.state.failing) == ({"ns/a"} if poison.raised else set())
    assert met


def test_a_victim_whose_eviction_cannot_be_taken_back_stops_nobody() -> None:
    """What is evicted for the larger pod of `high` would leave the room of `small` unused."""
    model = world(
        [priority_class("low", 1), priority_class("middle", 50), priority_class("high", 100)],
        [queue("giving"), node("n", "3")],
        group("small", queue="giving", priority_class_name="low"), pod("small-0", of="small", on="n"),
        group("large", queue="giving", priority_class_name="middle"), pod("large-0", "2", of="large", on="n"),
        group("high", queue="giving", priority_class_name="high", at=2), members("high", 2, at=2),
    )  # fmt: skip
    met = 0
    for after in range(1, 20):
        poison = Poison("ns/small", "undo", after)
        found = decide(model, POLICIES["everything"], poison, CycleState())
        met += poison.raised
        assert set(found.outcome.state.failing) <= {"ns/small"}
        nominated = {one.pod for each in found.transactions for one in each.nominations}
        assert nominated == {"ns/high-0", "ns/high-1"}, after
    assert met
