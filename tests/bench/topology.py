"""What it costs to place groups close together: beside each row of `tests.bench.engine`, and by itself.

    python -m tests.bench.topology [--json FILE] [NAME ...]

The network has four levels of labels (zone, room, block, rack) and sixteen nodes in a rack. A row of the engine is
measured as it is, and once more with the plugin on and four of five groups asking to stand close together, each in
another way. Ends with status 1 where a limit is missed; times are of the engine alone, in seconds of this process on
the processor.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count, cycle
from typing import Final

from kbatch.api.configuration import DEFAULT_TEXT, parse
from kbatch.api.objects import AnyObject, GroupTopology, Metadata, Node, PodGroup, PriorityClass
from kbatch.engine import Policy, build_policy
from tests.bench.engine import (
    ROWS as PLAIN,
)
from tests.bench.engine import (
    Figure,
    Setting,
    build,
    decide,
    gangs,
    group,
    measure,
    node,
    pod,
    queue,
    sliced,
)

LEVELS: Final = {"zone": 2048, "room": 512, "block": 128, "rack": 16}
"""How many nodes are in a domain of each level."""
_FACTOR: Final = 1.5
"""By so much the limits of the engine's own rows are wider where the plugin is on; those of slices are not."""
_ASKED: Final = (
    GroupTopology(max_hops=6),
    None,
    GroupTopology(mode="Preferred"),
    GroupTopology(max_hops=2),
    GroupTopology(mode="Required"),
)
"""What the groups of a row ask for, in turn: one room, nothing, to stand close, one rack, the closest that can be."""


def policy() -> Policy:
    """The built-in configuration with topology on."""
    levels = ", ".join(f"example.com/{level}" for level in LEVELS)
    return build_policy(parse(f"{DEFAULT_TEXT}  - name: topology\n    arguments: {{levels: '{levels}'}}\n", "bench"))


def wired(made: Node, index: int) -> Node:
    """The node with its place in the network."""
    where = {f"example.com/{level}": f"{level}-{index // size}" for level, size in LEVELS.items()}
    made.metadata.labels = {**(made.metadata.labels or {}), **where}
    return made


def close(made: PodGroup, topology: GroupTopology | None) -> PodGroup:
    """The group with topology."""
    made.spec.topology = topology
    return made


def _wired(objects: Iterator[AnyObject], asked: tuple[GroupTopology | None, ...] = ()) -> Iterator[AnyObject]:
    """The objects, nodes with their places, and groups asking for these in turn."""
    places, wishes = count(), cycle(asked)
    for obj in objects:
        if isinstance(obj, Node):
            yield wired(obj, next(places))
        elif isinstance(obj, PodGroup) and asked:
            yield close(obj, next(wishes))
        else:
            yield obj


def beside(row: Callable[[Setting], Iterator[Figure]]) -> Iterator[Figure]:
    """A row of the engine, and the same with topology.

    The limit of the latter is that of the plain row, times the factor: not the plain row's own time, by which each run
    would have another limit. What topology costs can be read off, as the two stand beside one another.
    """
    yield from row(Setting())
    for figure in row(Setting(policy(), lambda objects: _wired(objects, _ASKED))):
        limit = figure.limit if figure.slice or figure.unit != "s" else _FACTOR * figure.limit
        yield replace(figure, name=f"{figure.name}-topology", what=f"{figure.what}; with topology", limit=limit)


def racks() -> Iterator[Figure]:
    """A thousand gangs, each of which must stand in one rack."""

    def objects() -> Iterator[AnyObject]:
        for obj in gangs(1000, 16, 5000):
            yield close(obj, GroupTopology(max_hops=2)) if isinstance(obj, PodGroup) else obj

    model, building = build(_wired(objects()))
    result = decide(model, policy())
    assert result.binds == 16_000, f"{result.binds} of 16000 pods bound"
    figure = Figure(
        "racks", "1,000 gangs x 16, each in one rack of 16, 5,000 nodes", result.seconds, 3.0, pods=16_000, nodes=5000,
        gangs=1000, binds=result.binds, model_seconds=building,
    )  # fmt: skip
    yield figure
    yield sliced(figure, result.slice)


def _busy(nodes: int, *, used: int, priority: str = "") -> Iterator[AnyObject]:
    """Nodes of 32 CPUs, of which pods of one CPU each use so many, all but in one block: there they use eight."""
    yield queue("q0")
    for index in range(nodes):
        yield wired(node(index), index)
        yield group(f"r{index:05}", 1, "q0", priority)
        free = priority == "" and 1024 <= index < 1152
        for at in range(8 if free else used):
            yield pod(f"r{index:05}", at, on=f"n{index:05}", cpu="1", priority=1 if priority == "low" else 0)


def full() -> Iterator[Figure]:
    """One gang that must stand in one block, on a cluster that is nine tenths full."""

    def objects() -> Iterator[AnyObject]:
        yield from _busy(5000, used=29)
        yield close(group("big", 512, "q0"), GroupTopology(max_hops=4))
        for index in range(512):
            yield pod("big", index, cpu="4")

    model, building = build(objects())
    result = decide(model, policy())
    assert result.binds == 512, f"{result.binds} of 512 pods bound"
    figure = Figure(
        "full", "one gang of 512 in one block, 5,000 nodes 90 % full", result.seconds, 1.0, pods=512, nodes=5000,
        gangs=1, binds=result.binds, model_seconds=building,
    )  # fmt: skip
    yield figure
    yield sliced(figure, result.slice)


def victims() -> Iterator[Figure]:
    """The same, where others have to go for it."""

    def objects() -> Iterator[AnyObject]:
        yield PriorityClass(metadata=Metadata(name="low"), value=1)
        yield PriorityClass(metadata=Metadata(name="high"), value=100)
        yield from _busy(5000, used=29, priority="low")
        yield close(group("big", 512, "q0", "high"), GroupTopology(max_hops=4))
        for index in range(512):
            yield pod("big", index, cpu="4", priority=100)

    model, building = build(objects())
    result = decide(model, policy())
    assert result.evictions, "nobody was evicted"
    figure = Figure(
        "victims", "the same, where victims have to go", result.seconds, 3.0, pods=512, nodes=5000, gangs=1,
        evictions=result.evictions, model_seconds=building,
    )  # fmt: skip
    yield figure
    yield sliced(figure, result.slice)


ROWS: dict[str, Callable[[], Iterator[Figure]]] = {
    **{name: partial(beside, row) for name, row in PLAIN.items()},
    "racks": racks,
    "full": full,
    "victims": victims,
}


if __name__ == "__main__":
    sys.exit(measure(ROWS, __doc__, 106))
