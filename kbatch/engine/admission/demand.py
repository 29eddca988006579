"""What a group needs in a session, and the ResourceQuotas beside it. What it asks for says `kbatch.model.demand`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kbatch.api.objects import ResourceQuota
from kbatch.engine.carryover.backlog import Asked
from kbatch.engine.session.session import Session
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.minimum import next_tasks, unplaced
from kbatch.model import quota as quotas
from kbatch.model.jobs import Job
from kbatch.model.quota import Excess
from kbatch.model.tasks import Task
from kbatch.resources import QuantityError, Resources, add, subtract, total


class Needs(msgspec.Struct, frozen=True):
    """What a group still needs, `pods` left out.

    Attributes:
        least: what must be there for it to come in queue: in no dimension can its minimum do with less.
        kept: what is kept for it once it is in queue: what its minimum asks for as its pods are placed by default, so
            that nobody who comes in after it takes room that it is about to use. It may be more than there is.
    """

    least: Resources
    kept: Resources


def needs(session: Session, job: JobState) -> Needs | None:
    """What the group still needs; None where nothing says what it needs."""
    if job.job.min_resources:  # known already, without a look at each of its pods
        least = kept = job.job.outstanding
    else:
        demand = session.model.demand(job.job)
        if demand.room is None or demand.least is None:
            return None
        least, kept = demand.least, demand.room
    if job.placed or job.nominated:
        here = total(task.cls.request for task, _ in (*job.placed.values(), *job.nominated.values()))
        least, kept = subtract(least, here), subtract(kept, here)
    if not job.job.min_resources:
        possible = _of_the_possible(session, job)
        kept = kept if possible is None else total(task.cls.request for task in possible)
        hard = _capability(session, job)  # beyond it nothing can be used
        kept = {name: min(amount, hard.get(name, amount)) for name, amount in kept.items()} if hard else kept
    return Needs(least, kept)


def _of_the_possible(session: Session, job: JobState) -> list[Task] | None:
    """The tasks that the minimum would take without those that no node, or not the queue's capability, could hold even
    by themselves; None where there are none of these, or where the others are too few.
    """
    classes = {task.cls for task in job.waiting}
    if len(classes) < 2:
        return None
    hard = _capability(session, job)
    large = {cls.id for cls in classes if not session.could_hold(cls, hard)}
    if not large:
        return None
    found = next_tasks(job, [task for task in unplaced(job) if task.cls.id not in large])
    return found if len(found) >= job.missing() else None


def _capability(session: Session, job: JobState) -> Resources:
    queue = session.queues.get(job.queue)
    return (queue.record.capability or {}) if queue is not None else {}


class Quotas:
    """The ResourceQuotas, with what groups in queue were promised and do not use yet.

    Attributes:
        moves: how often more was promised.
    """

    def __init__(self, session: Session) -> None:
        self._by_namespace: dict[str, list[ResourceQuota]] = {}
        for _, found in sorted(session.model.objects.get(ResourceQuota, {}).items()):
            if isinstance(found, ResourceQuota):
                self._by_namespace.setdefault(found.metadata.namespace, []).append(found)
        self._session = session
        self._promised: dict[str, Resources] = {}
        self.moves = 0

    def of(self, namespace: str) -> Sequence[ResourceQuota]:
        """Those of a namespace."""
        return self._by_namespace.get(namespace, ())

    def mark(self, namespace: str) -> object:
        """What decides, of two that ask for the same in a namespace, that both would pass a quota or neither."""
        found = self._by_namespace.get(namespace)
        if found is None:
            return ()
        return tuple(
            (quota.spec, quota.status, tuple(sorted(self._promised.get(_key(quota), {}).items()))) for quota in found
        )

    def asked_of(self, job: Job) -> Asked:
        """What a group asks of those of its namespace."""
        ask = self._session.model.quota_ask(job)
        content = tuple(sorted(ask.requests.items())), tuple(sorted(ask.limits.items())), ask.pods, ask.subject
        return Asked(job.namespace, content, ask)

    def exceeded(self, asked: Asked) -> Excess | None:
        """The first limit that a group would pass that asks for this."""
        for quota in self.of(asked.namespace):
            try:
                passed = quotas.exceeded(quota, quotas.charge(quota, asked.ask), self._promised.get(_key(quota), {}))
            except QuantityError:
                continue  # a quota that cannot be read limits nobody; the API server would not have taken it
            if passed:
                return passed[0]
        return None

    def promise(self, asked: Asked) -> None:
        """A group that asks for this is in queue: what it has not used yet is kept for it."""
        self.moves += 1
        for quota in self.of(asked.namespace):
            key = _key(quota)
            try:
                self._promised[key] = add(self._promised.get(key, {}), quotas.charge(quota, asked.ask))
            except QuantityError:
                continue


def _key(quota: ResourceQuota) -> str:
    return quota.metadata.uid or f"{quota.metadata.namespace}/{quota.metadata.name}"
