"""What is kept of pods that are gone: nothing."""

from __future__ import annotations

import pytest

from kbatch.api.objects import Pod
from kbatch.engine import Memo, NullObserver, cycle, take_snapshot
from kbatch.model import node_index, tasks
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Upsert
from kbatch.model.image import build_model, take_image
from tests.unit.engine.worlds import node, policy, queue
from tests.unit.plugins.views import pod


def test_classes_go_with_their_pods() -> None:
    model = ClusterModel()
    for number in range(3000):
        model.apply(Upsert(pod("p", nodeSelector={"job": str(number)})))
        model.apply(Delete(Pod, "ns", "p"))
    assert len(model.classes) <= 1001
    list(model.refreshing())
    assert len(model.classes) == 0


def test_one_content_written_in_many_ways_is_one_class() -> None:
    model = ClusterModel()
    keeps = pod("keeps")
    model.apply(Upsert(keeps))
    for number in range(100):
        found = pod("p", containers=[{"name": f"c{number}", "resources": {"requests": {"cpu": "1"}}}])
        model.apply(Upsert(found))
        assert model.tasks["ns/p"].cls is model.tasks["ns/keeps"].cls
        model.apply(Delete(Pod, "ns", "p"))
    assert len(model.classes) == 1
    assert len(model.classes._by_template) <= 32


def test_what_nodes_say_of_classes_goes_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "_UNUSED", 20)
    monkeypatch.setattr(node_index, "_FORGOTTEN", 20)
    by = policy()
    model = ClusterModel()
    model.apply(Upsert(node("n1")))
    model.apply(Upsert(queue()))
    memo = Memo()
    for number in range(200):
        model.apply(Upsert(pod("p", nodeSelector={"job": str(number)})))
        steps = cycle(take_snapshot(model, number), by, memo, NullObserver())
        for _ in steps:
            pass
        model.apply(Delete(Pod, "ns", "p"))
    list(model.refreshing())
    assert len(model.table.static_cache) < 10 * 40


def test_few_changes_are_kept_of_pods_that_are_gone() -> None:
    """Ten thousand gangs: what readers may still ask for is a part of a megabyte, and full after some minutes."""
    model = ClusterModel()
    model.apply(Upsert(node("n1")))
    model.apply(Upsert(queue()))
    classes, groups, nodes = model.classes.coupling_changes, model.changes, model.node_changes
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    for number in range(10_000):
        model.apply(Upsert(pod(f"p{number}", topologySpreadConstraints=[spread | {"maxSkew": 1 + number}])))
        model.apply(Delete(Pod, "ns", f"p{number}"))
    for _ in range(50_000):  # a node's use changes twice with each pod that it runs
        nodes.note("n1")
    assert classes.position == 20_000
    assert groups.position >= 10_000
    for journal in (classes, groups, nodes):
        assert journal.since(journal.position - 4_096) is not None
        assert journal.since(journal.position - 8_193) is None


def selects(name: str, key: str) -> Pod:
    constraint = {
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {key: "1"}},
    }  # fmt: skip
    return pod(name, topologySpreadConstraints=[constraint])


def test_labels_that_no_pod_selects_by_count_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "_IDLE_KEYS", 1)
    model = ClusterModel()
    for found in (pod("a", labels={"x": "1"}), pod("b", labels={"x": "2"}), selects("s", "x"), selects("t", "y")):
        model.apply(Upsert(found))
    model.refresh()
    assert model.tasks["ns/a"].cls is not model.tasks["ns/b"].cls
    model.apply(Delete(Pod, "ns", "s"))
    model.lapse(0)
    model.refresh()
    assert model.classes.selected_keys == {"x", "y"}  # one more may stay
    model.apply(Delete(Pod, "ns", "t"))
    model.lapse(0)
    model.refresh()
    assert model.tasks["ns/a"].cls is model.tasks["ns/b"].cls
    assert model.classes.selected_keys == set()
    assert not model.classes.coupled
    assert len(model.classes) == 1
    model.apply(Upsert(selects("s", "x")))
    model.refresh()
    assert model.tasks["ns/a"].cls is not model.tasks["ns/b"].cls


def test_classes_made_anew_are_numbered_as_before_in_a_model_built_again() -> None:
    model = ClusterModel()
    for found in (pod("first"), pod("b", requests={"cpu": "2"}), pod("a")):
        model.apply(Upsert(found))
    model.apply(Delete(Pod, "ns", "first"))
    again = build_model(take_image(model))
    for each in (model, again):
        each.apply(Upsert(selects("s", "x")))
        each.refresh()
        assert each.tasks["ns/a"].cls.id < each.tasks["ns/b"].cls.id
