"""Short ways to make the objects that the tests speak of."""

from __future__ import annotations

from kbatch.api.names import GROUP_NAME_ANNOTATION, SUB_GROUP_LABEL
from kbatch.api.objects import (
    Condition,
    Container,
    Job,
    JobSpec,
    JobStatus,
    Metadata,
    OwnerReference,
    Pod,
    PodCondition,
    PodGroup,
    PodGroupSpec,
    PodGroupStatus,
    PodSpec,
    PodStatus,
    PodTemplate,
    ResourceRequirements,
    SubGroup,
)
from kbatch.model.events import Upsert
from operators.podgroup.member_index import MemberIndex

NOW = "2026-11-21T12:00:00Z"


def group(
    minimum: int = 2,
    *,
    roles: dict[str, int] | None = None,
    conditions: tuple[Condition, ...] = (),
    phase: str = "",
    owner: str = "",
    version: str = "1",
    uid: str = "g",
) -> PodGroup:
    """The PodGroup ns/pg."""
    return PodGroup(
        metadata=Metadata(
            namespace="ns",
            name="pg",
            uid=uid,
            resource_version=version,
            generation=1,
            owner_references=(OwnerReference(kind="Job", uid=owner, controller=True),) if owner else (),
        ),
        spec=PodGroupSpec(
            min_member=minimum,
            sub_groups=tuple(SubGroup(name=name, min_member=least) for name, least in roles.items()) if roles else None,
        ),
        status=PodGroupStatus(phase=phase, conditions=conditions or None),
    )


def pod(
    name: str,
    phase: str = "Pending",
    *,
    node: str = "",
    role: str = "",
    leaving: bool = False,
    controller: str = "",
    cpu: str = "500m",
    named: str = "pg",
) -> Pod:
    """A member of ns/pg."""
    return Pod(
        metadata=Metadata(
            namespace="ns",
            name=name,
            uid=f"uid-{name}",
            annotations={GROUP_NAME_ANNOTATION: named} if named else None,
            labels={SUB_GROUP_LABEL: role} if role else None,
            owner_references=(OwnerReference(kind="Job", uid=controller, controller=True),) if controller else (),
            deletion_timestamp="2026-11-21T11:59:00Z" if leaving else None,
        ),
        spec=PodSpec(
            node_name=node,
            containers=(Container(name="c", resources=ResourceRequirements(requests={"cpu": cpu})),),
        ),
        status=PodStatus(phase=phase),
    )


def job(uid: str = "j", *, name: str = "job", ended: str = "", named: str = "pg") -> Job:
    """A Job whose template names ns/pg; `ended` is Complete or Failed."""
    return Job(
        metadata=Metadata(namespace="ns", name=name, uid=uid),
        spec=JobSpec(
            template=PodTemplate(metadata=Metadata(annotations={GROUP_NAME_ANNOTATION: named} if named else None))
        ),
        status=JobStatus(conditions=(PodCondition(type=ended, status="True"),) if ended else None),
    )


def condition(type_: str, status: str = "True", reason: str = "r", message: str = "") -> Condition:
    """A condition that has stood since long ago."""
    since = "2026-01-01T00:00:00Z"
    return Condition(type=type_, status=status, reason=reason, message=message, last_transition_time=since)


def index(*objects: Pod | Job | PodGroup) -> MemberIndex:
    """An index in which these were seen, in this order."""
    seen = MemberIndex()
    for one in objects:
        seen.apply(Upsert(one))
    return seen
