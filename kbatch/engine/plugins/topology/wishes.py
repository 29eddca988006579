"""How close the pods of a group, or of one of its roles, are to stand, as its PodGroup says."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from kbatch.api.objects import GroupTopology, PodGroup
from kbatch.model.annotations import hops_said


class Wish(NamedTuple):
    """What is asked for.

    Attributes:
        height: of the domain in which the pods stand at most, half the hops; None: not said.
        required: they rather wait than stand further apart.
    """

    height: int | None
    required: bool


Wishes: TypeAlias = "tuple[tuple[str | None, Wish], ...]"
"""By role, None for the whole group; only of those that ask for something."""


def wishes_of(group: PodGroup) -> Wishes:
    """All that a PodGroup asks for."""
    found: list[tuple[str | None, Wish]] = []
    whole = group.spec.topology or _annotated(group)
    if whole is not None:
        found.append((None, _wish(whole)))
    roles = group.spec.sub_groups or ()
    found.extend((role.name, _wish(role.topology)) for role in roles if role.topology is not None)
    return tuple(found)


def _wish(topology: GroupTopology) -> Wish:
    """Odd numbers of hops count as the even one below; the mode is Required where a number is given, else Preferred."""
    height = topology.max_hops // 2 if topology.max_hops is not None else None
    return Wish(height, topology.mode == "Required" if topology.mode else height is not None)


def _annotated(group: PodGroup) -> GroupTopology | None:
    """What the annotation says, if it can be read."""
    hops = hops_said(group.metadata)
    return GroupTopology(max_hops=hops) if hops is not None else None
