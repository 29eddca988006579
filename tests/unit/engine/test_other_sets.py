"""Where the set of nodes that was chosen first turns out not to hold a gang, others of its spread are tried."""

from __future__ import annotations

from tests.unit.engine.closeness import close, nodes_at, racks, wired
from tests.unit.engine.worlds import group, pod, queue, run, world


def test_a_rack_that_holds_the_gang_by_its_sums_alone_is_left_for_the_next() -> None:
    """The rack `a` would be left with nothing over, so it is tried first: 8 cores for 3, 3 and 2. But no node of it
    takes 3 and 2.
    """
    nodes = nodes_at("z1/b1/r1/a1", "z1/b1/r1/a2", "z1/b1/r2/b1", "z1/b1/r2/b2", cpu="4", b1="5")
    pods = [pod(f"g-{number}", cpu, of="g") for number, cpu in enumerate(("3", "3", "2"))]
    found = run(world(queue(), nodes, close(group("g", 3), 2), pods), wired())
    assert len(found.binds) == 3
    assert racks(found.binds.values()) == {"b"}
