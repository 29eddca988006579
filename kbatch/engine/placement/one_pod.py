"""The node for a minimum of one pod that is to stand close together: each node by itself is a set that may hold it.

The search for sets of nodes (`together`) would choose that which is left with the least room, and of equals that whose
parents are, then the better node. Here the same node is found without a look at any other set.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kbatch.engine.placement.kinds import Kind, kinds_of
from kbatch.engine.placement.node_sets import fitting_of
from kbatch.engine.placement.ranking import NodeRanking, NodeRankings, When
from kbatch.engine.placement.set_room import sums
from kbatch.engine.plugin import NodeSet, NodeSets
from kbatch.engine.session.statement import Statement
from kbatch.model.nodes import Column


def place_one(rankings: NodeRankings, statement: Statement, when: When) -> bool:
    """Place the minimum of a job that lacks one pod and of which nothing stands, on the node that comes first.

    False where that is not so simple, or that node does not take the pod: nothing is done then.
    """
    job = statement.job
    if job.missing() != 1 or job.job.roles or job.anchor() is not None or statement.session.whole_nodes.active:
        return False
    kinds = kinds_of(job)
    ranking = rankings.of(kinds[0].cls, when, job) if len(kinds) == 1 else None
    if ranking is None or ranking.coupled:
        return False
    parents = _around_nodes(rankings, statement, kinds[0], ranking)
    row = _first(ranking, parents) if parents is not None else None
    if row is None or not ranking.fits(row):
        return False
    task, waits = kinds[0].tasks[0], when is When.LATER
    among = statement.rows(task, waits=waits)
    return (among is None or bool(among[row])) and statement.place((task,), (row,), waits=waits) == 1


def _around_nodes(
    rankings: NodeRankings, statement: Statement, kind: Kind, ranking: NodeRanking
) -> Sequence[Column] | None:
    """What the closest sets for the job's pods are part of, if these sets are single nodes; else None."""
    fitting = fitting_of(rankings, kind, ranking.capacity())
    found: NodeSets | None = None
    for plugin in statement.session.plugins.gathering:
        said = plugin.node_sets(statement.job, None, fitting, ())
        if said is not None:
            if found is not None:
                return None  # those of several plugins are to be intersected
            found = _nodes(said)
            if found is None:
                return None
    return found.parents if found is not None else None


def _nodes(said: Sequence[NodeSet | NodeSets]) -> NodeSets | None:
    """The single nodes, if they are closer than all other sets."""
    nodes, others = None, 1 << 62
    for each in said:
        if isinstance(each, NodeSets) and each.by_row and nodes is None:
            nodes = each
        else:
            others = min(others, each.spread if isinstance(each, NodeSets) else 0)
    return nodes if nodes is not None and nodes.spread < others else None


def _first(ranking: NodeRanking, parents: Sequence[Column]) -> int | None:
    """The row with the least room, of equals that whose parents have the least, then the best; None: none has any."""
    rows = ranking.least_room()
    for of in parents:
        if len(rows) <= 1:
            break
        some = sums(of, ranking.capacity())[of[rows]]
        rows = rows[some == some.min()]
    if len(rows) > 1:
        score = np.maximum(ranking.refresh()[rows], 0) // len(ranking.key)
        return int(rows[score.argmax()])
    return int(rows[0]) if len(rows) else None
