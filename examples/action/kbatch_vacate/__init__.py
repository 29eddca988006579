"""A kbatch action: pods that their groups can spare leave cordoned nodes, while there is room for them elsewhere.

Whoever empties a node for maintenance cordons it and waits until its pods have ended. Pods of a group that runs with
more than its minimum need not be waited for: one of them goes at a time, and the next when its replacement is placed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from kbatch.engine.actions.base import Action
from kbatch.engine.context import CycleContext
from kbatch.engine.decisions import TURN, Step, Transaction
from kbatch.engine.placement.ranking import When
from kbatch.engine.plugin import ABSTAIN, Plugin, Preemptor, Unit, Vote
from kbatch.engine.session.statement import Statement
from kbatch.engine.state.minimum import unplaced
from kbatch.model.tasks import Task


class Surplus(Plugin):
    """YES to the pods that a group has above its minimum and its roles' minimums, where the group allows it."""

    name: ClassVar[str] = "surplus"

    def vacatable(self, preemptor: Preemptor, unit: Unit) -> Vote:
        """The vote that `Vacate` asks for; the engine finds it by its name."""
        job = unit.job
        if unit.whole or job.job.disruption == "Never" or job.ready - len(unit.tasks) < job.minimum:
            return ABSTAIN
        for role in job.job.roles:
            leaving = sum(1 for task in unit.tasks if task.role == role.name)
            if leaving and job.role_count(role.name) - leaving < role.min_member:
                return ABSTAIN
        return Vote.YES


class Vacate(Action):
    """The action. It makes no room for anybody, so it belongs behind `allocate`."""

    name = "vacate"
    victims = "vacatable"
    example = "surplus"

    def run(self, context: CycleContext) -> Iterator[Step]:
        """A look at each pod of ours on a cordoned node, in the order of names."""
        session = context.session
        for row in np.flatnonzero(session.nodes.cordoned):
            node = session.model.nodes[session.nodes.names[row]]
            for _, task in sorted(node.tasks.items()):
                if session.due():
                    yield TURN
                if task.job and task.holds and task.key not in session.leaving:
                    yield from self._move(context, task)

    def _move(self, context: CycleContext, task: Task) -> list[Transaction]:
        session = context.session
        job = session.job(task.job)
        if job.evicted or unplaced(job) or any(other.terminating for other in job.job.tasks.values()):
            return []  # one of its pods is on its way already
        unit = Unit(job, (task,), whole=False, request=task.cls.request)
        nobody = Preemptor(job, (), {}, intra=True)
        if context.consent.too_young(job) or context.consent.rank(self.victims, nobody, unit) is None:
            return []
        rows = context.rankings.of(task.cls, When.NOW).choose(1)
        if not rows or session.nodes.cordoned[rows[0]]:
            return []
        statement = Statement(session, job)
        statement.evict(job, task, self.name)
        return statement.commit()
