"""What would be free were groups gone follows which queues may give."""

from __future__ import annotations

from kbatch.engine.carryover.holdings import Holdings
from kbatch.engine.plugin import Holder
from kbatch.engine.state.node_resources import NodeResources
from kbatch.resources import CPU
from tests.unit.engine.worlds import group, node, pod, queue, world


def test_a_queue_that_gives_as_well_counts_on_all_its_nodes_at_once() -> None:
    names = ["a", "b", "c"]
    running = [obj for name in names for obj in (group(name, queue=name), pod(name, "2", of=name, on=f"n-{name}"))]
    model = world([queue(name) for name in names], [node(f"n-{name}", "4") for name in names], running)
    room = NodeResources(model.table)
    cls = model.tasks["ns/a"].cls
    holdings = Holdings()
    holders = frozenset(Holder(*job.kind) for job in model.jobs.values())

    def free(*giving: str) -> list[int]:
        of = [holdings.of(model.queues[name], model.table) for name in giving]
        found: list[int] = holdings.reachable(holders, of, room).free([cls])[CPU].tolist()
        return found

    assert free("a", "b") == [4000, 4000, 2000]
    assert free("a", "b", "c") == [4000, 4000, 4000]
    assert free("b", "c") == [2000, 4000, 4000]
    assert free("c") == [2000, 2000, 4000]
    assert holdings.free(room).free([cls])[CPU].tolist() == [2000, 2000, 2000]
