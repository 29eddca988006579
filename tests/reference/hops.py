"""How close together the roles of a group can stand, trying everything. Nothing is shared with the engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement


@dataclass(frozen=True, slots=True)
class Part:
    """A role: `count` pods of `cpu` each, kept together or not (`keeps`), within `bound` hops or any."""

    count: int
    cpu: int
    keeps: bool
    bound: int | None


Path = tuple[str, ...]
"""Where a node stands, outermost first, its own name last."""


def hops(one: Path, other: Path) -> int:
    """Between two nodes: twice the levels above the nodes up to the lowest that is common."""
    common = next((at for at, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), len(one))
    return 2 * (len(one) - common)


def widest(paths: Sequence[Path]) -> int:
    """The most hops between any two."""
    return max((hops(one, other) for one in paths for other in paths), default=0)


def best(nodes: Sequence[tuple[Path, int]], parts: Sequence[Part], whole: Part) -> tuple[int, int, int] | None:
    """The least (largest of the roles' hops, their sum, the group's hops) of all ways to place all pods; None: there is
    no way. Roles that are not kept together do not count, nor does a group that is not.
    """
    found: tuple[int, int, int] | None = None
    for rows in _ways([cpu for _, cpu in nodes], parts):
        of_roles = [widest([nodes[row][0] for row in some]) for some in rows]
        of_group = widest([nodes[row][0] for some in rows for row in some])
        bounds = [*zip(of_roles, parts, strict=True), (of_group, whole)]
        if any(part.keeps and part.bound is not None and far > part.bound for far, part in bounds):
            continue
        counted = [far for far, part in zip(of_roles, parts, strict=True) if part.keeps]
        value = max(counted, default=0), sum(counted), of_group if whole.keeps else 0
        found = value if found is None else min(found, value)
    return found


def _ways(room: list[int], parts: Sequence[Part]) -> Iterator[list[tuple[int, ...]]]:
    if not parts:
        yield []
        return
    part, *rest = parts
    for rows in combinations_with_replacement(range(len(room)), part.count):
        left = list(room)
        for row in rows:
            left[row] -= part.cpu
        if min(left) >= 0:
            for others in _ways(left, rest):
                yield [rows, *others]
