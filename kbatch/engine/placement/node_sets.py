"""Where the pods of a gang, and of its roles, may stand together: what the plugins say, counted and put in order.

The sets of several plugins are intersected and their costs added. A set in which too few pods have room, counted by
themselves, is left out. Of the others of one spread the cheapest come first, then those that are left with the least
room, then those with the better nodes, then those that the plugin names first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kbatch.engine.placement.kinds import Kind, kinds_of, wanted_of
from kbatch.engine.placement.ranking import NodeRankings, When
from kbatch.engine.plugin import NodeSet, NodeSets
from kbatch.engine.session.session import Session
from kbatch.engine.state.jobs import JobState
from kbatch.model.nodes import Column, Mask
from kbatch.model.tasks import Task


@dataclass(eq=False, slots=True)
class Unit:
    """Pods that are to stand together: those of a role, or all of the job (`role` None).

    Attributes:
        kinds: those of them that wait.
        least: so many of them must be placed, whichever else are.
        sets: where they may stand, by spread.
    """

    role: str | None
    kinds: list[Kind]
    least: int
    sets: list[NodeSets]

    def has(self, task: Task) -> bool:
        """Whether the task is one of its pods."""
        return self.role is None or task.role == self.role


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """The room for a unit's pods, row by row.

    Attributes:
        fitting: how many of them fit, each kind by itself and no more than there are.
        room: how many of the largest kind would, were there any number.
    """

    fitting: Column
    room: Column


def units_of(session: Session, rankings: NodeRankings, job: JobState, when: When) -> list[Unit] | None:
    """What is to stand together for the job's minimum: the job first, then roles, the largest first; None: nothing."""
    if job.together is None or not session.gathering:
        return None
    kinds = kinds_of(job)
    own = wanted_of(job).by_role
    spare = {kind.role: 0 for kind in kinds}
    for kind in kinds:
        spare[kind.role] += len(kind.tasks)
    for role in job.job.roles:
        headroom = job.role_headroom(role.name)
        if headroom is not None and role.name in spare:
            spare[role.name] = min(spare[role.name], headroom)
    found: list[Unit] = []
    for name in (None, *(role.name for role in job.job.roles)):
        mine = [kind for kind in kinds if name is None or kind.role == name]
        if mine:
            others = sum(count for role, count in spare.items() if role != name)
            least = job.missing() if name is None else max(own.get(name, 0), job.missing() - others)
            unit = _unit(session, rankings, job, Unit(name, mine, least, []), when)
            if unit is not None:
                found.append(unit)
    found.sort(key=lambda unit: (unit.role is not None, -_size(rankings, unit)))
    return found or None


def units_of_one(session: Session, rankings: NodeRankings, job: JobState, task: Task, when: When) -> list[Unit] | None:
    """The same for one pod above the minimum."""
    if job.together is None or not session.gathering:
        return None
    kinds = [Kind(task.cls, task.role, [task])]
    names = (None, *(role.name for role in job.job.roles if role.name == task.role))
    units = [_unit(session, rankings, job, Unit(name, kinds, 1, []), when) for name in names]
    return [unit for unit in units if unit is not None] or None


def _size(rankings: NodeRankings, unit: Unit) -> int:
    """How much of nodes a unit's pods need, each by the dimension in which it needs the largest part of one."""
    return unit.least * max(-rankings.hardness(kind.cls)[1] for kind in unit.kinds)


def _unit(session: Session, rankings: NodeRankings, job: JobState, unit: Unit, when: When) -> Unit | None:
    """The unit with its sets; None where no plugin says anything of it."""
    fitting = count(rankings, unit, when).fitting
    placed = sorted(job.standing(unit.role))
    found: list[NodeSets] | None = None
    for plugin in session.gathering:
        said = plugin.node_sets(job, unit.role, fitting, placed)
        if said is None:
            continue
        sets = [_as_sets(each) for each in said]
        found = sets if found is None else [_both(one, other) for one in found for other in sets]
    if found is None:
        return None
    unit.sets = sorted(found, key=lambda each: each.spread)
    return unit


def _as_sets(said: NodeSet | NodeSets) -> NodeSets:
    if isinstance(said, NodeSets):
        return said
    return NodeSets(np.where(said.rows, np.int64(0), np.int64(-1)), cost=said.cost)


def _both(one: NodeSets, other: NodeSets) -> NodeSets:
    """The intersections of sets with others."""
    many = int(other.of.max(initial=-1)) + 1
    both = np.where((one.of >= 0) & (other.of >= 0), one.of * many + other.of, np.int64(-1))
    there = both >= 0
    of = np.full(len(both), -1, np.int64)
    of[there] = np.unique(both[there], return_inverse=True)[1]
    return NodeSets(of, max(one.spread, other.spread), one.parents or other.parents, one.cost + other.cost)


def count(rankings: NodeRankings, unit: Unit, when: When, among: Mask | None = None) -> Counted:
    """The room for a unit's pods as the session stands; with `among`, on these rows only."""
    fitting = np.zeros(len(rankings.every), np.int64)
    largest = max(unit.kinds, key=lambda kind: -rankings.hardness(kind.cls)[1]) if len(unit.kinds) > 1 else None
    room = fitting
    for kind in unit.kinds:
        capacity = rankings.of(kind.cls, when).capacity()
        if largest is None or kind is largest:
            room = capacity
        fitting = fitting + np.minimum(capacity, len(kind.tasks))
    if among is not None:
        fitting = np.where(among, fitting, np.int64(0))
    return Counted(fitting, room)


def sums(of: Column, amounts: Column) -> Column:
    """For each set the sum of its rows' amounts, which are small enough to be summed exactly."""
    inside = of >= 0
    size = int(of.max(initial=-1)) + 1
    if inside.all():
        return np.bincount(of, amounts, size).astype(np.int64)
    return np.bincount(of[inside], amounts[inside], size).astype(np.int64)


def enough(sets: NodeSets, unit: Unit, counted: Counted) -> list[int]:
    """The numbers of the sets in which there seems to be room for as many pods as the unit needs."""
    if not len(sets.of):
        return []
    found: list[int] = np.flatnonzero(sums(sets.of, counted.fitting) >= max(1, unit.least)).tolist()
    return found


def in_order(
    rankings: NodeRankings, sets: Sequence[NodeSets], unit: Unit, counted: Counted, when: When
) -> list[tuple[NodeSets, int]]:
    """Of sets of one spread those with room enough, in the order in which they are tried."""
    found: list[tuple[tuple[int, ...], int, NodeSets, int]] = []
    for place, each in enumerate(sets):
        numbers = enough(each, unit, counted)
        lefts = _left(each, numbers, counted) if len(numbers) > 1 else [()] * len(numbers)
        keys = [(each.cost, *left) for left in lefts]
        found.extend((key, place, each, number) for key, number in zip(keys, numbers, strict=True))
    found.sort(key=lambda each: (each[0], each[1], each[3]))
    firsts = [each for each in found if each[0] == found[0][0]]
    if len(firsts) > 1:
        score = {
            place: _scores(rankings, unit, each, when) for place, each in enumerate(sets) if len(each.of)
        }  # fmt: skip
        firsts.sort(key=lambda each: (-int(score[each[1]][each[3]]), each[1], each[3]))
    rest = found[len(firsts) :]
    return [(each, number) for _, _, each, number in (*firsts, *rest)]


def _left(sets: NodeSets, numbers: Sequence[int], counted: Counted) -> list[tuple[int, ...]]:
    """For each of these sets the room in it and in the larger ones that it is part of: what is left of it, but for what
    the pods take of any of them.
    """
    if not sets.parents:
        return [()] * len(numbers)
    row = np.zeros(int(sets.of.max()) + 1, np.intp)
    inside = np.flatnonzero(sets.of >= 0)
    row[sets.of[inside]] = inside
    rows = row[np.array(numbers, np.intp)]
    columns = [sums(of, counted.room)[of[rows]].tolist() for of in (sets.of, *sets.parents)]
    return list(zip(*columns, strict=True))


def _scores(rankings: NodeRankings, unit: Unit, sets: NodeSets, when: When) -> Column:
    """How good the best nodes of each set are: the scores of as many as pods are wanted, of the first kind."""
    key = rankings.of(unit.kinds[0].cls, when).refresh()
    size = int(sets.of.max(initial=-1)) + 1
    rows = np.flatnonzero((key >= 0) & (sets.of >= 0))
    if not len(rows):
        return np.zeros(size, np.int64)
    score = key[rows] // max(1, len(rankings.every))
    of = sets.of[rows]
    order = np.lexsort((-score, of))
    first = np.searchsorted(of[order], of[order])
    best = order[np.arange(len(rows)) - first < max(1, unit.least)]
    return sums(of[best], score[best]) if len(best) else np.zeros(size, np.int64)
