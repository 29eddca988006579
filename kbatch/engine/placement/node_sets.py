"""Where the pods of a gang, or of one of its roles, may stand together: the plugins' sets of nodes, put together.

The sets of several plugins are intersected and their costs added. A set in which too few pods have room, counted by
themselves, is skipped. What is left is tried from the cheapest on, of equal costs that with the better nodes first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, product
from typing import Final, TypeAlias

import numpy as np

from kbatch.engine.placement.kinds import Kind, kinds_of, wanted_of
from kbatch.engine.placement.ranking import NodeRankings, When
from kbatch.engine.plugin import NodeSet
from kbatch.engine.session.session import Session
from kbatch.engine.state.jobs import JobState
from kbatch.model.nodes import Column, Mask

_MOST: Final = 256
"""Combinations that are tried at most."""

Choice: TypeAlias = "dict[str | None, Mask]"
"""The nodes of the whole job (None), and of single roles within them."""


def choices(session: Session, rankings: NodeRankings, job: JobState, when: When) -> Iterator[Choice] | None:
    """What to try, in order; None where no plugin says anything."""
    if not session.gathering:
        return None
    kinds = kinds_of(job)
    roles: list[str | None] = [None, *(role.name for role in job.job.roles)]
    wanted = wanted_of(job)
    found: dict[str | None, list[NodeSet]] = {}
    for role in roles:
        mine = [kind for kind in kinds if role is None or kind.role == role]
        fitting = _fitting(rankings, mine, when)
        least = job.missing() if role is None else wanted.by_role.get(role, 0)
        sets = _of_plugins(session, job, role, fitting)
        if sets is not None and mine:
            sets = [each for each in sets if int(fitting[each.rows].sum()) >= least]
            score = {id(each): _score(rankings, mine, when, each.rows, least) for each in sets}
            found[role] = sorted(sets, key=lambda each: (each.cost, -score[id(each)]))
    return _combined(found) if found else None


def _of_plugins(session: Session, job: JobState, role: str | None, fitting: Column) -> list[NodeSet] | None:
    """The intersections of what the plugins say; None where none says anything."""
    placed = _placed(session, job, role)
    found: list[NodeSet] | None = None
    for plugin in session.gathering:
        sets = plugin.node_sets(job, role, fitting, placed)
        if sets is None:
            continue
        if found is None:
            found = list(sets)
        else:
            pairs = product(found, sets)
            found = [NodeSet(one.rows & other.rows, one.cost + other.cost) for one, other in pairs]
            found = [each for each in found if each.rows.any()]
    return found


def _placed(session: Session, job: JobState, role: str | None) -> list[int]:
    """The rows on which the job's pods stand or wait, one element for each."""
    found = [row for task, row in (*job.placed.values(), *job.nominated.values()) if role in {None, task.role}]
    if not session.emptied:
        rows = session.nodes.row
        found.extend(
            rows[task.node]
            for task in job.job.tasks.values()
            if task.holds and task.node in rows and task.key not in job.evicted and role in {None, task.role}
        )
    return sorted(found)


def _fitting(rankings: NodeRankings, kinds: Sequence[Kind], when: When) -> Column:
    """How many pods of these kinds each node takes, each kind by itself, no more than there are."""
    found = np.zeros(len(rankings.every), np.int64)
    for kind in kinds:
        found += np.minimum(rankings.of(kind.cls, when).capacity(), len(kind.tasks))
    return found


def _score(rankings: NodeRankings, kinds: Sequence[Kind], when: When, rows: Mask, count: int) -> int:
    """How good the best nodes of a set are: the scores of as many as pods are wanted, of the first kind."""
    key = rankings.of(kinds[0].cls, when).refresh()[rows]
    best = np.sort(key[key >= 0] // max(1, len(rankings.every)))[::-1][: max(1, count)]
    return int(best.sum())


def _combined(found: dict[str | None, list[NodeSet]]) -> Iterator[Choice]:
    """One set for the job and for each role that has some, the cheapest combination first."""
    roles = list(found)
    # The product of a few lists, each in order; sorting is stable, so that of equal costs the earlier stays earlier.
    combinations = sorted(islice(product(*found.values()), _MOST * 16), key=lambda each: sum(one.cost for one in each))
    for combination in combinations[:_MOST]:
        choice = {role: one.rows for role, one in zip(roles, combination, strict=True)}
        whole = choice.get(None)
        yield choice if whole is None else {role: rows & whole for role, rows in choice.items()}
