"""Builders of clusters with a network, and of groups that ask to stand close together."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kbatch.api.objects import GroupTopology, Node, PodGroup
from kbatch.engine import Policy
from tests.unit.engine.worlds import EVERYTHING, node, policy

LEVELS = "zone, block, rack"
TREE = ("z1/b1/r1/a1", "z1/b1/r1/a2", "z1/b1/r2/b1", "z1/b1/r2/b2", "z1/b2/r3/c1", "z1/b2/r3/c2", "z2/b3/r4/d1")
"""Nodes by their place: those of one rack begin with one letter."""


def wired(text: str = EVERYTHING, levels: str = LEVELS) -> Policy:
    """The policy with the plugin `topology`."""
    topology = f"{{name: topology, arguments: {{levels: '{levels}'}}}}"
    return policy(text.replace("{name: predicates}", f"{{name: predicates}}, {topology}"))


def nodes_at(*paths: str, cpu: str = "1", **more: str) -> list[Node]:
    """A node for each path zone/block/rack/name; `more` says the cpu of some by name."""
    found = []
    for path in paths:
        *where, name = path.split("/")
        labels = dict(zip(("zone", "block", "rack"), where, strict=True))
        found.append(node(name, more.get(name, cpu), labels={key: value for key, value in labels.items() if value}))
    return found


def close(made: PodGroup, max_hops: int | None = None, mode: str = "", **roles: tuple[int | None, str]) -> PodGroup:
    """The group with topology: its own unless only roles are given."""
    own = GroupTopology(max_hops=max_hops, mode=mode) if max_hops is not None or mode or not roles else None
    subs = tuple(
        msgspec.structs.replace(sub, topology=GroupTopology(max_hops=roles[sub.name][0], mode=roles[sub.name][1]))
        if sub.name in roles else sub
        for sub in made.spec.sub_groups or ()
    )  # fmt: skip
    made.spec = msgspec.structs.replace(made.spec, topology=own, sub_groups=subs or None)
    return made


def racks(nodes: Iterable[str]) -> set[str]:
    """The racks of nodes that are named by them."""
    return {name[0] for name in nodes}
