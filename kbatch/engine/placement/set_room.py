"""The room for pods that are to stand together, row by row, and what sets of nodes take of it at most.

Upper bounds that need no pod to be placed on trial: a set that they leave out cannot hold the pods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from kbatch.engine.placement.kept_counts import Counts
from kbatch.engine.placement.kinds import Kind
from kbatch.engine.plugin import DomainLimit, NodeSets
from kbatch.model.nodes import Column, Mask

EXACT: Final = float(1 << 52)
"""Sums up to here are exact."""
_ENDLESS: Final = np.int64(1 << 32)
"""More pods than any set takes; sums of it are exact."""
_DENSE: Final = 16
"""Numbers below so many times their count are counted, not sorted."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The room for the pods of one kind, row by row, no more than there are; and what limits them in domains."""

    role: str
    number: int
    fitting: Column
    limits: list[DomainLimit]


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """The room for a unit's pods, row by row.

    Attributes:
        fitting: how many of them fit, each kind by itself, no more than there are, and one where they keep apart.
        room: how many of the largest kind would, were there any number.
        free: where there are several kinds: by dimension what each row has free.
        parts: kind by kind, where there are several, or the only one keeps apart by domains.
        able: what `enough` has answered, by the identity of the sets.
    """

    fitting: Column
    room: Column
    parts: list[Part] = field(default_factory=list)
    free: dict[str, Column] = field(default_factory=dict)
    able: dict[int, Column] = field(default_factory=dict)

    def on(self, rows: Mask) -> Counted:
        """The room on these rows; of what is left over, in all."""
        parts = [replace(part, fitting=np.where(rows, part.fitting, np.int64(0))) for part in self.parts]
        return Counted(np.where(rows, self.fitting, np.int64(0)), self.room, parts, self.free)


def sums(of: Column, amounts: Column, size: int | None = None) -> Column:
    """For each set (of `size`, by default all with a row) the sum of its rows' amounts: exact, as they are small."""
    inside = of >= 0
    many = int(of.max(initial=-1)) + 1 if size is None else size
    if inside.all():
        return np.bincount(of, amounts, many).astype(np.int64)
    return np.bincount(of[inside], amounts[inside], many).astype(np.int64)


def within(sets: NodeSets, amounts: Column) -> Column:
    """For each set the sum of its rows' amounts; not to be changed."""
    return amounts if sets.by_row else sums(sets.of, amounts)


def most_in(sets: NodeSets, fitting: Column, limit: DomainLimit) -> Column:
    """For each set how many pods of a kind may stand there at most by what they demand of one another, where so many
    fit each row.

    A domain of which no row of a set takes any gets none from there: where such a one takes part, what it counts is the
    most that the least count comes to.
    """
    many = int(sets.of.max(initial=-1)) + 1
    rows = np.flatnonzero((fitting > 0) & (sets.of >= 0))
    of, domain = sets.of[rows], limit.of[rows].astype(np.int64)
    anywhere = domain < 0
    size = len(limit.counts)
    if limit.skew is None or limit.present is None:
        pairs = _distinct(of[~anywhere] * size + domain[~anywhere], many * size)
        found = np.bincount(pairs // size, limit.counts[pairs % size] <= 0, many).astype(np.int64)
        np.add.at(found, of[anywhere], fitting[rows[anywhere]])
        return found
    order = limit.present[np.argsort(limit.counts[limit.present], kind="stable")]
    absent = np.ones(size, np.bool_)
    absent[order] = False
    domains = np.append(order, np.flatnonzero(absent))  # by rank, those that take no part after all
    rank = np.empty(size, np.int64)
    rank[domains] = np.arange(size)
    pairs = _distinct(of[~anywhere] * size + rank[domain[~anywhere]], many * size)
    where, ranks = pairs // size, pairs % size
    # Of a set that has the domains of the first ranks without a gap the next is the least that is left out.
    first = np.searchsorted(where, where)
    gap = np.bincount(where, ranks == np.arange(len(where)) - first, many).astype(np.int64)
    least = np.append(limit.counts[order], _ENDLESS) if len(order) else np.zeros(1, np.int64)
    most = limit.skew + least[np.minimum(gap, len(least) - 1)][where] - limit.counts[domains[ranks]]
    return np.bincount(where, np.clip(most, 0, _ENDLESS), many).astype(np.int64)


def most_anywhere(fitting: Column | Counts, limit: DomainLimit) -> int:
    """How many pods of a kind may stand at most by what they demand of one another, where so many fit each row.

    Each domain ends with at most `skew` more than the least, and the least is no more than what counts there already
    and has room there.
    """
    inside = limit.of >= 0
    room = _by_domain(fitting, limit)
    found = int(np.clip(_most_by_domain(room, limit), 0, room).sum())
    return found if limit.skew is not None else found + int(fitting[~inside].sum())


def in_need(before: Column, after: Column, limit: DomainLimit) -> Mask:
    """The rows of domains that take more pods than have room there `before`, where so many fit `after`."""
    more = _by_domain(before, limit) < _most_by_domain(_by_domain(after, limit), limit)
    found: Mask = (limit.of < 0) | more[limit.of]
    return found


def _by_domain(fitting: Column | Counts, limit: DomainLimit) -> Column:
    """How many pods fit each domain."""
    inside = limit.of >= 0
    return np.bincount(limit.of[inside], fitting[inside], len(limit.counts)).astype(np.int64)


def _most_by_domain(room: Column, limit: DomainLimit) -> Column:
    """How many may stand in each domain at most, where there is so much room in each."""
    if limit.skew is None or limit.present is None:
        return np.where(limit.counts <= 0, np.int64(1), np.int64(0))
    least = int((limit.counts + room)[limit.present].min()) if len(limit.present) else 0
    return limit.skew + least - limit.counts


def _distinct(numbers: Column, end: int) -> Column:
    """The numbers below `end`, each once and in order: counted where that is less work than to sort them."""
    if end <= _DENSE * len(numbers):
        return np.flatnonzero(np.bincount(numbers)).astype(np.int64)
    return np.unique(numbers)


def asked_together(kinds: Sequence[Kind], least: int, by_role: Mapping[str, int]) -> dict[str, int]:
    """By dimension the least that so many pods of these kinds ask for, so many of each role among them."""
    found: dict[str, int] = {}
    for name in sorted({name for kind in kinds for name, _ in kind.cls.needs}):
        amounts: dict[str, list[int]] = {}
        for kind in kinds:
            amounts.setdefault(kind.role, []).extend([dict(kind.cls.needs).get(name, 0)] * len(kind.tasks))
        total, left = 0, least
        rest: list[int] = []
        for role, some in amounts.items():
            some.sort()
            own = min(by_role.get(role, 0), len(some), left)
            total, left = total + sum(some[:own]), left - own
            rest += some[own:]
        found[name] = total + sum(sorted(rest)[:left])
    return found
