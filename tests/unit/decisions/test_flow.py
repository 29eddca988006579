"""A scheduler with the plugin flow, recorded and decided again."""

from __future__ import annotations

from dataclasses import replace

from kbatch.api.configuration import parse
from kbatch.api.objects import Pod, QueueFlow, QueueStatus
from kbatch.decisions.replay import replay
from kbatch.engine import Transaction, build_policy
from kbatch.engine.plugins.flow.state import Flows
from kbatch.model.events import Delete, Upsert
from kbatch.model.usage import Anchor
from kbatch.times import HOUR
from tests.unit.decisions.hearing import Hearing
from tests.unit.scheduler.fakes import group, node, pod, queue

TEXT = """
actions: "enqueue, reclaim, allocate, backfill, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: predicates}, {name: flow, arguments: {halfTime: 1h}}, {name: nodeorder}]
"""


def test_a_log_with_flow_is_decided_again_alike_from_any_cycle_on() -> None:
    heard = Hearing(policy=build_policy(parse(TEXT, "test")), text=TEXT)
    heard.sink.most = 3
    used = queue("used")
    used.status = QueueStatus(flow=QueueFlow(value=8, unlimited_value=8, time="2026-01-01T00:00:00Z"))
    for obj in (queue(), used, node("n", cpu="1")):
        heard.model.apply(Upsert(obj))
    for at in range(3):
        for name in ("default", "used"):
            one = group(f"{name}-{at}")
            one.spec.queue = name
            heard.model.apply(Upsert(one))
            heard.model.apply(Upsert(pod(f"{name}-{at}", group=f"{name}-{at}")))
    order = []
    for _ in range(6):
        found = heard.cycle()
        binds = [bind.pod for each in found if isinstance(each, Transaction) for bind in each.binds]
        order += binds
        for key in binds:
            heard.model.apply(Delete(Pod, *key.split("/")))
        heard.now += HOUR
    kept = heard.state.plugins["flow"]
    assert isinstance(kept, Flows)
    assert kept.queues["used"].value
    assert [name.removeprefix("ns/").partition("-")[0] for name in order[:3]] == ["default"] * 3
    assert len(heard.sink.logs) > 1
    cycles = 0
    for log in heard.sink.logs:
        for again in replay(log):
            assert again.difference is None, again
            cycles += 1
    assert cycles >= 5


def test_a_state_that_no_cycle_has_left_begins_a_log_of_its_own() -> None:
    """As when a plugin that is switched on begins with what a ConfigMap has kept of it."""
    heard = Hearing(policy=build_policy(parse(TEXT, "test")), text=TEXT)
    for obj in (queue(), node("n", cpu="1"), pod("first")):
        heard.model.apply(Upsert(obj))
    heard.cycle()
    heard.cycle()
    heard.state = replace(heard.state, plugins={"flow": Flows({"used": Anchor(time=1)})})
    heard.cycle()
    assert heard.sink.endings == ["a state of unknown origin"]
    assert len(heard.sink.logs) == 2
    for log in heard.sink.logs:
        assert all(again.difference is None for again in replay(log))
