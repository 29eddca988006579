"""Where the pods of a gang, and of its roles, may stand together: what the plugins say, counted and put in order.

The sets of several plugins are intersected and their costs added. A set in which too few pods have room, counted by
themselves, is left out. Of the others of one spread the cheapest come first, then those that are left with the least
room, then those with the better nodes, then those that the plugin names first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from kbatch.engine.placement.kinds import Kind, kinds_of, wanted_of
from kbatch.engine.placement.ranking import NodeRankings, When
from kbatch.engine.placement.set_room import EXACT, Counted, Part, asked_together, most_in, sums, within
from kbatch.engine.plugin import NodeSet, NodeSets
from kbatch.engine.session.session import Session
from kbatch.engine.state.jobs import JobState
from kbatch.model.nodes import Column, Mask
from kbatch.model.tasks import Task, TaskClass

Capacity: TypeAlias = Callable[[Kind], Column]
"""How many pods of a kind each row has room for."""


@dataclass(eq=False, slots=True)
class Unit:
    """Pods that are to stand together: those of a role, or all of the job (`role` None).

    Attributes:
        kinds: those of them that wait.
        least: so many of them must be placed, whichever else are.
        sets: where they may stand, by spread.
        counted: the room for them when the unit was made.
        beside: the classes of the job's pods that wait and are not among them.
        by_role: of a job, how many of each role there must be among them.
        asks: by dimension what so many of them ask for together at least.
    """

    job: JobState
    role: str | None
    kinds: list[Kind]
    least: int
    sets: list[NodeSets]
    counted: Counted
    beside: Sequence[TaskClass]
    by_role: Mapping[str, int]
    asks: Mapping[str, int]


def units_of(
    session: Session, rankings: NodeRankings, job: JobState, when: When, *, capacity: Capacity | None = None
) -> list[Unit] | None:
    """What is to stand together for the job's minimum: the job first, then roles, the largest first; None: nothing.

    With `capacity` there is room for so many pods of each kind on each row.
    """
    if job.together is None or not session.plugins.gathering:
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
            beside = [kind.cls for kind in kinds if name is not None and kind.role != name]
            by_role = own if name is None else None
            unit = _unit(session, rankings, job, name, mine, least, when, capacity, beside, by_role)
            if unit is not None:
                found.append(unit)
    found.sort(key=lambda unit: (unit.role is not None, -_size(rankings, unit)))
    return found or None


def units_of_one(session: Session, rankings: NodeRankings, job: JobState, task: Task, when: When) -> list[Unit] | None:
    """The same for one pod above the minimum."""
    if job.together is None or not session.plugins.gathering:
        return None
    kinds = [Kind(task.cls, task.role, [task])]
    names = (None, *(role.name for role in job.job.roles if role.name == task.role))
    units = [_unit(session, rankings, job, name, kinds, 1, when) for name in names]
    return [unit for unit in units if unit is not None] or None


def _size(rankings: NodeRankings, unit: Unit) -> int:
    """How much of nodes a unit's pods need, each by the dimension in which it needs the largest part of one."""
    return unit.least * max(-rankings.hardness(kind.cls)[1] for kind in unit.kinds)


def _unit(
    session: Session,
    rankings: NodeRankings,
    job: JobState,
    role: str | None,
    kinds: list[Kind],
    least: int,
    when: When,
    capacity: Capacity | None = None,
    beside: Sequence[TaskClass] = (),
    by_role: Mapping[str, int] | None = None,
) -> Unit | None:
    """A unit with its sets; None where no plugin says anything of it."""
    if capacity is not None:
        counted = _count(rankings, kinds, when, capacity=capacity)
    else:
        counted = _open(session, rankings, job, kinds, beside, when)
    placed = sorted(job.standing(role))
    found: list[NodeSets] | None = None
    for plugin in session.plugins.gathering:
        said = plugin.node_sets(job, role, counted.fitting, placed)
        if said is None:
            continue
        sets = [_as_sets(each) for each in said]
        found = sets if found is None else [_both(one, other) for one in found for other in sets]
    if found is None:
        return None
    own = by_role or {}
    asks = asked_together(kinds, least, own) if counted.free else {}
    return Unit(job, role, kinds, least, sorted(found, key=lambda each: each.spread), counted, beside, own, asks)


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
    return NodeSets(
        of,
        max(one.spread, other.spread),
        one.parents if one.parents is not None else other.parents,
        one.cost + other.cost,
    )


def count(session: Session, rankings: NodeRankings, unit: Unit, when: When) -> Counted:
    """The room for a unit's pods as the session stands, on the nodes that others leave to any of them."""
    return _open(session, rankings, unit.job, unit.kinds, unit.beside, when)


def _open(
    session: Session,
    rankings: NodeRankings,
    job: JobState,
    kinds: Sequence[Kind],
    beside: Sequence[TaskClass],
    when: When,
) -> Counted:
    counted = _count(rankings, kinds, when, beside)
    whole = session.whole_nodes
    masks = [whole.rows(job, kind.tasks[0], waits=when is When.LATER) for kind in kinds if kind.tasks]
    if not masks or not whole.active:
        return counted
    some = np.logical_or.reduce([mask for mask in masks if mask is not None])
    left = counted.on(some)
    return Counted(left.fitting, np.where(some, counted.room, np.int64(0)), left.parts, left.free)


def _count(
    rankings: NodeRankings,
    kinds: Sequence[Kind],
    when: When,
    beside: Sequence[TaskClass] = (),
    capacity: Capacity | None = None,
) -> Counted:
    """The room for pods of these kinds, whoever stands beside them, or as `capacity` says; `beside` may come elsewhere
    at the same time.
    """
    fitting: Column | None = None
    largest = max(kinds, key=lambda kind: -rankings.hardness(kind.cls)[1]) if len(kinds) > 1 else kinds[0]
    room = np.zeros(len(rankings.every), np.int64)
    parts: list[Part] = []
    for kind in kinds:
        there = capacity(kind) if capacity is not None else rankings.of(kind.cls, when).capacity().copy()
        if kind is largest:
            room = there
        some = fitting_of(rankings, kind, there)
        # Where there is to be room that is not there yet, some of those that limits count go.
        others = [*(other.cls for other in kinds if other.cls.id != kind.cls.id), *beside]
        limits = rankings.domain_limits(kind.cls, others) if capacity is None else []
        if limits or len(kinds) > 1:
            parts.append(Part(kind.role, len(kind.tasks), some, limits))
        fitting = some if fitting is None else fitting + some
    free = {}
    if capacity is None and len(kinds) > 1:
        names = sorted({name for kind in kinds for name, _ in kind.cls.needs})
        free = {name: rankings.free(name, when) for name in names}
    return Counted(fitting if fitting is not None else room, room, parts, free)


def fitting_of(rankings: NodeRankings, kind: Kind, room: Column) -> Column:
    """How many of a kind's pods fit each row that has room for so many: no more than there are, and one where they keep
    apart.
    """
    some: Column = np.minimum(room, len(kind.tasks))
    alone = rankings.takes_one(kind.cls)
    if alone is not None:
        some[alone] = np.minimum(some[alone], 1)
    return some


def _by_parts(sets: NodeSets, unit: Unit, parts: Sequence[Part]) -> Mask:
    """For each set whether it takes so many pods of the unit, and of each of its roles, kind by kind."""
    of_role: dict[str, Column] = {}
    for part in parts:
        there = np.minimum(within(sets, part.fitting), part.number)
        for limit in part.limits:
            there = np.minimum(there, most_in(sets, part.fitting, limit))
        of_role[part.role] = of_role[part.role] + there if part.role in of_role else there
    able: Mask = np.add.reduce(list(of_role.values())) >= unit.least
    for role, there in of_role.items():
        able &= there >= min(unit.by_role.get(role, 0), unit.least)
    return able


def enough(sets: NodeSets, unit: Unit, counted: Counted) -> Column:
    """The numbers of the sets in which there seems to be room for as many pods as the unit needs."""
    found = counted.able.get(id(sets))
    if found is None:
        there = within(sets, counted.fitting) if len(sets.of) else np.zeros(0, np.int64)
        able = there >= max(1, unit.least)
        if counted.parts and able.any():
            able &= _by_parts(sets, unit, counted.parts)
        found = np.flatnonzero(able).astype(np.int64)
        for name, amount in unit.asks.items():
            if len(found) and amount and name in counted.free:
                free = np.where(counted.fitting > 0, np.maximum(counted.free[name], 0), np.int64(0))
                if float(free.sum(dtype=np.float64)) < EXACT:
                    found = found[within(sets, free)[found] >= amount]
        counted.able[id(sets)] = found
    return found


def in_order(
    rankings: NodeRankings, sets: Sequence[NodeSets], unit: Unit, counted: Counted, when: When
) -> Iterator[tuple[NodeSets, int]]:
    """Of sets of one spread those with room enough, in the order in which they are tried.

    Most often the first does, so the others are put in order when they are asked for.
    """
    by_cost: dict[int, list[NodeSets]] = {}
    for each in sets:
        by_cost.setdefault(each.cost, []).append(each)
    for _, alike in sorted(by_cost.items(), key=lambda item: item[0]):
        if len(alike) == 1:
            yield from _in_order(rankings, alike[0], enough(alike[0], unit, counted), unit, counted, when)
            continue
        places = [(at, number) for at, each in enumerate(alike) for number in enough(each, unit, counted).tolist()]
        if places:
            score = [_scores(rankings, unit, each, when) for each in alike]
            places.sort(key=lambda place: -int(score[place[0]][place[1]]))
            yield from ((alike[at], number) for at, number in places)


def _in_order(
    rankings: NodeRankings, sets: NodeSets, numbers: Column, unit: Unit, counted: Counted, when: When
) -> Iterator[tuple[NodeSets, int]]:
    """Of these sets the one that is left with the least room first, of equals that with the better nodes."""
    if not len(numbers):
        return
    first = np.arange(len(numbers))
    for column in _left(sets, numbers, counted):
        if len(first) == 1:
            break
        some = column[first]
        first = first[some == some.min()]
    if len(first) > 1:
        best = _scores(rankings, unit, sets, when)[numbers[first]]
        first = first[np.argsort(-best, kind="stable")]
    for at in first.tolist():
        yield sets, int(numbers[at])
    if len(first) < len(numbers):
        done = set(first.tolist())
        left = list(_left(sets, numbers, counted))
        for at in np.lexsort((numbers, *reversed(left))).tolist():
            if at not in done:
                yield sets, int(numbers[at])


def _left(sets: NodeSets, numbers: Column, counted: Counted) -> Iterator[Column]:
    """For these sets the room in them, then in the larger ones that they are part of: what is left of it, but for what
    the pods take of any of them.
    """
    if sets.parents is None:
        return
    yield within(sets, counted.room)[numbers]
    rows: Column = numbers
    if not sets.by_row:
        row = np.zeros(int(sets.of.max()) + 1, np.int64)
        inside = np.flatnonzero(sets.of >= 0)
        row[sets.of[inside]] = inside
        rows = row[numbers]
    for of in sets.parents:
        yield sums(of, counted.room)[of[rows]]


def _scores(rankings: NodeRankings, unit: Unit, sets: NodeSets, when: When) -> Column:
    """How good the best nodes of each set are: the scores of as many as pods are wanted, of the first kind."""
    key = rankings.of(unit.kinds[0].cls, when, unit.job).refresh()
    size = int(sets.of.max(initial=-1)) + 1
    rows = np.flatnonzero((key >= 0) & (sets.of >= 0))
    score = key[rows] // max(1, len(rankings.every))
    of = sets.of[rows]
    if size < len(rows):  # some set has several rows
        order = np.lexsort((-score, of))
        first = np.searchsorted(of[order], of[order])
        order = order[np.arange(len(rows)) - first < max(1, unit.least)]
        of, score = of[order], score[order]
    return sums(of, score, size)
