"""Whoever tells what a queue deserves says what the scheduler decides by, also where not all may use all nodes."""

from __future__ import annotations

from kbatch.api.configuration import DEFAULT
from kbatch.api.objects import Metadata, Queue, QueueSpec, Taint, Toleration
from kbatch.cli.views import queue_rows
from kbatch.engine import build_policy, take_snapshot
from kbatch.engine.session.session import Session
from kbatch.resources import parse_resources
from operators.queue.status import reports
from tests.unit.engine.worlds import node, pod, queue, world

ANYWAY = (Toleration(key="special", operator="Exists"),)


def test_status_table_and_session_agree_where_nodes_are_tainted() -> None:
    model = world(
        queue("a"), queue("b"), queue("c", 2), node("n1"), node("n2", "2"),
        node("n3", taints=(Taint(key="special", effect="NoSchedule"),)),
        [pod(f"{name}{at}", queue=name) for name in "ac" for at in range(8)],
        [pod(f"b{at}", queue="b", tolerations=ANYWAY) for at in range(8)],
    )  # fmt: skip
    snapshot = take_snapshot(model, 0)
    list(snapshot.open())
    session = Session(snapshot, build_policy(DEFAULT))
    decided = {name: state.deserved["cpu"] for name, state in session.queues.items()}
    # By weight b would have 2.5 of 10; it has the 4 behind the taint alone, and the others share what all may use.
    assert decided == {"a": 2000, "b": 4000, "c": 4000}
    said = reports(model)
    assert {name: report.deserved["cpu"] for name, report in said.items()} == decided
    rows = queue_rows(
        Queue(metadata=Metadata(name=name), spec=QueueSpec(), status=report.status()) for name, report in said.items()
    )
    assert {row.name: parse_resources(row.deserved)["cpu"] for row in rows} == decided
