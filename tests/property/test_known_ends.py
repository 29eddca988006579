"""When pods are expected to end is kept from cycle to cycle: whatever happened, it is what a first look would find."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbatch.api.names import EXPECTED_SECONDS_ANNOTATION, GROUP_NAME_ANNOTATION
from kbatch.api.objects import (
    Container,
    Job,
    JobSpec,
    JobStatus,
    Metadata,
    Node,
    NodeStatus,
    OwnerReference,
    Pod,
    PodGroup,
    PodGroupSpec,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)
from kbatch.engine.carryover import known_ends
from kbatch.engine.carryover.known_ends import KnownEnds
from kbatch.engine.state.timeline import releases
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Event, Unreadable, Upsert
from kbatch.model.expected import Expected
from kbatch.times import SECOND

NODES = 3
NAMES = ("a", "b", "c")
START = 1_800_000_000 * SECOND
LEARNED = 40 * SECOND


def said(seconds: int) -> dict[str, str]:
    return {EXPECTED_SECONDS_ANNOTATION: str(seconds)} if seconds else {}


def stamp(seconds: int) -> str:
    return f"2027-01-15T08:{seconds // 60:02}:{seconds % 60:02}Z"


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    index = draw(st.integers(0, 5))
    name = draw(st.sampled_from(NAMES))
    owner = draw(st.booleans())
    references = (OwnerReference(kind="Job", name=name, uid=name, controller=True),) if owner else ()
    where = draw(st.sampled_from(["", *(f"n{at}" for at in range(NODES + 1))]))
    wanted = ResourceRequirements(requests={"cpu": "1"})
    return Pod(
        metadata=Metadata(
            name=f"p{index}", namespace="ns", uid=f"p{index}", owner_references=references,
            creation_timestamp=stamp(draw(st.integers(0, 30))),
            annotations=said(draw(st.sampled_from([0, 0, 5, 20]))) | {GROUP_NAME_ANNOTATION: name},
            deletion_timestamp=stamp(9) if draw(st.integers(0, 5)) == 0 else None,
        ),
        spec=PodSpec(
            scheduler_name=draw(st.sampled_from(["kube-batch", "kube-batch", "other"])), node_name=where,
            active_deadline_seconds=draw(st.sampled_from([None, None, 7, 30])),
            containers=(Container(name="main", image="x", resources=wanted),),
        ),
        status=PodStatus(phase=draw(st.sampled_from(["Pending", "Running", "Running", "Succeeded"]))),
    )  # fmt: skip


@st.composite
def events(draw: st.DrawFn) -> Event:
    what = draw(st.sampled_from(["pod", "pod", "pod", "group", "job", "end", "no group", "no job", "node", "closed"]))
    name, index = draw(st.sampled_from(NAMES)), draw(st.integers(0, NODES))
    if what == "pod":
        return Upsert(draw(pods()))
    if what == "group":
        notes = said(draw(st.sampled_from([0, 10, 25])))
        return Upsert(
            PodGroup(
                metadata=Metadata(name=name, namespace="ns", uid=name, annotations=notes),
                spec=PodGroupSpec(min_member=1),
            )
        )
    if what == "job":
        deadline, notes = draw(st.sampled_from([None, 12, 50])), said(draw(st.sampled_from([0, 15])))
        return Upsert(
            Job(
                metadata=Metadata(name=name, namespace="ns", uid=name, annotations=notes),
                spec=JobSpec(active_deadline_seconds=deadline), status=JobStatus(start_time=stamp(1)),
            )
        )  # fmt: skip
    if what == "end":
        return Delete(Pod, "ns", f"p{draw(st.integers(0, 5))}")
    if what == "no group":
        return Delete(PodGroup, "ns", name)
    if what == "no job":
        return Delete(Job, "ns", name)
    if what == "closed":
        return Unreadable(Pod, "ns", "p0", "p0", f"n{index}", "it cannot be read")
    if index == NODES:
        return Delete(Node, "", "n0")
    return Upsert(node(index))


def node(index: int) -> Node:
    return Node(metadata=Metadata(name=f"n{index}"), status=NodeStatus(allocatable={"cpu": "8", "pods": "20"}))


def forget_changed_nodes(model: ClusterModel) -> None:
    """Let the model remember the last change of a node alone, as after thousands of them."""
    model.node_changes._most, model.node_changes._alive = 1, ()


def running(name: str, index: int, seconds: int) -> Pod:
    return Pod(
        metadata=Metadata(
            name=name, namespace="ns", uid=name, annotations=said(seconds) | {GROUP_NAME_ANNOTATION: name}
        ),
        spec=PodSpec(scheduler_name="kube-batch", node_name=f"n{index}"),
        status=PodStatus(phase="Running", start_time=stamp(0)),
    )


def catch_up(known: KnownEnds, model: ClusterModel, now: int, *, learns: bool) -> list[tuple[int, int, str, int]]:
    table = model.table
    by = (lambda group: LEARNED if group.key == "ns/a" else None) if learns else None
    expected = Expected(model, now, by)
    for _ in known.catching_up(model, table, now, expected, (model.changes.position, model.node_changes.position)):
        pass
    ordered = [*known.near, *known.far()]
    assert ordered == sorted(ordered)
    assert len(known) == len(ordered)
    assert all(end.at < known.horizon for end in known.near)
    for row, record in enumerate(table.records):
        of = [end for end in ordered if end.row == row]
        assert sorted(known.of(record.tasks.values())) == (of if table.open[row] else [])
    return [(end.at, end.row, end.key, id(end.task)) for end in ordered]


@pytest.fixture(scope="module", autouse=True)
def few_in_order() -> Iterator[None]:
    """Of these small worlds, too, not all ends are put in order at once."""
    with mock.patch.object(known_ends, "_NEAR", 1):
        yield


@given(
    st.lists(st.tuples(st.integers(-3, 20), st.lists(events(), max_size=5), st.booleans()), min_size=1, max_size=8),
    st.booleans(),
    st.booleans(),
)
def test_known_ends_follow_the_cluster(
    rounds: list[tuple[int, list[Event], bool]], learns: bool, forgets: bool
) -> None:
    model, known, now = ClusterModel(), KnownEnds(), START
    if forgets:
        forget_changed_nodes(model)
    for index in range(NODES):
        model.apply(Upsert(node(index)))
    for passed, happening, assumes in rounds:
        now += passed * SECOND
        for event in happening:
            model.apply(event)
        waiting = next((task for task in model.tasks.values() if task.pending and task.job), None)
        if assumes and waiting is not None:
            model.assume(waiting.key, waiting.uid, "n1")
        fresh = catch_up(KnownEnds(), model, now, learns=learns)
        assert catch_up(known, model, now, learns=learns) == fresh


def test_another_word_of_a_pod_that_no_group_has_counts() -> None:
    model, known = ClusterModel(), KnownEnds()
    model.apply(Upsert(node(0)))
    for seconds in (10, 20):
        other = Pod(
            metadata=Metadata(name="p", namespace="ns", uid="p", annotations=said(seconds)),
            spec=PodSpec(scheduler_name="other", node_name="n0"),
            status=PodStatus(phase="Running", start_time=stamp(0)),
        )
        model.apply(Upsert(other))
        assert [at for at, *_ in catch_up(known, model, START, learns=False)] == [START + seconds * SECOND]


def test_a_clock_that_goes_back_takes_back_that_a_pod_was_late() -> None:
    model, known = ClusterModel(), KnownEnds()
    model.apply(Upsert(node(0)))
    late = Pod(
        metadata=Metadata(name="p", namespace="ns", uid="p", annotations=said(10)),
        spec=PodSpec(scheduler_name="kube-batch", node_name="n0"),
        status=PodStatus(phase="Running", start_time=stamp(0)),
    )
    model.apply(Upsert(late))
    for passed, end in ((15, 16), (5, 10)):
        found = catch_up(known, model, START + passed * SECOND, learns=False)
        assert [at for at, *_ in found] == [START + end * SECOND]


def test_more_changed_nodes_than_are_remembered_make_nobody_look_at_all_groups() -> None:
    model, known = ClusterModel(), KnownEnds()
    forget_changed_nodes(model)
    for index in range(NODES):
        model.apply(Upsert(node(index)))
    for index, name in enumerate(NAMES):
        model.apply(Upsert(running(name, index, 10)))
    catch_up(known, model, START, learns=False)
    for index in range(NODES):
        model.apply(Upsert(node(index)))
        model.apply(Upsert(running("a", index, 20)))
        model.apply(Delete(Pod, "ns", "a"))
    with mock.patch.object(known_ends, "releases", wraps=releases) as looked:
        found = catch_up(known, model, START, learns=False)
    assert [key for _, _, key, _ in found] == ["ns/b", "ns/c"]
    assert not looked.called
