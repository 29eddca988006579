"""Who makes the pods of a group that do not exist yet: its roles with templates, and the batch Jobs that name it.

Each is read once, when its PodGroup or Job comes; how many of its pods are still to come is asked whenever the group's
pods have changed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import msgspec

from kbatch.api.names import SUB_GROUP_LABEL, SUSPENDED_ANNOTATION
from kbatch.api.objects import Job, Metadata, Pod, PodGroupSpec, PodSpec, PodTemplate, Toleration
from kbatch.model.jobs_release import ended, group_of, members, suspended_by_user
from kbatch.model.quota import Subject, subject_of
from kbatch.model.requests import effective_limit, effective_request
from kbatch.model.tasks import ClassTable, TaskClass
from kbatch.resources import QuantityError, Resources

_EXPRESSIONS: Final = (b"{{", b"{%")
_encode = msgspec.json.Encoder().encode


@dataclass(eq=False, slots=True)
class Template:
    """A pod template with what one pod made of it asks for.

    Attributes:
        pod: the template. role: the role that its pods will have; "" for none.
        request, limit: of one pod, in kbatch's units; shared values, not to be changed.
        subject: what the scopes of quotas see of one pod.
    """

    pod: PodTemplate
    role: str
    request: Resources
    limit: Resources
    subject: Subject
    _class: TaskClass | None = field(default=None, repr=False)
    _classed_at: int = field(default=-1, repr=False)

    def task_class(self, classes: ClassTable, namespace: str) -> TaskClass:
        """The class of its pods, but for what their spec says of other pods and of volumes.

        Terms about other pods (affinity, spread) are left out: met for the first time they would make labels count
        that did not before, and all pods would have to be classed again in the middle of a cycle. Volumes, because
        claims may be made together with the pods.
        """
        if self._class is None or self._classed_at != classes.generation:
            meta = self.pod.metadata
            metadata = Metadata(name="", namespace=namespace, labels=meta.labels, annotations=meta.annotations)
            self._class = classes.classify(Pod(metadata=metadata, spec=_by_itself(self.pod.spec)))
            self._classed_at = classes.generation
        return self._class


@dataclass(frozen=True, slots=True)
class ToCome:
    """Pods of one template that do not exist yet.

    Attributes:
        template: what they are made of. count: how many of them there will be.
        sure: they are made as soon as the group is in queue: by kbatch itself, or by a Job that kbatch holds.
    """

    template: Template
    count: int
    sure: bool


@dataclass(frozen=True, slots=True)
class Size:
    """How many members a role has: at least `base`, at most `most`."""

    role: str
    base: int
    most: int


def sizes(spec: PodGroupSpec) -> tuple[Size, ...]:
    """The roles with templates. Where the roles' minimums are less than the group's, the first roles with room for it
    make up the difference.
    """
    roles = spec.sub_groups or ()
    missing = max(0, spec.min_member - sum(role.min_member for role in roles))
    found: list[Size] = []
    for role in roles:
        if role.template is None:
            continue
        most = role.max_member if role.max_member is not None else role.min_member
        more = min(missing, max(0, most - role.min_member))
        missing -= more
        found.append(Size(role.name, role.min_member + more, max(most, role.min_member)))
    return tuple(found)


def of_roles(spec: PodGroupSpec) -> tuple[tuple[Template, int], ...]:
    """The templates of the roles, each with the number of pods that are made of it as soon as the group is in queue.

    Templates that cannot be read are left out: whoever makes pods of them will say so.
    """
    base = {size.role: size.base for size in sizes(spec)}
    found: list[tuple[Template, int]] = []
    for role in spec.sub_groups or ():
        template = _of_role(role.template, role.name) if base.get(role.name) else None
        if template is not None:
            found.append((template, base[role.name]))
    return tuple(found)


def _of_role(raw: dict[str, Any] | None, role: str) -> Template | None:
    try:
        return read_template(msgspec.convert(raw, PodTemplate), role)
    except (msgspec.ValidationError, QuantityError):
        return None


def read_template(pod: PodTemplate, role: str) -> Template:
    """A template as it is counted.

    Raises:
        QuantityError: what its pods ask for cannot be read.
    """
    return Template(pod, role, effective_request(pod.spec), effective_limit(pod.spec), subject_of(pod.spec))


@dataclass(eq=False, slots=True)
class Maker:
    """A batch Job whose pods belong to a PodGroup.

    Attributes:
        name, uid: of the Job.
        template: None where what its pods ask for cannot be read, so that nothing can be said of them.
        parallel: how many of its pods run at a time. completions: how many are to succeed in all; None: any number.
        succeeded: how many have, as its status says: some of them may be gone.
        withheld: its user has suspended it, and only its user resumes it; or it makes no pods (parallelism 0).
        ended: it makes no more pods.
        sure: kbatch resumes it, or has: it carries kbatch's mark.
    """

    name: str
    uid: str
    template: Template | None
    parallel: int
    completions: int | None
    succeeded: int
    withheld: bool
    ended: bool
    sure: bool

    def like(self, other: Maker) -> bool:
        """Whether the other says the same of pods to come."""
        return self._said() == other._said()

    def _said(self) -> tuple[object, ...]:
        pod = self.template.pod if self.template is not None else None
        return (
            self.name, self.uid, pod, self.parallel, self.completions, self.succeeded, self.withheld, self.ended,
            self.sure,
        )  # fmt: skip

    def gone(self, succeeded: Iterable[Pod]) -> int:
        """How many pods of it have succeeded and are there no more; `succeeded`: the group's pods that are.

        Whoever cleans up finished pods, or scales nodes down, deletes them: the Job has counted them.
        """
        if not self.succeeded:
            return 0
        there = [key for pod in succeeded for key in jobs_of(pod)].count(self.uid or self.name)
        return max(0, self.succeeded - there)

    def left(self, alive: int, succeeded: int) -> int:
        """How many pods it will make beside those that exist: `alive` ones, and such as `succeeded`."""
        if self.ended or self.withheld:
            return 0
        succeeded = max(succeeded, self.succeeded)
        if self.completions is None:
            # A Job without completions makes no more pods once one has succeeded.
            return 0 if succeeded else max(0, self.parallel - alive)
        return max(0, min(self.parallel, self.completions - succeeded) - alive)


def jobs_of(pod: Pod) -> list[str]:
    """The Jobs that control the pod, by uid, by name where they have none."""
    owners = pod.metadata.owner_references
    return [owner.uid or owner.name for owner in owners if owner.controller and owner.kind == "Job"]


def group_key_of(job: Job, scheduler_name: str) -> str:
    """The key (`namespace/name`) of the PodGroup that the Job's pods belong to; "" where they are not ours."""
    if job.spec.template.spec.scheduler_name != scheduler_name:
        return ""
    name = group_of(job, scheduler_name)
    return f"{job.metadata.namespace}/{name}" if name else ""


def maker_of(job: Job) -> Maker:
    """What is to be expected of a Job."""
    meta, spec = job.metadata, job.spec
    try:
        template = read_template(spec.template, (spec.template.metadata.labels or {}).get(SUB_GROUP_LABEL, ""))
    except QuantityError:
        template = None
    parallel = 1 if spec.parallelism is None else spec.parallelism
    return Maker(
        name=meta.name,
        uid=meta.uid,
        template=template,
        parallel=parallel,
        # As the API server's defaults have it: neither is given, and it is one pod once.
        completions=1 if spec.completions is None and spec.parallelism is None else spec.completions,
        succeeded=job.status.succeeded,
        withheld=suspended_by_user(job) or not members(job),
        ended=ended(job) or meta.deletion_timestamp is not None,
        sure=SUSPENDED_ANNOTATION in (meta.annotations or {}),
    )


NO_MAKERS: Final[Mapping[str, Maker]] = MappingProxyType({})
"""Of a group that no Job names."""


class MakerIndex:
    """The batch Jobs that name groups, by group.

    Args:
        scheduler_name: of the pods that are ours.
    """

    def __init__(self, scheduler_name: str) -> None:
        self._scheduler_name: Final = scheduler_name
        self._by_group: dict[str, dict[str, Maker]] = {}
        self._group_of: dict[str, str] = {}

    def upsert(self, job: Job, key: str) -> tuple[str, ...]:
        """Take over a Job; the keys of the groups for which it matters."""
        group = group_key_of(job, self._scheduler_name)
        left = self.remove(key) if self._group_of.get(key, group) != group else ()
        if not group:
            return left
        known = self._by_group.setdefault(group, {})
        old, new = known.get(job.metadata.name), maker_of(job)
        if old is not None and old.like(new):
            return left
        known[job.metadata.name] = new
        self._group_of[key] = group
        return (*left, group)

    def remove(self, key: str) -> tuple[str, ...]:
        """The Job of that key is gone, or its pods belong to no group any more; the group for which it matters."""
        group = self._group_of.pop(key, None)
        if group is None:
            return ()
        makers = self._by_group[group]
        del makers[key.rpartition("/")[2]]
        if not makers:
            del self._by_group[group]
        return (group,)

    def of(self, group: str) -> Mapping[str, Maker]:
        """Those whose pods belong to the group of that key, by name."""
        return self._by_group.get(group, NO_MAKERS)


def as_group_sees(subject: Subject, priority_class: str) -> Subject:
    """Pods without a PriorityClass of their own are charged by their group's."""
    return subject if subject.priority_class else dataclasses.replace(subject, priority_class=priority_class)


def common_subject(templates: Sequence[Template], priority_class: str) -> Subject | None:
    """What scopes see of the pods of all these templates; None where they look different, or there are none."""
    subjects = {as_group_sees(template.subject, priority_class) for template in templates}
    return subjects.pop() if len(subjects) == 1 else None


def _by_itself(spec: PodSpec) -> PodSpec:
    """The spec without what it says of other pods and of volumes.

    Where texts that choose nodes are rendered for each pod, nothing is known of its nodes: it may go anywhere.
    """
    affinity = spec.affinity
    if any(mark in _encode((spec.node_selector, affinity, spec.tolerations)) for mark in _EXPRESSIONS):
        anywhere = (Toleration(operator="Exists"),)
        return msgspec.structs.replace(
            spec,
            node_selector=None,
            affinity=None,
            tolerations=anywhere,
            topology_spread_constraints=None,
            volumes=None,
        )
    if affinity is not None and (affinity.pod_affinity or affinity.pod_anti_affinity):
        affinity = msgspec.structs.replace(affinity, pod_affinity=None, pod_anti_affinity=None)
    elif not spec.topology_spread_constraints and not spec.volumes:
        return spec
    return msgspec.structs.replace(spec, affinity=affinity, topology_spread_constraints=None, volumes=None)
