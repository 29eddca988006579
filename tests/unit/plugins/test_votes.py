"""Who may be whose victim, plugin by plugin: each asked by itself, through a session on a small cluster."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import pytest

from kbatch.api.objects import AnyObject, Job, JobSpec, Metadata, Pod, PodTemplate, PriorityClass
from kbatch.api.reasons import NotEnoughTasks
from kbatch.engine import take_snapshot
from kbatch.engine.plugin import Plugin, Preemptor, Unit, Vote, dominant_ordinal, ordinal
from kbatch.engine.plugins.conformance import Conformance
from kbatch.engine.plugins.drf import Drf
from kbatch.engine.plugins.gang import Gang
from kbatch.engine.plugins.priority import Priority
from kbatch.engine.plugins.proportion import Proportion
from kbatch.engine.session.session import Session
from kbatch.engine.session.statement import Statement
from kbatch.model.shares import dominant_share
from kbatch.resources import total
from tests.unit.engine.worlds import EPOCH, group, members, node, pod, policy, priority_class, queue, world

CLASSES: list[PriorityClass] = [priority_class("low", 1), priority_class("mid", 50), priority_class("high", 100)]


def standing(name: str, count: int, **more: object) -> list[Pod]:
    return [pod(f"{name}-{at}", of=name, on="n1", at=at, **more) for at in range(count)]  # type: ignore[arg-type]


def session(*objects: AnyObject | Sequence[AnyObject]) -> Session:
    model = world([*CLASSES, node("n1", "8")], *(list(part) if isinstance(part, list) else part for part in objects))
    session = Session(take_snapshot(model, EPOCH), policy())
    for _ in session.open():
        pass
    return session


def unit(of: Session, key: str, *names: str, whole: bool = False) -> Unit:
    tasks = tuple(of.model.tasks[f"ns/{name}"] for name in names)
    return Unit(of.job(f"ns/{key}"), tasks, whole, total(task.cls.request for task in tasks))


def preemptor(of: Session, key: str, *names: str, intra: bool = False) -> Preemptor:
    tasks = tuple(of.model.tasks[f"ns/{name}"] for name in names)
    job = of.job(f"ns/{key}")
    request = total(task.cls.request for task in tasks)
    return Preemptor(job, tasks, request, intra=intra, lacks=frozenset(request), held=dict(job.allocated))


def plugin(kind: type[Plugin], of: Session) -> Plugin:
    return kind(kind.Arguments(), of)


@pytest.mark.parametrize(("theirs", "vote"), [("low", Vote.YES), ("mid", Vote.ABSTAIN), ("high", Vote.VETO)])
def test_priority_between_jobs(theirs: str, vote: Vote) -> None:
    found = session(
        queue(), group("a", priority_class_name=theirs), standing("a", 1), group("b", priority_class_name="mid"),
        members("b", 1),
    )  # fmt: skip
    voter = plugin(Priority, found)
    assert voter.preemptable(preemptor(found, "b", "b-0"), unit(found, "a", "a-0")) is vote
    assert voter.reclaimable(preemptor(found, "b", "b-0"), unit(found, "a", "a-0")) is Vote.ABSTAIN


@pytest.mark.parametrize(("theirs", "vote"), [(1, Vote.YES), (5, Vote.VETO), (9, Vote.VETO)])
def test_priority_inside_a_job_is_that_of_the_pods(theirs: int, vote: Vote) -> None:
    found = session(queue(), group("a"), standing("a", 1, priority=theirs), pod("a-9", of="a", priority=5))
    assert (
        plugin(Priority, found).preemptable(preemptor(found, "a", "a-9", intra=True), unit(found, "a", "a-0")) is vote
    )


def test_gang_keeps_minimums_counting_those_that_went_before() -> None:
    found = session(queue(), group("a", 2), standing("a", 4), group("b"), members("b", 1))
    voter, wants = plugin(Gang, found), preemptor(found, "b", "b-0")
    statement = Statement(found, found.job("ns/b"))
    for at, vote in enumerate([Vote.ABSTAIN, Vote.ABSTAIN, Vote.VETO]):
        assert voter.preemptable(wants, unit(found, "a", f"a-{at}")) is vote
        assert voter.reclaimable(wants, unit(found, "a", f"a-{at}")) is vote
        statement.evict(found.job("ns/a"), found.model.tasks[f"ns/a-{at}"], "preempt")
    statement.rollback()
    assert voter.preemptable(wants, unit(found, "a", "a-2")) is Vote.ABSTAIN
    assert voter.preemptable(wants, unit(found, "a", "a-0", "a-1", "a-2", "a-3", whole=True)) is Vote.ABSTAIN


def test_gang_keeps_the_minimum_of_each_role() -> None:
    pods = [pod("m", of="a", on="n1", role="m"), *(pod(f"w{at}", of="a", on="n1", role="w") for at in range(2))]
    found = session(queue(), group("a", 1, roles={"m": 1, "w": 1}), pods, group("b"), members("b", 1))
    voter, wants = plugin(Gang, found), preemptor(found, "b", "b-0")
    assert voter.preemptable(wants, unit(found, "a", "m")) is Vote.VETO
    assert voter.preemptable(wants, unit(found, "a", "w0")) is Vote.ABSTAIN


def test_gang_says_what_is_missing() -> None:
    found = session(
        queue(), group("a", 3), members("a", 2), group("r", 1, roles={"m": 1}), pod("r-0", of="r", role="x")
    )
    voter = plugin(Gang, found)
    assert "2 of 3" in str(getattr(voter.job_valid(found.job("ns/a")), "message", ""))
    assert voter.job_valid(found.job("ns/r")) == NotEnoughTasks(
        0, 1, "m", strays=1, stray="x", lower="subGroups[].minMember"
    )
    assert voter.job_order_key(found.job("ns/a")) < (True,)


@pytest.mark.parametrize(
    ("minimum", "there", "message"),
    [
        (2, {"x": 3}, "0 of 1 pods of role y exist; create 1 more, or lower subGroups[].minMember"),
        (2, {"x": 9}, "0 of 1 pods of role y exist; create 1 more, or lower subGroups[].minMember"),
        (4, {"x": 3}, "0 of 1 pods of role y exist; create 1 more, or lower minMember and subGroups[].minMember"),
        (2, {"x": 1, "y": 1}, "1 of 3 pods of role x exist; create 2 more, or lower subGroups[].minMember"),
        (2, {"x": 2}, "2 of 4 pods exist; create 2 more, or lower subGroups[].minMember"),
        (5, {"x": 3}, "3 of 5 pods exist; create 2 more, or lower minMember"),
        (5, {"x": 3, "y": 1}, "4 of 5 pods exist; create 1 more, or lower minMember"),
    ],
)
def test_gang_names_the_role_whose_pods_are_all_that_lacks(minimum: int, there: dict[str, int], message: str) -> None:
    pods = [pod(f"{role}-{at}", of="r", role=role) for role, count in there.items() for at in range(count)]
    found = session(queue(), group("r", minimum, roles={"x": 3, "y": 1}), pods)
    assert str(getattr(plugin(Gang, found).job_valid(found.job("ns/r")), "message", "")) == message


def held(name: str, count: int, role: str) -> Job:
    """A Job that kbatch holds, of pods with that role in their label."""
    template = PodTemplate(metadata=pod("t", of="r", role=role).metadata, spec=pod("t").spec)
    meta = Metadata(name=name, namespace="ns", uid=name, annotations={"kbatch.dev/suspended": "true"})
    return Job(metadata=meta, spec=JobSpec(suspend=True, parallelism=count, completions=count, template=template))


@pytest.mark.parametrize("made", [True, False])
def test_gang_names_the_role_that_pods_have_missed_whether_or_not_they_are_made_yet(made: bool) -> None:
    strays = held("j", 3, "workers") if not made else [pod(f"r-{at}", of="r", role="workers") for at in range(3)]
    found = session(queue(), group("r", 1, roles={"launcher": 1, "worker": 3}), held("l", 1, "launcher"), strays)
    assert plugin(Gang, found).job_valid(found.job("ns/r")) == NotEnoughTasks(
        0, 3, "worker", strays=3, stray="workers", lower="subGroups[].minMember"
    )
    right = session(
        queue(), group("r", 1, roles={"launcher": 1, "worker": 3}), held("l", 1, "launcher"), held("j", 3, "worker")
    )
    reason = plugin(Gang, right).job_valid(right.job("ns/r"))
    assert isinstance(reason, NotEnoughTasks)
    assert (reason.role, reason.strays) == ("", 0)


def test_conformance_protects_what_kubernetes_runs_on() -> None:
    system = pod("s", of="", on="n1")
    system.metadata.namespace = "kube-system"
    critical = pod("c", on="n1", priority_class_name="system-node-critical")
    found = session(queue(), system, critical, pod("p", on="n1"), group("b"), members("b", 1))
    voter, wants = plugin(Conformance, found), preemptor(found, "b", "b-0")
    for key, vote in (("kube-system/s", Vote.VETO), ("ns/c", Vote.VETO), ("ns/p", Vote.ABSTAIN)):
        task = found.model.tasks[key]
        victim = Unit(found.job(task.job), (task,), whole=False, request=task.cls.request)
        assert voter.preemptable(wants, victim) is vote
        assert voter.reclaimable(wants, victim) is vote


def test_drf_lets_the_smaller_share_grow_until_shares_meet() -> None:
    found = session(queue(), group("a"), standing("a", 4), group("b"), members("b", 4))
    voter = plugin(Drf, found)
    assert voter.preemptable(preemptor(found, "b", "b-0", "b-1"), unit(found, "a", "a-0", "a-1")) is Vote.YES
    assert voter.preemptable(preemptor(found, "b", "b-0", "b-1", "b-2"), unit(found, "a", "a-0", "a-1")) is Vote.ABSTAIN
    assert voter.job_order_key(found.job("ns/b")) < voter.job_order_key(found.job("ns/a"))


def test_drf_has_no_opinion_between_priorities() -> None:
    found = session(
        queue(), group("a", priority_class_name="low"), standing("a", 4), group("b", priority_class_name="high"),
        members("b", 1),
    )  # fmt: skip
    assert plugin(Drf, found).preemptable(preemptor(found, "b", "b-0"), unit(found, "a", "a-0")) is Vote.ABSTAIN


def test_proportion_gives_what_is_above_the_share_and_vetoes_the_rest() -> None:
    found = session(
        queue("q1"), queue("q2"), group("a", queue="q1"), standing("a", 8), group("b", queue="q2"), members("b", 8)
    )
    voter, wants = plugin(Proportion, found), preemptor(found, "b", "b-0")
    statement = Statement(found, found.job("ns/b"))
    for at in range(4):
        assert voter.reclaimable(wants, unit(found, "a", f"a-{at}")) is Vote.YES
        statement.evict(found.job("ns/a"), found.model.tasks[f"ns/a-{at}"], "reclaim")
    assert voter.reclaimable(wants, unit(found, "a", "a-4")) is Vote.VETO
    assert voter.preemptable(wants, unit(found, "a", "a-4")) is Vote.ABSTAIN


def test_proportion_respects_reclaimable_and_what_is_lacked() -> None:
    closed = session(
        queue("q1", reclaimable=False), queue("q2"), group("a", queue="q1"), standing("a", 8), group("b", queue="q2"),
        members("b", 8),
    )  # fmt: skip
    assert plugin(Proportion, closed).reclaimable(preemptor(closed, "b", "b-0"), unit(closed, "a", "a-0")) is Vote.VETO
    found = session(
        queue("q1"), queue("q2"), group("a", queue="q1"), standing("a", 8), group("b", queue="q2"),
        members("b", 8, memory="1Gi"),
    )  # fmt: skip
    wants = preemptor(found, "b", "b-0")
    only_memory = Preemptor(wants.job, wants.tasks, wants.request, lacks=frozenset({"memory"}), held=wants.held)
    assert plugin(Proportion, found).reclaimable(only_memory, unit(found, "a", "a-0")) is Vote.VETO


def test_proportion_orders_queues_by_share_and_says_who_has_had_enough() -> None:
    found = session(
        queue("q1"), queue("q2"), group("a", queue="q1"), standing("a", 5), pod("a-9", of="a"), group("b", queue="q2"),
        members("b", 8),
    )  # fmt: skip
    voter = plugin(Proportion, found)
    assert voter.queue_order_key(found.queue("q2")) < voter.queue_order_key(found.queue("q1"))
    assert voter.overused(found.queue("q2"), found.job("ns/b")) is None
    reason = voter.overused(found.queue("q1"), found.job("ns/a"))
    assert reason is not None
    assert "5" in reason.message
    assert "4" in reason.message


def test_ordinals_order_shares_exactly() -> None:
    shares = [dominant_share({"cpu": top}, {"cpu": whole}) for top in range(1, 9) for whole in (2**53, 2**53 - 1, 7)]
    assert sorted(shares) == sorted(shares, key=ordinal)
    assert len({ordinal(share) for share in shares}) == len(set(shares))
    assert dominant_ordinal({"cpu": 6}, {"cpu": 8}) == ordinal(Fraction(3, 4)), "also where it is not in lowest terms"
