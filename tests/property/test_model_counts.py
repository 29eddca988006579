"""What the model counts: amounts of any size, pods whose group or queue is gone, since when a group runs."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kbatch.api.objects import Condition, Container, Pod, PodCondition, PodGroupStatus, PodStatus, timestamp_us
from kbatch.engine import Memo
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Event, Upsert
from kbatch.model.image import build_model, take_image
from kbatch.resources import Resources, add
from tests.examples import examples
from tests.property.test_cluster import events
from tests.unit.engine.worlds import EVERYTHING, group, node, pod, policy, queue, run

AMOUNTS = st.sampled_from(["0", "1", "3Pi", "4Pi", "8Pi"])


@st.composite
def crowds(draw: st.DrawFn) -> list[Pod]:
    """Pods that are alike; a thousand of the largest come to more than 63 bits."""
    containers = [
        {"name": f"c{at}", "resources": {"requests": {"memory": each}}}
        for at, each in enumerate(draw(st.lists(AMOUNTS, min_size=1, max_size=2)))
    ]
    name, of = draw(st.sampled_from("abc")), draw(st.sampled_from(["", "g"]))
    on, scheduler = draw(st.sampled_from(["", "", "n1"])), draw(st.sampled_from(["kube-batch", "kube-batch", "other"]))
    count = draw(st.sampled_from([1, 2, 5, 1100]))
    one = pod("x", of=of, on=on, scheduler=scheduler)
    one = replace(one, spec=replace(one.spec, containers=msgspec.convert(containers, tuple[Container, ...])))
    return [
        replace(one, metadata=replace(one.metadata, name=f"{name}{at}", uid=f"u-{name}{at}")) for at in range(count)
    ]


@settings(deadline=None, max_examples=examples(15))
@given(st.lists(crowds(), min_size=1, max_size=3), st.integers(1, 3), st.sampled_from([None, {"memory": "8Pi"}]))
def test_no_amount_stops_a_cycle_or_overcommits_a_node(
    found: list[list[Pod]], nodes: int, least: dict[str, str] | None
) -> None:
    model = ClusterModel()
    for at in range(nodes):
        model.apply(Upsert(node(f"n{at}", memory="8Pi", pods="2000")))
    model.apply(Upsert(queue()))
    model.apply(Upsert(queue("q")))
    model.apply(Upsert(group("g", 2, min_resources=least)))
    for crowd in found:
        for each in crowd:
            model.apply(Upsert(each))
    decisions = run(model, policy(EVERYTHING))
    more: dict[str, Resources] = {}
    for name, machine in decisions.binds.items():
        more[machine] = add(more.get(machine, {}), model.tasks[f"ns/{name}"].cls.request)
    for machine, asked in more.items():
        record = model.nodes[machine]
        assert not record.closed_by
        for dimension, amount in asked.items():
            assert amount + record.used.get(dimension, 0) <= record.allocatable.get(dimension, 0)


@settings(deadline=None, max_examples=examples(30))
@given(st.lists(events(), max_size=30))
def test_what_a_pod_holds_counts_in_some_queue(stream: list[Event]) -> None:
    model = ClusterModel()
    for event in stream:
        model.apply(event)
        counted = add(*(record.allocated for record in model.queues.values()))
        held = add(
            *(
                task.cls.request
                for task in model.tasks.values()
                if task.job and (task.holds or (task.pending and task.nominated))
            )
        )
        assert counted == {name: amount for name, amount in held.items() if amount}
        again = build_model(take_image(model))
        assert {key: job.queue for key, job in again.jobs.items()} == {
            key: job.queue for key, job in model.jobs.items()
        }


def _queues(model: ClusterModel) -> dict[str, str]:
    return {key: job.queue for key, job in model.jobs.items()}


def at(minute: int) -> str:
    return datetime.fromtimestamp(1_767_225_600 + 60 * minute, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def told(type_: str, minute: int, *, true: bool) -> Condition:
    return Condition(type=type_, status="True" if true else "False", reason="Told", last_transition_time=at(minute))


@settings(deadline=None, max_examples=examples(30))
@given(st.lists(st.tuples(st.sampled_from(["bind", "end", "delete"]), st.integers(0, 5)), max_size=25))
def test_a_group_runs_since_its_first_member_came(steps: list[tuple[str, int]]) -> None:
    """A group of minimum 1, whose members come and go; the scheduler tells of it what is so."""
    model = ClusterModel()
    model.apply(Upsert(node("n1", "99")))
    holding: dict[str, Pod] = {}
    began: int | None = None
    let_in, flipped = 0, 0
    for minute, (what, which) in enumerate(steps, start=1):
        if what == "bind":
            bound = PodCondition(type="PodScheduled", status="True", last_transition_time=at(minute))
            each = pod(f"p{minute}", of="g", on="n1")
            each = replace(each, status=PodStatus(phase="Running", conditions=(bound,)))
            holding[each.metadata.name] = each
            model.apply(Upsert(each))
        elif holding:
            name = sorted(holding)[which % len(holding)]
            gone = holding.pop(name)
            if what == "end":
                model.apply(Upsert(replace(gone, status=replace(gone.status, phase="Failed"))))
            else:
                model.apply(Delete(Pod, "ns", name))
        if bool(holding) != (began is not None):
            began, flipped = (minute, minute) if holding else (None, minute)
            if not holding:
                let_in = minute + 1  # sent back, and let in again
        conditions = told("Enqueued", let_in, true=True), told("Scheduled", flipped, true=began is not None)
        model.apply(Upsert(replace(group("g"), status=PodGroupStatus(conditions=conditions))))
        wanted = None if began is None else timestamp_us(at(began))
        assert model.jobs["ns/g"].started == wanted
        assert build_model(take_image(model)).jobs["ns/g"].started == wanted


@settings(deadline=None, max_examples=examples(25))
@given(
    st.integers(1, 4),
    st.integers(1, 4),
    st.lists(st.sampled_from(["delete", "finalize", "withdraw", "end", "nothing"]), max_size=4),
)
def test_a_nominee_that_is_gone_gives_up_its_room(size: int, waits: int, steps: list[str]) -> None:
    """Whatever becomes of the nominee: with the memo of the last cycle the same is decided as without any."""
    model = ClusterModel()
    leaving = pod("leaving", "4", on="n1")
    leaving = replace(leaving, metadata=replace(leaving.metadata, deletion_timestamp=at(9)))
    nominee = pod("nominee", str(size))
    nominee = replace(nominee, status=PodStatus(phase="Pending", nominated_node_name="n1"))
    for obj in (node("n1"), queue(), leaving, nominee, pod("b", str(waits), at=1)):
        model.apply(Upsert(obj))
    memo = Memo()
    for step in ("nothing", *steps):
        if step == "delete":
            model.apply(Delete(Pod, "ns", "nominee"))
        elif "ns/nominee" in model.tasks:
            if step == "finalize":
                nominee = replace(nominee, metadata=replace(nominee.metadata, deletion_timestamp=at(0)))
            elif step == "withdraw":
                nominee = replace(nominee, status=replace(nominee.status, nominated_node_name=""))
            elif step == "end":
                nominee = replace(nominee, status=replace(nominee.status, phase="Failed"))
            model.apply(Upsert(nominee))
        fresh, found = run(model), run(model, memo=memo)
        assert found.transactions == fresh.transactions
        assert found.outcome is not None
        memo = found.outcome.memo
        for nomination in [each for transaction in found.transactions for each in transaction.nominations]:
            task = model.tasks[nomination.pod]
            written = replace(task.pod, status=replace(task.pod.status, nominated_node_name=nomination.node or ""))
            model.apply(Upsert(written))
            nominee = written if nomination.pod == "ns/nominee" else nominee
