"""The GPU clusters of the packing study, and what the study says of them."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.bench.gpu_cluster import Machine, Shape, machines, pods
from tests.bench.packing import PAGE, SHIPPED, Placed, by_engine, by_seed, plain_best_fit, study, table, written


@pytest.mark.parametrize("seed", [0, 1])
def test_the_cluster_and_its_pods_are_as_described(seed: int) -> None:
    nodes = machines()
    arrivals = pods(seed, nodes)
    total = sum(node.shape.gpus for node in nodes)
    assert len(nodes) == 1213
    assert {node.shape.gpus for node in nodes} == {2, 4, 8}
    assert len({node.model for node in nodes}) == 6
    assert sum(shape.gpus for shape in arrivals) == int(0.98 * total)
    counts = Counter(shape.gpus for shape in arrivals)
    assert abs(counts[0] / len(arrivals) - 0.13) < 0.001
    assert counts[4] + counts[8] == 300
    assert counts[1] > len(arrivals) / 2


def test_equal_seeds_give_equal_pods_and_others_do_not() -> None:
    nodes = machines()
    assert pods(3, nodes) == pods(3, nodes) != pods(4, nodes)
    assert Counter(each.gpus for each in pods(3, nodes)) == Counter(each.gpus for each in pods(4, nodes))


def test_more_cpu_is_asked_for_by_pods_of_one_gpu_alone() -> None:
    nodes = machines()
    usual, more = pods(0, nodes), pods(0, nodes, more_cpu=0.1)
    assert all((a.cpu < b.cpu) == (a.gpus == 1) and a.gpus == b.gpus for a, b in zip(usual, more, strict=True))


def test_plain_best_fit_leaves_the_least() -> None:
    nodes = [Machine("large", "m", Shape(16_000, 100, 8)), Machine("small", "m", Shape(4_000, 50, 2))]
    arrivals = [Shape(1_000, 10, 1), Shape(8_000, 10, 8), Shape(1_000, 10, 8)]
    assert plain_best_fit(nodes, arrivals) == Placed(("small", "large", None))


@pytest.mark.parametrize("seed", range(3))
def test_on_a_part_of_the_cluster_packing_allocates_what_plain_best_fit_does(seed: int) -> None:
    nodes = machines(0.1)
    arrivals = pods(seed, nodes, 0.1)
    packed = by_engine(SHIPPED, nodes, arrivals)
    assert packed.gpus(arrivals) >= plain_best_fit(nodes, arrivals).gpus(arrivals)
    used = {node.name: [0, 0, 0] for node in nodes}
    for shape, where in zip(arrivals, packed.nodes, strict=True):
        if where is not None:
            for at, amount in enumerate((shape.cpu, shape.memory, shape.gpus)):
                used[where][at] += amount
    for node in nodes:
        offers = (node.shape.cpu, node.shape.memory, node.shape.gpus)
        assert all(amount <= most for amount, most in zip(used[node.name], offers, strict=True))


@pytest.mark.many
def test_the_page_has_the_figures_of_the_command() -> None:
    """One seed is placed again: its row stands on the page."""
    found = study([0])
    page = PAGE.read_text("utf-8")
    row = by_seed(found).splitlines()[-1]
    assert row in page, "bring the page up to date with python -m tests.bench.packing --write"
    assert table(found) in written(page, "usual", found)
