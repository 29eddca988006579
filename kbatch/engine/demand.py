"""What a group needs at least before it exists: from minResources, else from its pods and templates; and its quotas."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from kbatch.api.names import GROUP_NAME_ANNOTATION, IN_QUEUE_GATE
from kbatch.api.objects import Job, PodSpec, ResourceQuota
from kbatch.engine.planning import next_tasks, unplaced
from kbatch.engine.state import JobState
from kbatch.model import quota as quotas
from kbatch.model.quota import Ask, Excess
from kbatch.model.requests import effective_request
from kbatch.model.tasks import Task
from kbatch.resources import QuantityError, Resources, add, scale, subtract, total

if TYPE_CHECKING:
    from kbatch.engine.session import Session


def needs(session: Session, job: JobState) -> Resources | None:
    """What the group still needs at least, `pods` left out; None where nothing says what it needs.

    Its minResources less what its own pods hold; without minResources, the missing part of its minimum: pods that
    exist first (those that only wait for it to be in queue too), then what its templates would make.
    """
    model = job.job
    if model.min_resources:
        return dict(model.outstanding)
    waiting = next_tasks(job, [*unplaced(job), *_behind_our_gate(job)])
    found = total(task.cls.request for task in waiting)
    missing = job.missing() - len(waiting)
    if missing > 0:
        coming = _of_templates(session, job, missing)
        if coming is None:
            return None  # it could not run with what exists and what is to come
        found = add(found, coming)
    return found


def _of_templates(session: Session, job: JobState, count: int) -> Resources | None:
    """What this many pods of the group's templates would ask for; None where its templates make fewer."""
    found: Resources = {}
    for spec, most in _templates(session, job):
        taken = min(count, most)
        count -= taken
        found = add(found, scale(effective_request(spec), taken))
    return found if count <= 0 else None


def to_come(session: Session, job: JobState) -> list[tuple[Resources, int]]:
    """Of each template of the group one pod's request, and how many of it the minimum cannot do without."""
    missing = job.missing() - len(job.job.waiting) + len(job.placed) + len(job.nominated)
    if missing <= 0:
        return []
    templates = list(_templates(session, job))
    spare = sum(most for _, most in templates) - missing
    return [(effective_request(spec), most - spare) for spec, most in templates if most > spare]


def _behind_our_gate(job: JobState) -> list[Task]:
    """Pods that could be placed but for the gate that is removed when the group is in queue; in the order of names."""
    if not job.gated:
        return []
    return sorted(
        (
            task
            for task in job.job.waiting
            if task.gated and all(gate.name == IN_QUEUE_GATE for gate in task.pod.spec.scheduling_gates or ())
        ),
        key=lambda task: task.key,
    )


def _templates(session: Session, job: JobState) -> Iterable[tuple[PodSpec, int]]:
    """Pods to come: of each role with a template its minimum, and those of the suspended Jobs that name the group."""
    group = job.job.group
    for role in (group.spec.sub_groups or ()) if group is not None else ():
        if role.template is not None:
            existing = sum(1 for task in job.job.tasks.values() if task.role == role.name)
            spec = _spec_of(role.template)
            if spec is not None and role.min_member > existing:
                yield spec, role.min_member - existing
    yield from session.job_templates(job.key)


def _spec_of(template: dict[str, Any]) -> PodSpec | None:
    try:
        return msgspec.convert(template.get("spec", {}), PodSpec)
    except msgspec.ValidationError:
        return None


def index_templates(objects: Iterable[object]) -> dict[str, list[tuple[PodSpec, int]]]:
    """Templates of suspended Jobs by the key of the group that they name, each with how many pods it is for."""
    found: dict[str, list[tuple[PodSpec, int]]] = {}
    for job in objects:
        if isinstance(job, Job) and job.spec.suspend:
            name = (job.spec.template.metadata.annotations or {}).get(GROUP_NAME_ANNOTATION)
            if name:
                count = job.spec.parallelism if job.spec.parallelism is not None else 1
                key = f"{job.metadata.namespace}/{name}"
                found.setdefault(key, []).append((job.spec.template.spec, count))
    return found


class Quotas:
    """The ResourceQuotas, with what groups in queue were promised and do not use yet."""

    def __init__(self, session: Session) -> None:
        self._by_namespace: dict[str, list[ResourceQuota]] = {}
        for _, found in sorted(session.model.objects.get(ResourceQuota, {}).items()):
            if isinstance(found, ResourceQuota):
                self._by_namespace.setdefault(found.metadata.namespace, []).append(found)
        self._session = session
        self._promised: dict[str, Resources] = {}

    def exceeded(self, job: JobState) -> Excess | None:
        """The first limit that the group would pass."""
        found = self._by_namespace.get(job.job.namespace)
        if not found:
            return None
        ask = _ask(self._session, job)
        for quota in found:
            try:
                charge = quotas.charge(quota, ask)
                passed = quotas.exceeded(
                    quota, charge, self._promised.get(quota.metadata.uid or quota.metadata.name, {})
                )
            except QuantityError:
                continue  # a quota that cannot be read limits nobody; the API server would not have taken it
            if passed:
                return passed[0]
        return None

    def promise(self, job: JobState) -> None:
        """The group is in queue: what it has not used yet is kept for it."""
        for quota in self._by_namespace.get(job.job.namespace, ()):
            key = quota.metadata.uid or quota.metadata.name
            try:
                self._promised[key] = add(self._promised.get(key, {}), quotas.charge(quota, _ask(self._session, job)))
            except QuantityError:
                continue


def _ask(session: Session, job: JobState) -> Ask:
    """What the group asks of quotas beyond the pods that exist: those the quotas already count."""
    group = job.job.group
    if group is None:
        return Ask({})
    alive = [task for task in job.job.tasks.values() if not task.terminal]
    missing = max(0, job.minimum - len(alive) - job.job.succeeded)
    if not job.job.min_quota:
        coming = _of_templates(session, job, missing)
        return quotas.ask_of_group(coming or {}, missing, group.spec.priority_class_name)
    ask = quotas.ask_of_group(job.job.min_quota, missing, group.spec.priority_class_name)
    own = [Ask(task.cls.request, {}, 0) for task in alive]
    return Ask(subtract(ask.requests, add(*(part.requests for part in own))), ask.limits, ask.pods, ask.subject)
