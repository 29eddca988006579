"""What a group needs at least before it exists: from minResources, else from its pods and templates; and its quotas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from kbatch.api.names import GROUP_NAME_ANNOTATION, IN_QUEUE_GATE, SUB_GROUP_LABEL, SUSPENDED_ANNOTATION
from kbatch.api.objects import Job, PodTemplate, ResourceQuota
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.minimum import next_tasks, unplaced
from kbatch.model import quota as quotas
from kbatch.model.jobs_release import RELEASED
from kbatch.model.quota import Ask, Excess
from kbatch.model.requests import effective_request
from kbatch.model.tasks import Task
from kbatch.resources import QuantityError, Resources, add, scale, subtract, total

if TYPE_CHECKING:
    from kbatch.engine.session.session import Session


@dataclass(frozen=True, slots=True)
class ToCome:
    """Pods of one template that do not exist yet.

    Attributes:
        template: what they are made of. request: what one of them asks for.
        count: how many there will be at most, or for a role how many its minimum lacks.
        role: the role that they will have.
        sure: they are made as soon as the group is in queue, by kbatch itself or because it resumes their Job.
    """

    template: PodTemplate
    request: Resources
    count: int
    role: str
    sure: bool


def needs(session: Session, job: JobState) -> Resources | None:
    """What the group still needs at least, `pods` left out; None where nothing says what it needs.

    Its minResources less what its own pods hold; without minResources, the missing part of its minimum: pods that
    exist first (those that only wait for it to be in queue too), then what its templates would make.
    """
    model = job.job
    if model.min_resources:
        return dict(model.outstanding)
    waiting = _next_tasks(session, job)
    found = total(task.cls.request for task in waiting)
    missing = job.missing() - len(waiting)
    if missing > 0:
        coming = _of_templates(session, job, missing)
        if coming is None:
            return None  # it could not run with what exists and what is to come
        found = add(found, coming)
    return found


def _next_tasks(session: Session, job: JobState) -> list[Task]:
    """The tasks that the minimum would take, of those that some node and the queue's capability could hold by
    themselves; where these are too few, of all.
    """
    tasks = [*unplaced(job), *_behind_our_gate(job)]
    found = next_tasks(job, tasks)
    if len(found) == len(tasks):
        return found
    queue = session.queues.get(job.queue)
    hard = (queue.record.capability or {}) if queue is not None else {}
    large = {cls.id for cls in {task.cls for task in found} if not session.could_hold(cls, hard)}
    if not large:
        return found
    large = {cls.id for cls in {task.cls for task in tasks} if not session.could_hold(cls, hard)}
    others = next_tasks(job, [task for task in tasks if task.cls.id not in large])
    return others if len(others) == len(found) else found


def _of_templates(session: Session, job: JobState, count: int) -> Resources | None:
    """What this many pods of the group's templates would ask for; None where its templates make fewer."""
    found: Resources = {}
    for pods in templates(session, job):
        taken = min(count, pods.count)
        count -= taken
        found = add(found, scale(pods.request, taken))
    return found if count <= 0 else None


def to_come(session: Session, job: JobState) -> list[tuple[Resources, int]]:
    """Of each template of the group one pod's request, and how many of it the minimum cannot do without."""
    missing = job.missing() - len(job.job.waiting) + len(job.placed) + len(job.nominated)
    if missing <= 0:
        return []
    found = list(templates(session, job))
    spare = sum(pods.count for pods in found) - missing
    return [(pods.request, pods.count - spare) for pods in found if pods.count > spare]


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


def templates(session: Session, job: JobState) -> Iterator[ToCome]:
    """Pods to come: of each role with a template its minimum, and those of the suspended Jobs that name the group.

    Templates that cannot be read are left out: whoever makes pods of them will say so.
    """
    group = job.job.group
    for role in (group.spec.sub_groups or ()) if group is not None else ():
        if role.template is not None:
            existing = sum(1 for task in job.job.tasks.values() if task.role == role.name)
            if role.min_member > existing:
                pods = _of_role(role.template, role.min_member - existing, role.name)
                if pods is not None:
                    yield pods
    yield from session.job_templates(job.key)


def _of_role(raw: dict[str, Any], count: int, role: str) -> ToCome | None:
    try:
        template = msgspec.convert(raw, PodTemplate)
        return ToCome(template, effective_request(template.spec), count, role, sure=True)
    except (msgspec.ValidationError, QuantityError):
        return None


def index_templates(objects: Iterable[object]) -> dict[str, list[ToCome]]:
    """Pods to come of suspended Jobs, by the key of the group that their template names."""
    found: dict[str, list[ToCome]] = {}
    for job in objects:
        if not isinstance(job, Job) or not job.spec.suspend:
            continue
        template = job.spec.template
        name = (template.metadata.annotations or {}).get(GROUP_NAME_ANNOTATION)
        if not name:
            continue
        try:
            request = effective_request(template.spec)
        except QuantityError:
            continue
        mark = (job.metadata.annotations or {}).get(SUSPENDED_ANNOTATION, RELEASED)
        role = (template.metadata.labels or {}).get(SUB_GROUP_LABEL, "")
        count = job.spec.parallelism if job.spec.parallelism is not None else 1
        pods = ToCome(template, request, count, role, sure=mark != RELEASED)
        found.setdefault(f"{job.metadata.namespace}/{name}", []).append(pods)
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
