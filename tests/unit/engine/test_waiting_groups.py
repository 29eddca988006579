"""Groups that wait to come in queue: told in time, taken off when they go, left out when work on them fails."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kbatch.api.conditions import merge
from kbatch.api.configuration import parse
from kbatch.api.objects import Affinity, LabelSelector, Pod, PodAffinity, PodAffinityTerm, PodGroup, SubGroup
from kbatch.api.reasons import ClusterTooSmall, QueueClosed, Reason, WaitingInQueue
from kbatch.engine import Memo, Policy, Report, Verdict, build_policy, take_snapshot, verdict_conditions
from kbatch.engine.plugin import NO_UNDO, Plugin, Undo
from kbatch.engine.plugins import BUILTIN
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.node_resources import Rows
from kbatch.model.ages import Ages
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Upsert
from kbatch.model.tasks import Task, TaskClass
from kbatch.times import SECOND
from tests.unit.engine.worlds import (
    EPOCH,
    EVERYTHING,
    Decisions,
    Simulation,
    decide,
    group,
    members,
    node,
    pod,
    policy,
    priority_class,
    queue,
    run,
    stamp,
    world,
)


def full(*more: Any) -> ClusterModel:
    """A cluster without room, in which these wait."""
    return world(queue(), node("n", "2"), pod("runs", "2", on="n", owner="o"), *more)


# --- numbers ----------------------------------------------------------------------------------------------------------


def waiting(one: PodGroup) -> PodGroup:
    """The group, told that it waits."""
    said = Verdict("", shadow=False, enqueued=False, scheduled=False)
    one.status.conditions = merge((), verdict_conditions(said, 1), stamp(0))
    return one


def test_no_number_is_older_than_half_a_minute_however_many_are_to_be_told_again() -> None:
    many = [(waiting(group(f"g{at:03}")), members(f"g{at:03}", 1, "2")) for at in range(150)]
    model = full(*(obj for one, pods in many for obj in (one, *pods)))
    by, found = policy(EVERYTHING), Decisions()
    told: dict[str, int] = {}
    memo, now = Memo(), 0
    for at in range(8):
        if at == 1:
            model.apply(Upsert(group("late", at=1)))
            model.apply(Upsert(pod("late-0", "2", of="late", at=1)))
        found = run(model, by, now=now, memo=memo)
        assert found.outcome is not None
        memo = found.outcome.memo
        told.update(dict.fromkeys(found.verdicts, now))
        wake = found.outcome.next_wake
        assert at == 0 or wake is not None
        now = 1 if at == 0 or wake is None else (wake - EPOCH) // SECOND
        if now > 30:
            break
    assert set(told.values()) - {1}, "some were told again"
    assert all(at <= 30 for name, at in told.items() if name != "ns/late"), told


def test_numbers_are_told_again_a_few_in_each_cycle_where_something_changes_all_the_time() -> None:
    many = [(waiting(group(f"g{at:03}")), members(f"g{at:03}", 1, "2")) for at in range(150)]
    model = full(*(obj for one, pods in many for obj in (one, *pods)))
    by, memo = policy(EVERYTHING), Memo()
    told: dict[str, int] = {}
    most = oldest = 0
    for now in range(100):
        model.apply(Upsert(pod("other", "1", of="other", at=now)))
        if now % 2:
            model.apply(Delete(Pod, "ns", "other"))
        found = run(model, by, now=now, memo=memo)
        assert found.outcome is not None
        memo = found.outcome.memo
        again = {key for key in found.verdicts if key.startswith("ns/g")}
        most = max(most, len(again) if now else 0)
        told.update(dict.fromkeys(again, now))
        oldest = max(oldest, now - min(told.values()))
    assert most <= 6
    assert 20 <= oldest <= 30


def test_a_group_that_has_come_is_looked_at_once() -> None:
    model, by = full(group("one"), pod("one-0", "2", of="one")), policy(EVERYTHING)
    first = run(model, by)
    assert first.reason("one") == "WaitingInQueue"
    assert first.outcome is not None
    told = group("one")
    told.status.conditions = merge((), verdict_conditions(first.verdicts["ns/one"], 1), stamp(0))
    model.apply(Upsert(told))
    second = run(model, by, memo=first.outcome.memo)
    assert not second.verdicts, "it was told that it waits: that is no news"
    assert second.outcome is not None
    model.apply(Delete(Pod, "ns", "runs"))
    assert run(model, by, memo=second.outcome.memo).binds == {"one-0": "n"}


@pytest.mark.parametrize("objects", [[queue(state="Closed"), pod("one")], [queue(), pod("one", of="gone")]])
def test_pods_of_no_group_never_come_in_queue_and_are_not_told_so(objects: list[Any]) -> None:
    (verdict,) = run(world(node("n"), objects), policy(EVERYTHING)).verdicts.values()
    assert (verdict.shadow, verdict.enqueued, verdict.scheduled) == (True, None, False)


def test_numbers_that_nobody_wants_current_wake_nobody_and_stay_as_they_were_told() -> None:
    model, by = full(waiting(group("behind", at=5)), members("behind", 1, "2")), policy(EVERYTHING)
    memo = Memo()

    def told(now: int) -> tuple[Verdict | None, int | None]:
        nonlocal memo
        found = decide(take_snapshot(model, EPOCH + now * SECOND, numbers_current=False), by, memo)
        assert found.outcome is not None
        memo = found.outcome.memo
        return found.verdicts.get("ns/behind"), found.outcome.next_wake

    first, _ = told(10)
    assert first is not None
    model.apply(Upsert(waiting(group("before"))))
    model.apply(Upsert(pod("before-0", "2", of="before")))
    _, wake = told(11)
    assert told(100) == (None, wake)
    assert wake == EPOCH + by.ageing
    memo = Memo()
    again, _ = told(101)
    assert again is not None
    assert again != first, "one more is ahead of it"
    assert again.reason is not None
    assert first.reason is not None
    assert again.reason.code == first.reason.code


def test_groups_of_one_age_are_told_the_same_whenever_they_are_told() -> None:
    """Else each write of a status would be followed by another, in a cluster in which nothing happens."""
    sim = Simulation(full([obj for name in "bdac" for obj in (group(name), *members(name, 1))]))
    sim.settle()
    found = sim.cycle().verdicts
    ahead = [verdict.reason.ahead for _, verdict in sorted(found.items()) if isinstance(verdict.reason, WaitingInQueue)]
    assert ahead == [0, 1, 2, 3]
    sim.cycle()
    generation = sim.model.generation
    assert sim.cycle().verdicts == found
    assert sim.model.generation == generation, "nothing is left to write"


# --- who is gone ------------------------------------------------------------------------------------------------------


def test_a_group_that_goes_while_the_nodes_change_is_gone() -> None:
    sim = Simulation(full(group("g"), pod("g-0", "2", of="g"), pod("g-1", "1", of="g")))
    for _ in range(3):
        sim.cycle()
    sim.model.apply(Upsert(node("n2", "1", unschedulable=True)))
    sim.model.apply(Delete(PodGroup, "ns", "g"))
    for name in ("g-0", "g-1"):
        sim.model.apply(Delete(Pod, "ns", name))
    found = sim.cycle()
    assert found.outcome is not None
    assert found.outcome.gone == ("ns/g",)
    assert Report({}, whole=False, gone=found.outcome.gone).onto(dict(found.verdicts)) == {}


@pytest.mark.parametrize("apart", [True, False])
def test_one_that_another_has_come_in_before_is_told_why_it_waits(apart: bool) -> None:
    """The room that had come for it is gone, so what is said is what would be said had it never come."""
    waits = members("w", 2, at=5)
    if apart:  # which its only node cannot do, though no sum says so
        alike = LabelSelector(match_labels={"app": "w"})
        term = PodAffinityTerm(topology_key="kubernetes.io/hostname", label_selector=alike)
        for one in waits:
            one.metadata.labels = {"app": "w"}
            one.spec.affinity = Affinity(pod_anti_affinity=PodAffinity(required=(term,)))
    model = full(node("n", "1"), group("w", 2, at=5), waits)
    sim = Simulation(model, policy(EVERYTHING))
    for _ in range(2):  # told that it waits, it gets a row
        sim.cycle()
    sim.model.apply(Upsert(node("n", "6", labels={"kubernetes.io/hostname": "n"})))
    first: list[Any] = [group("first", 3, at=1), *members("first", 3, at=1)]
    for obj in first:
        sim.model.apply(Upsert(obj))
    alone = run(sim.model, sim.policy, now=sim.now)
    found = sim.cycle()
    assert len(found.binds) == 3
    assert found.reason("w") == alone.reason("w") == ("NotEnoughResources" if apart else "WaitingInQueue")
    assert found.outcome is not None
    assert alone.outcome is not None
    assert found.outcome.next_wake == alone.outcome.next_wake


def test_of_a_group_that_comes_and_goes_no_age_is_left() -> None:
    ages = Ages()
    ages.put((5, "old"))
    for at in range(1000):
        ages.put((at, f"g{at % 2}"))
        ages.drop(f"g{at % 2}")
    assert len(ages._heap) < 100
    assert ages.oldest() == (5, "old")


# --- in which order ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preempts", [False, True])
def test_of_many_that_fit_those_come_in_that_are_first(preempts: bool) -> None:
    """Two queues in turn; in a queue by age, and where preempt would evict them again by priority before that."""
    drawn = random.Random(5)
    objects: list[Any] = [
        priority_class("p1", 1),
        priority_class("p2", 10**30),
        queue("a"),
        queue("b"),
        node("n", "16"),
    ]
    ranked: dict[str, list[tuple[int, int, str]]] = {"a": [], "b": []}
    names = [f"g{at:02}" for at in range(60)]
    drawn.shuffle(names)
    for name in names:
        of, level, at = drawn.choice("ab"), drawn.choice([1, 2]), drawn.randrange(4)
        objects.append(group(name, at=at, queue=of, priority_class_name=f"p{level}", min_resources={"cpu": "1"}))
        ranked[of].append((-level if preempts else 0, at, f"ns/{name}"))
    by = policy(EVERYTHING if preempts else EVERYTHING.replace(", preempt", ""))
    found = run(world(objects), by)
    expected = {key for of in "ab" for _, _, key in sorted(ranked[of])[:8]}
    assert {key for key, verdict in found.verdicts.items() if verdict.enqueued} == expected


def test_amounts_beyond_all_columns_are_what_they_are() -> None:
    """Who asks for more than there could be is too large for the cluster, and not for a cap that its queue has not."""
    huge = group("g", 2000)
    huge.spec.sub_groups = (SubGroup(name="w", min_member=2000, template=_template(str(2**53))),)
    small = group("s", min_resources={"memory": "1"})
    found = run(world(queue(capability={"cpu": "3"}), node("n"), huge, small), policy(EVERYTHING))
    assert isinstance(found.verdicts["ns/g"].reason, ClusterTooSmall)
    assert found.verdicts["ns/s"].enqueued


def _template(memory: str) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c", "resources": {"requests": {"memory": memory}}}]}}


# --- what plugins say of them -----------------------------------------------------------------------------------------


def with_plugin(plugin: type[Plugin]) -> Policy:
    text = EVERYTHING.replace("tiers:\n", "tiers:\n- plugins: [{name: extra}]\n")
    return build_policy(parse(text, "test"), {**BUILTIN, "extra": plugin})


class Doorkeeper(Plugin):
    name = "extra"
    agrees = frozenset()

    def job_enqueueable(self, job: JobState) -> Reason | None:
        return QueueClosed("by the plugin") if job.key == "ns/a" else None


class ByJob(Doorkeeper):
    by_job = True


@pytest.mark.parametrize("plugin", [Doorkeeper, ByJob])
def test_a_plugin_keeps_a_group_out_of_queue_however_often_it_is_asked(plugin: type[Plugin]) -> None:
    model = world(queue(), node("n", "4"), group("a"), members("a", 1), group("b"), members("b", 1))
    found = run(model, with_plugin(plugin))
    assert found.reason("a") == "QueueClosed"
    assert list(found.binds) == ["b-0"]


class FailsToPlace(Plugin):
    name = "extra"
    agrees = frozenset()

    def placed(self, task: Task, row: int) -> Undo:
        if task.job == "ns/a":
            raise ValueError("placed")
        return NO_UNDO


class FailsToJudge(Plugin):
    name = "extra"
    agrees = frozenset()

    def predicate(self, cls: TaskClass, rows: Rows) -> None:
        if cls.request["cpu"] == 3000:
            raise ValueError("predicate")


@pytest.mark.parametrize("plugin", [FailsToPlace, FailsToJudge])
@pytest.mark.parametrize("now", [0, 1000])
def test_a_group_that_fails_on_the_emptied_nodes_stops_nobody(plugin: type[Plugin], now: int) -> None:
    """Not even one that asks for just the same: that is tried in its place."""
    pods = [pod("a-0", "3", of="a"), pod("b-0", "2", of="b", at=1), pod("c-0", "2", of="c", at=1)]
    groups = [group("a"), group("b", at=1), group("c", at=1, queue="other")]
    if plugin is FailsToPlace:
        groups.append(group("d", at=2))
        pods.append(pod("d-0", "3", of="d", at=2))
    model = world(queue(), queue("other"), node("n", "4"), pod("runs", "4", on="n", owner="o"), *groups, *pods)
    by = with_plugin(plugin)
    first = run(model, by, now=now)
    assert first.outcome is not None
    assert first.reason("a") == "EngineError"
    assert [error.job for error in first.outcome.errors] == ["ns/a"]
    assert set(first.outcome.state.failing) == {"ns/a"}
    assert first.evicted == ["runs"]
    assert "EngineError" not in {first.reason(one.metadata.name) for one in groups[1:]}
    # It stays out while its pause lasts, and is asked again after that.
    again = run(model, by, now=now, memo=first.outcome.memo, state=first.outcome.state)
    assert again.outcome is not None
    assert not again.outcome.errors
    assert again.reason("a") == "EngineError"
    later = run(model, by, now=now + 2, memo=again.outcome.memo, state=again.outcome.state)
    assert later.outcome is not None
    answered = plugin is FailsToPlace  # of its like the answer is known by then
    assert [error.job for error in later.outcome.errors] == ([] if answered else ["ns/a"])


def test_the_first_that_is_told_counts_those_that_were_told_before() -> None:
    model, by = full(waiting(group("before")), members("before", 1, "2")), policy(EVERYTHING)
    outcome = decide(take_snapshot(model, EPOCH + 10 * SECOND), by, Memo()).outcome
    assert outcome is not None
    model.apply(Upsert(group("next", at=5)))
    model.apply(Upsert(pod("next-0", "2", of="next")))
    reason = decide(take_snapshot(model, EPOCH + 11 * SECOND), by, outcome.memo).verdicts["ns/next"].reason
    assert isinstance(reason, WaitingInQueue)
    assert reason.ahead == 1
