"""What a search has found out serves the next one that could not find otherwise."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from itertools import groupby
from typing import TypeAlias

import numpy as np

from kbatch.engine.context import CycleContext
from kbatch.engine.decisions import Turn
from kbatch.engine.placement.together import Choice
from kbatch.engine.plugin import Preemptor, Scope
from kbatch.engine.preemption.candidate_pool import CandidatePool
from kbatch.engine.preemption.candidates import Donors, may_give
from kbatch.engine.preemption.goal import Budget
from kbatch.engine.preemption.polling import Evictor
from kbatch.engine.preemption.search import Search
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.minimum import wanted_beside
from kbatch.engine.state.queues import QueueState
from kbatch.model.nodes import Mask
from kbatch.model.tasks import Task, TaskClass

_Mark: TypeAlias = tuple[object, ...]


class Searches:
    """The searches of one run of an action, by all in their preemptors that a vote may depend on.

    Attributes:
        pool: the candidates. budget: the work that is left for plans that take more than one look.
        first: no search was made yet: where many are, those that serve others take less time.
    """

    def __init__(self, context: CycleContext, evictor: Evictor) -> None:
        self.first = True
        self.pool = CandidatePool(context, evictor.ballot)
        self.budget = Budget()
        self._context = context
        self._evictor = evictor
        self._known: dict[_Mark, Search] = {}
        self._barren: dict[str, bool] = {}
        context.session.stores.append(self.let_go)

    def search(
        self, preemptor: Preemptor, donors: Donors, choice: Choice | None = None, only: CandidatePool | None = None
    ) -> Generator[Turn, None, Search]:
        """That of the job's last step, of a step which no vote tells from it, or a new one; on the choice's rows.

        `only`: no other candidates need be looked for. A new one then serves nobody else.
        """
        among = rows_of(choice, preemptor.job) if choice else None
        where = among.tobytes() if among is not None else b""
        own: _Mark = (preemptor.job.key, where, *_asked(preemptor))
        alike: _Mark = ("", where, *likeness(preemptor), *_asked(preemptor))
        for mark in (own,) if preemptor.intra else (own, alike):
            found = self._known.get(mark)
            if found is not None and not found.over:
                self.pool.refresh()
                found.again(preemptor)
                self._context.consent.protections.merge(found.protected)
                break
        else:
            self.first = False
            pool = self.pool if only is None else only
            index = yield from pool.index(preemptor, donors)
            yield from index.preparing(task.cls for task in preemptor.tasks)
            found = Search(self._context, self._evictor, preemptor, index, among)
            found.protected = self._context.consent.protections.found
            if only is not None:
                return found
        self._known[own] = found
        if not preemptor.intra:
            self._known[alike] = found
        return found

    def barren(self, queue: QueueState) -> bool:
        """Whether no group of the queue could give anything, whoever asks: no victims are to be sought there."""
        found = self._barren.get(queue.name)
        if found is None:
            found = self._barren[queue.name] = not self._context.holdings.any_group(queue.record, may_give)
        return found

    def forget(self) -> None:
        """Search anew from now on: an error may have left a search half made."""
        self._known.clear()

    def let_go(self) -> Iterator[None]:
        """Let go of all that was gathered, in pieces. No search follows."""
        self._known.clear()
        return self.pool.let_go()


def likeness(preemptor: Preemptor) -> _Mark:
    """What a vote on others may depend on, of the preemptor: preemptors alike in it and in what they ask get the same.

    Its own pods are no victims of its own; they are none of one like it either, which holds as much.
    """
    job = preemptor.job
    alone = job.key if job.job.wants_whole_nodes else ""
    return job.queue, job.priority, preemptor.never, ends(job), tuple(sorted(preemptor.held.items())), alone


def asks_alike(context: CycleContext, job: JobState, tasks: Sequence[Task]) -> object:
    """`signature`, but for classes that no plugin tells apart, by labels that each gang has of its own: where room was
    sought in vain for the one, the other finds none either.
    """
    rankings = context.rankings
    classes = list({task.cls.id: task.cls for task in tasks}.values())
    numbers = {cls.id: number for number, cls in enumerate(classes)}
    runs = tuple([(key, len(list(run))) for key, run in groupby([(numbers[task.cls.id], task.role) for task in tasks])])
    liked = tuple([
        cls.id if any(plugin.score_scope(cls) is Scope.CLUSTER for plugin in rankings.scores) else _node_affinity(cls)
        for cls in classes
    ])  # fmt: skip
    return (
        runs, wanted_beside(job), tuple([cls.needs for cls in classes]), liked,
        tuple([plugin.alike(classes) for plugin in rankings.predicates]), rankings.preference(job),
    )  # fmt: skip


def _node_affinity(cls: TaskClass) -> object:
    affinity = cls.spec.affinity
    return affinity.node_affinity if affinity is not None else None


def ends(job: JobState) -> bool:
    """Whether its group has a lifetime."""
    return job.job.group is not None and job.job.group.spec.lifetime_seconds is not None


def rows_of(choice: Choice, job: JobState) -> Mask | None:
    """The rows on which the choice lets any of the job's pods stand; None: some may stand anywhere."""
    masks: list[Mask] = []
    for role in dict.fromkeys(task.role for task in job.waiting):
        mask = choice.get(role, choice.get(None))
        if mask is None:
            return None
        masks.append(mask)
    return np.logical_or.reduce(masks) if masks else None


def _asked(preemptor: Preemptor) -> _Mark:
    """What it asks for."""
    return (
        frozenset(task.cls.id for task in preemptor.tasks), tuple(sorted(preemptor.request.items())), preemptor.lacks,
        preemptor.intra, preemptor.ahead,
    )  # fmt: skip
