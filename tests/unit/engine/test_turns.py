"""Between two jobs the caller of a cycle gets a turn: it has a Lease to renew, however many jobs wait."""

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from kbatch.api.configuration import DEFAULT, parse
from kbatch.api.objects import SubGroup
from kbatch.engine import Memo, NullObserver, Transaction, Turn, Verdict, build_policy, cycle, take_snapshot
from kbatch.engine.cycle import _context
from kbatch.engine.preemption.prospective import MOST_FORESEEN, awaited
from kbatch.engine.reservation.resume import resume
from kbatch.engine.session.session import Session
from kbatch.model import division_again
from kbatch.model.division import dividing
from kbatch.model.events import Upsert
from tests.unit.engine.worlds import group, members, node, pod, queue, world

TIERS = "tiers:\n- plugins: [{name: priority}, {name: gang}, {name: drf}, {name: predicates}, {name: proportion}]\n"


@pytest.mark.parametrize("action", ["allocate", "reclaim", "preempt"])
def test_each_job_that_is_tried_in_vain_gives_its_caller_a_turn(action: str) -> None:
    model = world(
        queue("q1"), queue("q2"), node("n1", "4"), pod("held", on="n1", cpu="4", queue="q1"),
        [group(f"g{index}", 2, queue="q2" if action == "reclaim" else "q1") for index in range(20)],
        [one for index in range(20) for one in members(f"g{index}", 2, cpu="3")],
    )  # fmt: skip
    policy = build_policy(parse(f'actions: "{action}"\n{TIERS}', "test"))
    steps = list(cycle(take_snapshot(model, 0), policy, Memo(), NullObserver()))
    said = [step.group for step in steps if isinstance(step, Verdict)]
    assert sorted(said) == sorted(f"ns/g{index}" for index in range(20)), "one word on each"
    assert sum(isinstance(step, Turn) for step in steps) >= 20


@pytest.mark.parametrize(("action", "more"), [("enqueue", 6), ("reclaim", 3)])
def test_a_large_gang_is_tried_in_pieces(action: str, more: int) -> None:
    """Turns come while it is placed, be it on the emptied nodes or in room that is set aside, and not only after; and
    while it is taken from the emptied nodes again.
    """
    turns = {}
    for count in (1, 1501):
        free = "1501" if action == "reclaim" else "0"
        model = world(
            [queue(f"q{at}") for at in (1, 2, 3)], node("n1", "2000", pods="9000"), node("n2", free, pods="9000"),
            pod("held", on="n1", cpu="2000", queue="q2"), group("wish", queue="q3"), pod("wish", "9000", of="wish"),
            group("g", count, queue="q1"), members("g", count),
        )  # fmt: skip
        policy = build_policy(parse(f'actions: "{action}, allocate"\n{TIERS}', "test"))
        context = _context(take_snapshot(model, 0), policy, Memo())
        list(context.session.open())
        list(resume(context.session, context.rankings))
        turns[count] = sum(isinstance(step, Turn) for step in policy.action_types[0]().run(context))
        context.close()
    assert turns[1501] >= turns[1] + more


def test_a_cycle_leaves_nothing_for_the_garbage_collector() -> None:
    """Session and plugins hold one another: were they not let go of, all that a cycle makes would wait for it."""
    model = world(
        queue(), node("n1", "4"), group("g", 2), members("g", 2), group("late", 9), members("late", 9, at=1),
    )  # fmt: skip
    policy = build_policy(parse(f"actions: allocate\n{TIERS}", "test"))
    steps = cycle(take_snapshot(model, 0), policy, Memo(), NullObserver())
    gone: list[weakref.ref[object]] = []
    gc.disable()
    try:
        for step in steps:
            if isinstance(step, Transaction):
                inner: Any = steps.gi_yieldfrom  # type: ignore[attr-defined]  # of CPython
                context = inner.gi_frame.f_locals["context"]
                parts = (context.session, context.rankings, *context.session.plugins.predicates)
                gone = [weakref.ref(each) for each in parts]
                del context, parts
        assert len(gone) == 3
        assert [each() for each in gone] == [None, None, None]
    finally:
        gc.enable()


def test_pods_to_come_are_looked_at_in_pieces() -> None:
    template = {"spec": {"schedulerName": "kube-batch", "containers": [{}]}}
    large = group("g", MOST_FORESEEN)
    large.spec.sub_groups = (SubGroup(name="w", min_member=MOST_FORESEEN, template=template),)
    model = world(queue(), node("n1", pods="30000"), large)
    snapshot = take_snapshot(model, 0)
    assert list(snapshot.open()) is not None
    session = Session(snapshot, build_policy(parse(f"actions: allocate\n{TIERS}", "test")))
    job = session.job("ns/g")
    steps = list(awaited(session, job, list(job.job.to_come)))
    assert len(steps) == MOST_FORESEEN // 500


@pytest.mark.parametrize(("count", "evicted"), [(MOST_FORESEEN, 2), (MOST_FORESEEN + 1, 0)])
def test_no_room_is_made_in_advance_for_more_pods_than_can_be_foreseen(count: int, evicted: int) -> None:
    """Surplus goes for a group whose pods are yet to be made, unless there are too many to place them in advance."""
    template = {"spec": {"schedulerName": "kube-batch", "containers": [{"resources": {"requests": {"cpu": "1m"}}}]}}
    large = group("g", count, min_resources={"cpu": f"{count}m"}, at=9)
    large.spec.sub_groups = (SubGroup(name="w", min_member=count, template=template),)
    model = world(
        queue(), node("n1", "4001m", pods="9000"), group("a", 2, min_resources={"cpu": "2"}),
        members("a", 4, on="n1"), large,
    )  # fmt: skip
    steps = list(cycle(take_snapshot(model, 0), build_policy(DEFAULT), Memo(), NullObserver()))
    (said,) = [step for step in steps if isinstance(step, Verdict) and step.group == "ns/g"]
    assert said.enqueued is bool(evicted)
    assert sum(len(step.evictions) for step in steps if isinstance(step, Transaction)) == evicted


def test_shares_are_divided_in_pieces_before_the_session() -> None:
    """Queues whose work may use sets of nodes that overlap: a division that takes long is not done in one."""
    nodes = [
        node(f"n{at}", f"{(1 + at % 3) * (1 + at)}", labels={f"l{at}": "x", f"l{at - 1}": "x"}) for at in range(12)
    ]
    model = world(
        nodes, [queue(f"q{at}", 1 + at % 4) for at in range(12)],
        [pod(f"p{at}-{one}", queue=f"q{at}", node_selector={f"l{at}": "x"}) for at in range(12) for one in range(30)],
    )  # fmt: skip
    snapshot = take_snapshot(model, 0)
    list(model.refreshing())
    generation = model.generation
    turns = sum(1 for _ in snapshot.open())
    assert turns >= 5, "a turn for each flow"
    assert model.generation == generation
    assert not list(model.dividing()), "the session finds it done"
    deserved = model.deserved()
    assert sum(share["cpu"] for share in deserved.values()) == model.capacity["cpu"]


def test_shares_that_were_divided_while_events_came_are_divided_anew() -> None:
    model = world(
        queue("a"), queue("b"), node("n1", labels={"x": "y"}), node("n2"),
        [pod(f"p{at}", queue="a", node_selector={"x": "y"}) for at in range(9)],
        [pod(f"r{at}", queue="b") for at in range(9)],
    )  # fmt: skip
    steps = model.dividing()
    next(steps)
    model.apply(Upsert(node("n3")))
    list(steps)
    assert list(model.dividing()), "what was found is not of this model"
    assert model.deserved() == {"a": {"cpu": 4000}, "b": {"cpu": 8000}}


def test_shares_are_divided_once_until_something_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    divided: list[int] = []

    def counting(*given: Any) -> Iterator[Any]:
        divided.append(1)
        return dividing(*given)

    monkeypatch.setattr(division_again, "dividing", counting)
    model = world(queue("a"), queue("b"), node("n1"), pod("p", queue="a", cpu="9"), pod("q", queue="b", cpu="9"))
    policy = build_policy(parse(f'actions: "allocate, reclaim"\n{TIERS}', "test"))
    for now in range(3):
        list(cycle(take_snapshot(model, now), policy, Memo(), NullObserver()))
    assert divided == [1]
    model.apply(Upsert(node("n2")))
    list(cycle(take_snapshot(model, 3), policy, Memo(), NullObserver()))
    assert divided == [1, 1]
