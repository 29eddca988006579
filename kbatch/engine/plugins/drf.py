"""drf: dominant resource fairness between the jobs of a queue."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

from kbatch.engine.plugin import ABSTAIN, Holder, Key, Plugin, Preemptor, Unit, Vote, dominant_ordinal
from kbatch.engine.state.jobs import JobState
from kbatch.resources import add, subtract


class Drf(Plugin):
    """The job with the smallest dominant share of the cluster comes first. Takes no arguments.

    Victims: YES where job priorities are equal and the preemptor's share, with what it asks for, stays at or below the
    victim's share without the unit. A group with a lifetime never takes from one without: the other may take it back
    as soon as the lifetime is over, and the two would go on for ever.
    """

    name: ClassVar[str] = "drf"
    agrees: ClassVar[frozenset[str]] = frozenset({"preemptable"})
    votes_by_class: ClassVar[bool] = True

    def job_order_key(self, job: JobState) -> Key:
        """Smallest share first."""
        return (dominant_ordinal(job.allocated, self.view.total),)

    def preemptable(self, preemptor: Preemptor, unit: Unit) -> Vote:
        """See the class."""
        if (
            preemptor.intra
            or preemptor.job.priority != unit.job.priority
            or (_ends(preemptor.job) and not _ends(unit.job))
        ):
            return ABSTAIN
        ours = self._after(preemptor)
        theirs = dominant_ordinal(subtract(unit.job.allocated, unit.request), self.view.total)
        return Vote.YES if ours <= theirs else ABSTAIN

    def vote_key(self, ballot: str, unit: Unit) -> Hashable:
        """Without its only pod no group has a share."""
        return _ends(unit.job)

    def best_vote(self, ballot: str, preemptor: Preemptor, holder: Holder) -> Vote:
        """Who holds one pod has no share without it: only such as ask for nothing may take it."""
        if ballot != "preemptable" or holder.priority != preemptor.job.priority:
            return ABSTAIN
        return ABSTAIN if holder.alone and self._after(preemptor) else Vote.YES

    def _after(self, preemptor: Preemptor) -> int:
        """The preemptor's share with what it asks for."""
        return dominant_ordinal(add(preemptor.held, preemptor.request), self.view.total)


def _ends(job: JobState) -> bool:
    return job.job.group is not None and job.job.group.spec.lifetime_seconds is not None
