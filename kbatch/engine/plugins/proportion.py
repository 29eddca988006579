"""proportion: queues get what they deserve by weight, and may take back what others have beyond their own."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import ClassVar

from kbatch.api.reasons import QueueOverused, Reason
from kbatch.engine.plugin import Key, Plugin, Preemptor, Unit, Vote, dominant_ordinal
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.queues import QueueState


class Proportion(Plugin):
    """The queue that is furthest below its deserved share comes first. Takes no arguments.

    A queue is overused for a job when it holds what it deserves, or more, in a dimension that the job asks for.
    Victims of reclaim: YES from a reclaimable queue that is above its deserved share in a dimension that the preemptor
    lacks, and falls below it by at most the preemptor; else VETO.
    """

    name: ClassVar[str] = "proportion"
    reasons: ClassVar[tuple[type[Reason], ...]] = (QueueOverused,)
    agrees: ClassVar[frozenset[str]] = frozenset({"reclaimable"})
    votes_by_class: ClassVar[bool] = True

    def queue_order_key(self, queue: QueueState) -> Key:
        """Smallest share first: the largest allocated/deserved over the dimensions."""
        return (dominant_ordinal(queue.allocated, queue.deserved),)

    def overused(self, queue: QueueState, job: JobState) -> Reason | None:
        """See the class."""
        for name in job.asks:
            deserved = queue.deserved.get(name)
            if deserved is not None and queue.allocated.get(name, 0) >= deserved:
                return QueueOverused(queue.name, name, queue.allocated.get(name, 0), deserved)
        return None

    def reclaimable(self, preemptor: Preemptor, unit: Unit) -> Vote:
        """See the class."""
        donor = self.view.queue(unit.job.queue)
        if not donor.record.reclaimable:
            return Vote.VETO
        goes = donor.may_lose(unit.request, preemptor.lacks, preemptor.request)
        return Vote.YES if goes else Vote.VETO

    def most_given(self, ballot: str, preemptor: Preemptor, queue: QueueState) -> Mapping[str, int] | None:
        """What it holds above its share, where that is so in just one of the dimensions that the preemptor lacks: each
        unit gives of this one, and the last is asked about while there is something left of it.
        """
        above = {name: queue.allocated.get(name, 0) - queue.deserved.get(name, 0) for name in preemptor.lacks}
        above = {name: amount for name, amount in above.items() if amount > 0}
        return above if len(above) == 1 else None

    def vote_key(self, ballot: str, unit: Unit) -> Hashable:
        """Its queue, and what it asks for."""
        return None
