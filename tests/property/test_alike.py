"""Groups of one pod that are alike are judged as one, and those to which nothing happens as before: who is asked by
itself, in each cycle, gets the same.
"""

from __future__ import annotations

import copy
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch.api.objects import PodGroup
from kbatch.engine import Policy
from kbatch.engine.actions import allocate, preempt, reclaim
from kbatch.engine.diagnosis import verdicts
from kbatch.model.events import Delete, Upsert
from tests.examples import examples
from tests.property.test_engine import CLASSES, ONE_TIER, PREEMPT_FIRST, Remembering, World, relaxed
from tests.unit.engine.worlds import EVERYTHING, Decisions, group, node, pod, policy, queue, run

EXPECTED = "kbatch.dev/expected-seconds"
EASY = "{name: backfill, arguments: {mode: easy}}"
FLOW = EVERYTHING.replace("{name: proportion}", "{name: flow, arguments: {infiniteFactor: 1.2}}").replace(
    "{name: drf}, ", ""
)
TEXTS = (EVERYTHING, ONE_TIER, PREEMPT_FIRST, FLOW)


def planning(text: str) -> str:
    """With planned starts."""
    before, actions, after = text.split('"')
    named = actions.split(", ")
    return f"{before}[{', '.join([*(name for name in named if name != 'backfill'), EASY])}]{after}"


POLICIES: list[Policy] = [policy(text) for text in (*TEXTS, *map(planning, TEXTS))]
SHORT, LONG = 5, 500
EVENTS = ("nothing", "time", "much time", "a group", "one ends", "one changes", "a queue")


@st.composite
def many_alike(draw: st.DrawFn) -> World:
    """A few nodes that are nearly full, and groups of one pod of few kinds, in few queues."""
    found = World([*CLASSES])
    cores = draw(st.integers(4, 8))
    names = [f"q{at}" for at in range(draw(st.integers(1, 3)))]
    for name in names:
        more: dict[str, Any] = {}
        if not draw(st.integers(0, 5)):
            more["capability"] = {"cpu": str(draw(st.integers(2, 8)))}
        found.objects.append(queue(name, draw(st.sampled_from([1, 1, 2])), **more))
    clock = 0
    for at in range(draw(st.integers(1, 3))):
        found.objects.append(node(f"n{at}", str(cores)))
        for index in range(draw(st.integers(0, 3))):
            clock += 1
            found.objects += draw(ones(f"r{at}-{index}", 2, draw(st.sampled_from(names)), clock, on=f"n{at}"))
    for index in range(draw(st.integers(3, 12))):
        clock += draw(st.integers(0, 1))
        size = draw(st.sampled_from([1, cores // 2, cores - 1, cores - 1, cores]))
        found.objects += draw(ones(f"g{index}", size, draw(st.sampled_from(names)), clock))
    return found


@st.composite
def ones(draw: st.DrawFn, name: str, cores: int, where: str, at: int, on: str = "") -> list[Any]:
    """A group of one pod."""
    more: dict[str, Any] = {}
    if not draw(st.integers(0, 4)):
        more["priority_class_name"] = draw(st.sampled_from(["low", "high"]))
    if not draw(st.integers(0, 4)):
        more["disruption"] = draw(st.sampled_from(["Whole", "Never"]))
    if not draw(st.integers(0, 6)):
        more["lifetime_seconds"] = draw(st.sampled_from([0, 100]))
    if not draw(st.integers(0, 6)):
        more["schedule_timeout_seconds"] = 3
    made = group(name, 1, at=at, queue=where, **more)
    if draw(st.integers(0, 3)):
        made.metadata.annotations = {EXPECTED: str(draw(st.sampled_from([SHORT, LONG])))}
    return [made, pod(f"{name}-0", str(cores), of=name, at=at, on=on)]


class ByItself(Remembering):
    """A simulation that compares each cycle with one in which each group is asked by itself."""

    def cycle(self) -> Decisions:
        alike = run(self.model, self.policy, now=self.now, state=self.state)
        with ExitStack() as stack:
            for action in (allocate, preempt, reclaim):
                stack.enter_context(patch.object(action, "tells_of_others", lambda *_: False))
            stack.enter_context(patch.object(verdicts, "_told_alike", lambda *_: None))
            alone = run(self.model, self.policy, now=self.now, state=self.state)
        assert alike.outcome is not None
        assert alone.outcome is not None
        assert alike.transactions == alone.transactions, "decisions depend on who is alike"
        assert alike.verdicts == alone.verdicts, "verdicts depend on who is alike"
        assert (alike.outcome.state, alike.outcome.next_wake) == (alone.outcome.state, alone.outcome.next_wake)
        assert alike.outcome.planned == alone.outcome.planned
        return super().cycle()


@settings(relaxed, max_examples=examples(40))
@given(many_alike(), st.sampled_from(POLICIES), st.data())
def test_who_is_alike_is_judged_alike(found: World, by: Policy, data: st.DataObject) -> None:
    """And with the memo as without, as groups come, go and change while others rest."""
    sim = ByItself(found.model(), by)
    for round_ in range(6):
        sim.settle()
        what = data.draw(st.sampled_from(EVENTS))
        waiting = sorted(job.key for job in sim.model.live.values() if job.group is not None and not job.holding)
        if what == "time":
            sim.tick()
        elif what == "much time":
            sim.now += 40
        elif what == "a group":
            for obj in data.draw(ones(f"new{round_}", data.draw(st.sampled_from([1, 4, 7])), "q0", 100 + round_)):
                sim.model.apply(Upsert(obj))
        elif what == "one ends":
            ends = sim.running()[:1]
            for name in ends:
                sim.model.apply(Delete(type(sim.model.tasks[f"ns/{name}"].pod), "ns", name))
        elif what == "one changes" and waiting:
            group_ = copy.deepcopy(sim.model.jobs[data.draw(st.sampled_from(waiting))].group)
            assert isinstance(group_, PodGroup)
            group_.spec.priority_class_name = "high"
            sim.model.apply(Upsert(group_))
        elif what == "a queue":
            sim.model.apply(Upsert(queue("q0", 3, state=data.draw(st.sampled_from(["Open", "Closed"])))))
