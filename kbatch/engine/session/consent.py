"""Which units may go for a preemptor, and how willingly: the plugins' votes, guards, lifetimes and surplus together."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final, Protocol

from kbatch.api.reasons import Protector
from kbatch.engine.plugin import Preemptor, Unit
from kbatch.engine.session.guarding import report
from kbatch.engine.session.protections import Protections
from kbatch.engine.session.session import Session
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.timeline import lifetime_end, min_runtime_end
from kbatch.model.tasks import Task
from kbatch.resources import Resources, subtract

_UNASKED: Final = 1_000
"""The rank of units to which no plugin consents, and which go because their group has more than it asked for."""


class Guard(Protocol):
    """What may forbid an eviction besides the plugins: disruption budgets, victims whose eviction was refused."""

    def allow(self, unit: Unit) -> bool:
        """Whether all pods of the unit may go at once, with what the open statement evicts gone already."""
        ...

    def of(self, task: Task) -> Hashable:
        """What the answer about a pod depends on, besides its job."""
        ...

    def protecting(self, unit: Unit) -> Iterable[tuple[Protector, str]]:
        """What protects a unit that may not go, each with the name of its object."""
        ...


class Consent:
    """Who may be evicted in one session.

    Attributes:
        guards: what may forbid it, besides the plugins.
        protections: who would have gone but for these, and would have been of use.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.guards: list[Guard] = []
        self.protections = Protections()

    def rank(self, ballot: str, preemptor: Preemptor, unit: Unit) -> int | None:
        """How willingly the unit goes: 0 where its group has outlived its lifetime, else one more than the tier that
        consents to it; None where a plugin forbids it or raises, or none consents. Surplus beyond minResources needs no
        consent to make room for pods that are to come. Of other queues' units that go as willingly those go first whose
        queues give first.
        """
        if preemptor.never or unit.job.key in self._session.failed or (preemptor.ahead and not surplus(unit)):
            return None
        if self.protected(ballot, preemptor, unit):
            return None
        try:
            allowed, tier = self._session.plugins.voting.ask(ballot, preemptor, unit)
        except Exception as error:  # noqa: BLE001 -- it may be the fault of either: neither is left out for it
            report(self._session, preemptor.job, error)
            return None
        if not allowed:
            return None
        rank = None if tier is None else tier + 1
        if ballot == "preemptable" and self.may_follow(preemptor.job, unit.job) and not preemptor.intra:
            return 0
        if rank is None and preemptor.ahead and unit.job.priority <= preemptor.job.priority and overuses(unit):
            return _UNASKED
        if rank is None or ballot != "reclaimable":
            return rank
        place, places = self._session.plugins.gives_at(unit.job.queue)
        return (0 if self.expired(unit.job) else rank) * places + place

    def protected(self, ballot: str, preemptor: Preemptor, unit: Unit) -> bool:
        """Whether a guard forbids that the unit goes; notes which, if that is all that keeps it."""
        forbidding = next((guard for guard in self.guards if not guard.allow(unit)), None)
        if forbidding is None:
            return False
        self.note(ballot, preemptor, unit, forbidding.protecting(unit))
        return True

    def note(self, ballot: str, preemptor: Preemptor, unit: Unit, protecting: Iterable[tuple[Protector, str]]) -> None:
        """Keep what protects a unit, if that is all that keeps it from going for the preemptor."""
        new = [each for each in protecting if self.protections.wants(*each)]
        if not new or not self.protections.concern(unit):
            return
        try:
            allowed, tier = self._session.plugins.voting.ask(ballot, preemptor, unit)
        except Exception as error:  # noqa: BLE001 -- as in `rank`
            report(self._session, preemptor.job, error)
            return
        if allowed and (tier is not None or self.may_follow(preemptor.job, unit.job)):
            for each in new:
                self.protections.add(*each)

    def vote_key(self, ballot: str, job: JobState, task: Task, *, shared: bool) -> Hashable:
        """What the votes on a pod alone depend on: pods of one key get the same. With `shared` it may be that of pods
        of other groups: of groups that have just one pod, which nothing in this cycle changes.
        """
        if not self._session.plugins.voting.by_class(ballot):
            return task.key
        pod = (task.role, task.priority, *(guard.of(task) for guard in self.guards))
        keys = None
        if shared:
            alone = Unit(job, (task,), whole=False, request=task.cls.request)
            keys = self._session.plugins.voting.keys(ballot, alone)
        if keys is None:
            return job.key, task.cls.id, pod
        least = tuple(sorted(job.job.min_resources.items()))  # what is surplus depends on it
        return job.queue, job.priority, job.bound, job.minimum, job.job.shadow, least, task.cls.needs, pod, keys

    def keys_stand(self, ballot: str) -> bool:
        """Whether the `vote_key` of the only pod of a group stays the same while the group does."""
        return not self.guards and self._session.plugins.voting.by_class(ballot)

    def may_follow(self, job: JobState, other: JobState) -> bool:
        """Whether the job may take the place of one that has outlived its lifetime; only one that itself stays may."""
        endless = job.job.group is None or job.job.group.spec.lifetime_seconds is None
        return endless and other is not job and other.priority <= job.priority and self.expired(other)

    def deficit(self, ballot: str, preemptor: Preemptor, unit: Unit) -> Resources:
        """By how much more its queue would lack what it deserves, in what the preemptor lacks, were the unit to go.

        Only reclaim asks; empty where the queue keeps its share.
        """
        donor = self._session.queues.get(unit.job.queue) if ballot == "reclaimable" else None
        if donor is None:
            return {}
        found: Resources = {}
        for name in preemptor.lacks:
            amount = unit.request.get(name, 0)
            if amount:
                above = donor.allocated.get(name, 0) - donor.deserved.get(name, 0)
                if amount > above:
                    found[name] = amount - max(0, above)
        return found

    def above_share(self, ballot: str, preemptor: Preemptor, queue: str) -> Resources | None:
        """What the queue holds beyond what it deserves, in what the preemptor lacks: of units that go without a
        `deficit` none of it, together, is more. Below 0 where it lacks some itself. None: it keeps its share anyhow.
        """
        donor = self._session.queues.get(queue) if ballot == "reclaimable" else None
        if donor is None:
            return None
        return {name: donor.allocated.get(name, 0) - donor.deserved.get(name, 0) for name in preemptor.lacks}

    def too_young(self, job: JobState) -> bool:
        """Whether the group is within its minRuntimeSeconds."""
        until = min_runtime_end(job.job)
        if until is None:
            return False
        if self._session.now < until:
            self._session.wake.append(until)
            return True
        return False

    def expired(self, job: JobState) -> bool:
        """Whether the group has outlived its lifetimeSeconds: then it may go as a whole, whatever its disruption."""
        until = lifetime_end(job.job)
        if until is None:
            return False
        if self._session.now >= until:
            return True
        self._session.wake.append(until)
        return False


def surplus(unit: Unit) -> bool:
    """Whether the unit is one pod beyond its group's minimum, that of its role, and its minResources."""
    job = unit.job
    if unit.whole or job.bound - len(unit.tasks) < job.minimum:
        return False
    for role in job.job.roles:
        if any(task.role == role.name for task in unit.tasks) and job.role_count(role.name) <= role.min_member:
            return False
    held = job.allocated
    for task, _ in job.nominated.values():
        held = subtract(held, task.cls.request)
    kept = subtract(held, unit.request)
    return all(kept.get(name, 0) >= amount for name, amount in job.job.min_resources.items())


def overuses(unit: Unit) -> bool:
    """Whether its group says what it needs at least, and holds more: then any group of its queue may have the rest."""
    return not unit.job.job.shadow and bool(unit.job.job.min_resources)
