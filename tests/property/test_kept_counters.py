"""What is counted of pods on nodes follows them: after whatever happened it is what a first look would count."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kbatch.api.objects import (
    Affinity,
    Container,
    ContainerPort,
    LabelSelector,
    Metadata,
    Node,
    NodeStatus,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)
from kbatch.engine.cooperative import finish
from kbatch.engine.plugins.coupling import Carried, CouplingIndex
from kbatch.engine.plugins.occupancy import Occupancy
from kbatch.engine.plugins.occupants import LEAVING, STANDING, Occupants, occupants_of
from kbatch.engine.plugins.terms import required_terms, who_of
from kbatch.engine.plugins.waiting import Waiting, waiting_of
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Event, Upsert
from kbatch.model.tasks import TaskClass

ZONE = "zone"
APPS = ("a", "b")
NODES = 4


def node(index: int) -> Node:
    return Node(
        metadata=Metadata(name=f"n{index}", labels={ZONE: f"z{index % 2}"}),
        status=NodeStatus(allocatable={"cpu": "8", "pods": "20"}),
    )


def pod(index: int, app: str, where: str, *, apart: bool, foreign: bool, leaving: bool, port: int) -> Pod:
    term = PodAffinityTerm(topology_key=ZONE, label_selector=LabelSelector(match_labels={"app": app}))
    ports = (ContainerPort(container_port=port, host_port=port),) if port else None
    container = Container(
        name="main", image="x", resources=ResourceRequirements(requests={"cpu": "1"}), ports=ports
    )  # fmt: skip
    return Pod(
        metadata=Metadata(
            name=f"p{index}", namespace="ns", uid=f"p{index}", labels={"app": app},
            deletion_timestamp="2026-01-01T00:00:00Z" if leaving else None,
        ),
        spec=PodSpec(
            scheduler_name="other" if foreign else "kube-batch", node_name=where, containers=(container,),
            affinity=Affinity(pod_anti_affinity=PodAffinity(required=(term,))) if apart else None,
        ),
        status=PodStatus(phase="Running" if where else "Pending"),
    )  # fmt: skip


@st.composite
def events(draw: st.DrawFn) -> Event:
    index = draw(st.integers(0, 7))
    what = draw(st.sampled_from(["pod", "pod", "pod", "pod", "end", "node", "no node"]))
    if what == "end":
        return Delete(Pod, "ns", f"p{index}")
    if what == "node":
        return Upsert(node(index % NODES))
    if what == "no node":
        return Delete(Node, "", f"n{index % NODES}")
    where = draw(st.sampled_from(["", *(f"n{at}" for at in range(NODES))]))
    return Upsert(
        pod(
            index, draw(st.sampled_from(APPS)), where, apart=draw(st.booleans()), foreign=draw(st.booleans()),
            leaving=draw(st.booleans()), port=draw(st.sampled_from([0, 0, 80, 81])),
        )
    )  # fmt: skip


def carried(cls: TaskClass) -> Iterator[Carried]:
    for term in required_terms(cls.spec)[1]:
        yield Carried("apart", term.topology_key, who_of(term, cls))


def labels_of(namespace: str) -> dict[str, str]:
    return {"kubernetes.io/metadata.name": namespace}


def index_of(model: ClusterModel, occupants: Occupants, part: int) -> CouplingIndex:
    """An index made anew."""
    found = CouplingIndex(model.table, occupants, part, carried, labels_of)
    for _ in found.meet_all():
        pass
    return found


def told(model: ClusterModel, index: CouplingIndex) -> dict[object, object]:
    """All that an index can be asked, about every class that exists."""
    for _ in index.speaking(model.classes):
        pass
    found: dict[object, object] = {}
    for cls in {task.cls.id: task.cls for task in model.tasks.values()}.values():
        facing = [(tuple(each.counts.tolist()), each.total) for each in index.facing(cls, "apart")]
        found["facing", cls.id] = sorted(facing)
        for at, term in enumerate(required_terms(cls.spec)[1]):
            counter = index.target(term.topology_key, who_of(term, cls))
            found["target", cls.id, at] = counter.counts.tolist(), counter.total
    return found


def ports(model: ClusterModel, occupancy: Occupancy) -> dict[object, object]:
    """On which rows each class finds its host ports taken."""
    rows = np.arange(len(model.table), dtype=np.intp)
    found: dict[object, object] = {}
    for cls in {task.cls.id: task.cls for task in model.tasks.values()}.values():
        for later in (False, True):
            mask = occupancy.ports_taken(cls, rows, later=later)
            found[cls.id, later] = mask.tolist() if mask is not None else None
    return found


@given(st.lists(st.lists(events(), max_size=6), min_size=1, max_size=6), st.data())
def test_counters_follow_the_pods(rounds: list[list[Event]], data: st.DataObject) -> None:
    """Also over sessions that move them and take that back."""
    model = ClusterModel()
    for at in range(NODES):
        model.apply(Upsert(node(at)))
    for happening in rounds:
        for event in happening:
            model.apply(event)
        table = model.table
        kept = finish(occupants_of(model, table))
        fresh = Occupants(model, table)
        finish(fresh.catching_up())
        assert kept.parts == fresh.parts
        moved = [
            (task, data.draw(st.integers(0, len(table) - 1)))
            for task in model.tasks.values() if len(table) and data.draw(st.booleans())
        ]  # fmt: skip
        for part in (STANDING, LEAVING):
            index = kept.take(part, CouplingIndex) or index_of(model, kept, part)
            anew = index_of(model, fresh, part)
            assert told(model, index) == told(model, anew)
            for one in (index, anew):
                for task, row in moved:
                    one.add(task.cls, row)
            assert told(model, index) == told(model, anew)
            assert not any(index.reset())
            kept.give_back(part, index, kept.version)
        table.static_cache["occupants"] = fresh
        told_anew = ports(model, Occupancy(model, table))
        table.static_cache["occupants"] = kept
        occupancy = Occupancy(model, table)
        assert ports(model, occupancy) == told_anew
        for task, row in moved:
            occupancy.move(task.cls, row, 1, stays=False)
        for _ in occupancy.let_go():
            pass
        _check_waiting(model)


def _check_waiting(model: ClusterModel) -> None:
    kept, anew = waiting_of(model, model.table), Waiting(model)
    for cls in {task.cls.id: task.cls for task in model.tasks.values()}.values():
        for term in required_terms(cls.spec)[1]:
            assert kept.of(who_of(term, cls)) == anew.of(who_of(term, cls))
