"""PodGroup: pods that are placed together or not at all. The typed model, from which its CRD is generated."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field

from kbatch.api.names import DEFAULT_QUEUE
from kbatch.api.objects import MOST_OBJECTS
from kbatch.api.schema import (
    MOST_MEMBERS,
    MOST_ROLES,
    MOST_SECONDS,
    ApiModel,
    Conditions,
    Count,
    DnsLabel,
    DnsName,
    PrinterColumn,
    ResourceList,
    Rule,
    StatusResourceList,
    Time,
    Usage,
)

_INT32: Final = {"format": "int32"}
_INT64: Final = {"format": "int64"}
MOST_FAILURES: Final = 100
MOST_NODES: Final = 64
_OBJECT: Final = {
    # Not an embedded resource: its names and labels may hold expressions, which are no names yet.
    "type": "object",
    "x-kubernetes-preserve-unknown-fields": True,
    "required": ["apiVersion", "kind", "metadata"],
    "properties": {
        "apiVersion": {
            "description": "Group and version of the object's kind, such as v1 or networking.k8s.io/v1.",
            "type": "string",
            "maxLength": 316,
            "pattern": r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?v[a-z0-9]+$",
        },
        "kind": {
            "description": "The object's kind; the chart's values say which ones can be made.",
            "type": "string",
            "maxLength": 63,
            "pattern": r"^[A-Z][A-Za-z0-9]*$",
        },
        "metadata": {
            "description": "Its name, labels and annotations; the namespace is the group's.",
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"description": "Its name.", "type": "string", "minLength": 1, "maxLength": 1024},
                "labels": {
                    "description": "Its labels.", "type": "object", "additionalProperties": {"type": "string"},
                },
                "annotations": {
                    "description": "Its annotations.", "type": "object", "additionalProperties": {"type": "string"},
                },
            },
        },
    },
}  # fmt: skip


class Disruption(StrEnum):
    """What of a running group may be evicted."""

    SURPLUS = "Surplus"
    WHOLE = "Whole"
    NEVER = "Never"


class TopologyMode(StrEnum):
    """Whether closeness is a condition or a wish."""

    REQUIRED = "Required"
    PREFERRED = "Preferred"


class PodGroupPhase(StrEnum):
    """Where in its life a group stands."""

    PENDING = "Pending"
    IN_QUEUE = "InQueue"
    RUNNING = "Running"
    UNKNOWN = "Unknown"
    COMPLETED = "Completed"
    FAILED = "Failed"


class Topology(ApiModel):
    """How close together pods must stand in the network."""

    max_hops: Annotated[int, Field(ge=0, le=64, json_schema_extra=_INT32)] | None = None
    """The most hops between any two pods: 0 on the same node, 2 in the same innermost domain, and so on, two more for
    each level; odd numbers count as the even one below. Without it, as few as can be had.
    """
    mode: TopologyMode | None = None
    """`Required`: rather wait than stand further apart. `Preferred`: as close as there is room. Where it is not given,
    Required with maxHops, else Preferred.
    """


class SubGroup(ApiModel):
    """A role: identical pods of a group, with a minimum and a maximum of their own."""

    name: DnsLabel
    """The role's name; pods carry it in the label kbatch.dev/sub-group."""
    min_member: Annotated[int, Field(ge=0, le=MOST_MEMBERS, json_schema_extra=_INT32)] = 0
    """Pods of this role without which the group does not start."""
    max_member: Annotated[int, Field(ge=1, le=MOST_MEMBERS, json_schema_extra=_INT32)] | None = None
    """The most pods of this role, started as room lasts. Where it is not given, a template makes as many as the
    minimum, and of pods that others make any number may start.
    """
    template: dict[str, Any] | None = Field(
        default=None,
        json_schema_extra={
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
        },
    )
    """A pod template. With it the operator creates the pods when the group is in queue; without it others do."""
    topology: Topology | None = None
    """How close the pods of this role must stand to one another."""
    exclusive: bool | None = None
    """Whether the role's pods want their nodes for the group alone; see the group's."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            expression="!has(self.maxMember) || !has(self.minMember) || self.maxMember >= self.minMember",
            message_expression="'maxMember %d is below minMember %d'.format([self.maxMember, self.minMember])",
            message="maxMember must not be below minMember",
            field_path=".maxMember",
        ),
    )


class PodGroupSpec(ApiModel):
    """What the user asks for."""

    min_member: Annotated[int, Field(ge=1, le=MOST_MEMBERS, json_schema_extra=_INT32)] = 1
    """Pods that must be placed together. With roles, the group's minimum is the larger of it and the sum of theirs."""
    queue: DnsName = DEFAULT_QUEUE
    """The Queue that the group belongs to. It cannot change once the group runs."""
    priority_class_name: Annotated[str, Field(max_length=253)] | None = None
    """The PriorityClass whose value is the group's priority, but never more than each of its pods was admitted with;
    without one, the lowest priority of its pods.
    """
    min_resources: ResourceList | None = None
    """What must be had before the group's pods are let in; filled in where it can be derived from templates."""
    sub_groups: (
        Annotated[
            list[SubGroup],
            Field(
                max_length=MOST_ROLES,
                json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
            ),
        ]
        | None
    ) = None
    """The roles of the group, by unique names. It is placed when every role has its minimum."""
    objects: (
        Annotated[
            list[Annotated[dict[str, Any], Field(json_schema_extra=_OBJECT)]],
            Field(max_length=MOST_OBJECTS, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
        ]
        | None
    ) = None
    """Services, ConfigMaps and the like that share the group's life, rendered as templates are: made when the group is
    in queue, before pods are made or let go, and deleted when it is over.
    """
    suspend: bool | None = None
    """Whether the group is held back: it keeps no place, and pods made from its templates are taken back. Pods that
    others made run on, and Jobs are suspended by themselves.
    """
    lifetime_seconds: Annotated[int, Field(ge=0, le=MOST_SECONDS, json_schema_extra=_INT64)] | None = None
    """How long after its start the group may be preempted for others; 0 from the start, never where it is not given."""
    min_runtime_seconds: Annotated[int, Field(ge=0, le=MOST_SECONDS, json_schema_extra=_INT64)] = 0
    """How long after its start the group is no victim, whatever else holds."""
    disruption: Disruption = Disruption.SURPLUS
    """What may be evicted. `Surplus`: pods above the minimum. `Whole`: these, or the group as one. `Never`: none."""
    topology: Topology | None = None
    """How close all pods of the group must stand."""
    exclusive: bool | None = None
    """Whether the group's pods want their nodes for themselves: no pod of another group that kbatch schedules stands
    there, nor comes there later. Other schedulers' pods do.
    """
    minimum_lost_seconds: Annotated[int, Field(ge=0, le=MOST_SECONDS, json_schema_extra=_INT64)] | None = None
    """How long a group that has run and lost members stays below its minimum, or a role's, before what is left of it is
    evicted as one and it queues again; 0: at once. Where it is not given, what is left stays.
    """
    bad_node_limit: Annotated[int, Field(ge=1, le=MOST_FAILURES, json_schema_extra=_INT32)] = 2
    """A node on which so many of the group's pods failed is avoided by the group from then on."""
    schedule_timeout_seconds: Annotated[int, Field(ge=1, le=MOST_SECONDS, json_schema_extra=_INT64)] = 300
    """How long the group may be in queue without being whole before its resources are released."""
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=MOST_SECONDS, json_schema_extra=_INT64)] | None = None
    """How long after it has completed or failed the group is deleted, with the pods that were made from its templates;
    never where it is not given.
    """


class SubGroupStatus(ApiModel):
    """The pods of one role."""

    name: str
    """The role."""
    running: Count = 0
    """Pods that run."""
    succeeded: Count = 0
    """Pods that ended well."""
    failed: Count = 0
    """Pods that ended badly."""
    pending: Count = 0
    """Pods that wait for a node or for their start."""


class MadeObject(ApiModel):
    """An object that was made for a group."""

    api_version: str
    """Group and version of its kind."""
    kind: str
    """Its kind."""
    name: str
    """Its name."""


class NodeFailures(ApiModel):
    """What failed on one node."""

    node: Annotated[str, Field(max_length=253)]
    """The node."""
    pods: Annotated[
        list[Annotated[str, Field(max_length=64)]],
        Field(max_length=MOST_FAILURES, json_schema_extra={"x-kubernetes-list-type": "set"}),
    ]
    """The uids of the group's pods that failed there; no more than badNodeLimit."""


class FinishedRole(ApiModel):
    """The members of a role with a template that have ended well."""

    name: str
    """The role."""
    indexes: Annotated[str, Field(max_length=65536)]
    """Their numbers, as ranges: `0-3,7`."""


class StartBasis(StrEnum):
    """What an estimated start is made of."""

    RESERVATION = "reservation"
    HISTORY = "history"
    UNKNOWN = "unknown"


class EstimatedStart(ApiModel):
    """When a group that waits is to start."""

    time: Time | None = None
    """The instant that is planned, if the pods that it waits for end when expected; by history half start by then."""
    latest: Time | None = None
    """By then it starts nine times out of ten."""
    basis: StartBasis
    """reservation: the start is planned, and all ends are known that it counts on. history: learned from groups that
    came before. unknown: room is kept, and nobody knows when all of it comes free."""


class PodGroupStatus(ApiModel):
    """What kbatch sees and decided."""

    phase: PodGroupPhase | None = None
    """Where in its life the group stands."""
    running: Count = 0
    """Members that run."""
    succeeded: Count = 0
    """Members that ended well."""
    failed: Count = 0
    """Members that ended badly."""
    pending: Count = 0
    """Members that wait for a node or for their start."""
    sub_groups: (
        Annotated[
            list[SubGroupStatus],
            Field(json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}),
        ]
        | None
    ) = None
    """The same, role by role."""
    objects: Annotated[list[MadeObject], Field(json_schema_extra={"x-kubernetes-list-type": "atomic"})] | None = None
    """The objects of spec.objects that were made and not yet deleted."""
    allocated: StatusResourceList | None = None
    """What the members that have a node hold."""
    conditions: Conditions | None = None
    """Enqueued, Scheduled and Unschedulable by the scheduler; Completed, Failed and Stalled by the operator."""
    scheduling_attempts: Count = 0
    """How often the group was sent back since it was last whole: not whole in time, or broken for too long."""
    excess_charged: Usage | None = None
    """Resource-minutes that the group takes of its queue's excessBudget, as long as it is in queue or runs."""
    node_failures: (
        Annotated[
            list[NodeFailures],
            Field(
                max_length=MOST_NODES,
                json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["node"]},
            ),
        ]
        | None
    ) = None
    """Where members failed by themselves. Nodes with badNodeLimit of them are avoided."""
    finished: (
        Annotated[
            list[FinishedRole],
            Field(json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}),
        ]
        | None
    ) = None
    """Members made from templates that have ended well: they count, and are not run again, when their pods are gone."""
    estimated_start: EstimatedStart | None = None
    """When the group is to start; only while it waits, and somebody knows."""


class PodGroup(ApiModel):
    """A group of pods that is placed together or not at all."""

    spec: PodGroupSpec = Field(default_factory=PodGroupSpec)
    """What the user asks for."""
    status: PodGroupStatus | None = None
    """What kbatch sees and decided; written by kbatch alone."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            expression=(
                "!has(oldSelf.status) || !has(oldSelf.status.phase) "
                "|| !(oldSelf.status.phase in ['Running', 'Unknown']) || self.spec.queue == oldSelf.spec.queue"
            ),
            message="spec.queue cannot change while the group runs",
            field_path=".spec.queue",
        ),
    )


PODGROUP_COLUMNS: Final = (
    PrinterColumn("Phase", "string", ".status.phase", "Where in its life the group stands"),
    PrinterColumn("Min", "integer", ".spec.minMember", "Pods that must be placed together"),
    PrinterColumn("Running", "integer", ".status.running", "Pods that run"),
    PrinterColumn("Pending", "integer", ".status.pending", "Pods that wait", priority=1),
    PrinterColumn("Succeeded", "integer", ".status.succeeded", "Pods that ended well", priority=1),
    PrinterColumn("Failed", "integer", ".status.failed", "Pods that ended badly", priority=1),
    PrinterColumn("Queue", "string", ".spec.queue", "The group's queue"),
    PrinterColumn(
        "Reason", "string", '.status.conditions[?(@.type=="Scheduled")].reason', "Why the group waits, or that it runs"
    ),
    PrinterColumn("Start", "string", ".status.estimatedStart.time", "When the group is to start, if that is known"),
    PrinterColumn(
        "Message",
        "string",
        '.status.conditions[?(@.type=="Scheduled")].message',
        "The reason in words and numbers",
        priority=1,
    ),
    PrinterColumn("Age", "date", ".metadata.creationTimestamp", "Since when the group exists"),
)
