"""One plugin of a session over a small cluster, and what it answers, by node name."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
import numpy as np

from kbatch.api.configuration import parse
from kbatch.api.node_reasons import NodeReason
from kbatch.api.objects import Node, Pod
from kbatch.engine import build_policy, take_snapshot
from kbatch.engine.plugin import Plugin
from kbatch.engine.session.session import Session
from kbatch.engine.state.node_resources import Rows
from kbatch.model.cluster import ClusterModel
from kbatch.model.tasks import TaskClass

_P = TypeVar("_P", bound=Plugin)


def conf(plugin: str, **arguments: Any) -> str:
    lines = [f"      {name.replace('__', '.')}: {value!r}" for name, value in arguments.items()]
    told = "\n".join(["    arguments:", *lines]) if lines else ""
    return f'actions: "allocate"\ntiers:\n- plugins:\n  - name: gang\n  - name: {plugin}\n{told}\n'


def session_of(model: ClusterModel, text: str) -> Session:
    session = Session(take_snapshot(model, 0), build_policy(parse(text, "test.yaml")))
    for _ in session.open():
        pass
    return session


def plugin_of(session: Session, kind: type[_P]) -> _P:
    return next(plugin for plugin in (*session.plugins.predicates, *session.plugins.scores) if isinstance(plugin, kind))


def class_of(session: Session, pod: str) -> TaskClass:
    return session.model.tasks[pod].cls


def rows_of(session: Session, cls: TaskClass, *, later: bool = False) -> Rows:
    session.room.ensure(cls)
    return Rows(session.room, np.arange(len(session.nodes), dtype=np.intp), cls, whole=True, later=later)


def refusals(session: Session, plugin: Plugin, pod: str, *, later: bool = False) -> dict[str, str]:
    """For each node why it does not take the pod; nodes that do are left out."""
    cls = class_of(session, pod)
    codes = plugin.predicate(cls, rows_of(session, cls, later=later))
    reasons = plugin.reasons_of(cls)
    found: dict[str, str] = {}
    for row, code in enumerate(codes.tolist() if codes is not None else ()):
        if code:
            reason = reasons[code - 1]
            assert isinstance(reason, NodeReason)
            found[session.nodes.names[row]] = reason.short
    return found


def scores(session: Session, plugin: Plugin, pod: str) -> dict[str, int]:
    cls = class_of(session, pod)
    answer = plugin.node_order(cls, rows_of(session, cls))
    assert answer is not None
    return dict(zip(session.nodes.names, answer.tolist(), strict=True))


def node(name: str, labels: dict[str, str] | None = None, **more: Any) -> Node:
    """A ready node of 10 cpu, 100 units of memory and 110 pods, unless `status` says otherwise."""
    status = {"allocatable": {"cpu": "10", "memory": "100", "pods": "110"}, **more.pop("status", {})}
    raw = {"metadata": {"name": name, "labels": {"host": name, **(labels or {})}}, "spec": more, "status": status}
    return msgspec.convert(raw, Node)


def pod(name: str, on: str = "", *, labels: dict[str, str] | None = None, **spec: Any) -> Pod:
    """A pod `ns/name` (or as `namespace` says) of one cpu, unless `requests` says otherwise."""
    requests = spec.pop("requests", {"cpu": "1"})
    meta: dict[str, Any] = {
        "name": name,
        "namespace": spec.pop("namespace", "ns"),
        "uid": f"uid-{name}",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": labels or {},
    }
    if spec.pop("terminating", False):
        meta["deletionTimestamp"] = "2026-01-01T00:10:00Z"
    containers = spec.pop("containers", [{"name": "c"}])
    containers = [{**each, "resources": {"requests": requests}} for each in containers]
    raw = {
        "metadata": meta,
        "spec": {"schedulerName": "kube-batch", "nodeName": on, "containers": containers, **spec},
        "status": {"phase": "Running" if on else "Pending"},
    }
    return msgspec.convert(raw, Pod)
