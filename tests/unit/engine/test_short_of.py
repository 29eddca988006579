"""What a group that waits is told to be short of."""

from __future__ import annotations

import numpy as np

from kbatch.engine.placement.shortage import shortage_of
from kbatch.engine.state.node_resources import NodeResources
from tests.unit.engine.worlds import node, pod, queue, world


def short(*cpus: str) -> tuple[str, int]:
    """For pods of these sizes, on two nodes of 4 CPUs of which one is taken whole."""
    pods = [pod(f"p{at}", cpu) for at, cpu in enumerate(cpus)]
    model = world(queue(), node("a"), node("b"), pod("full", "4", on="a"), pods)
    tasks = [model.tasks[f"ns/{each.metadata.name}"] for each in pods]
    assert np.count_nonzero(model.table.open) == 2
    return shortage_of(model.table, NodeResources(model.table), [(task.cls, 1) for task in tasks])


def test_what_the_sum_lacks() -> None:
    assert short("3", "3") == ("cpu", 2000)


def test_pods_larger_than_any_node_do_not_count_beside_others() -> None:
    assert short("3", "3", "100") == ("cpu", 2000)


def test_alone_they_lack_what_the_largest_piece_lacks() -> None:
    assert short("100") == ("cpu", 96_000)


def test_no_sum_is_short_but_the_pieces() -> None:
    assert short("2", "100") == ("cpu", 96_000)


def test_each_pod_lacks_what_its_piece_does() -> None:
    """Four nodes have half of their 4 CPUs free: for two pods 2 CPUs are to be freed on each of two."""
    pods = [pod(f"p{at}", "4") for at in range(2)]
    model = world(queue(), [node(on) for on in "abcd"], [pod(f"r{on}", "2", on=on) for on in "abcd"], pods)
    assert shortage_of(model.table, NodeResources(model.table), [(model.tasks["ns/p0"].cls, 2)]) == ("cpu", 4000)
