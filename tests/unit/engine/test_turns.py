"""Between two jobs the caller of a cycle gets a turn: it has a Lease to renew, however many jobs wait."""

import gc
import weakref
from typing import Any

import pytest

from kbatch.api.configuration import parse
from kbatch.engine import Memo, NullObserver, Transaction, Turn, Verdict, build_policy, cycle, take_snapshot
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
                parts = (context.session, context.rankings, *context.session.predicates)
                gone = [weakref.ref(each) for each in parts]
                del context, parts
        assert len(gone) == 3
        assert [each() for each in gone] == [None, None, None]
    finally:
        gc.enable()
