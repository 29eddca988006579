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
            "description": "The object's kind; the chart value objects.kinds lists the kinds that can be created.",
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
    """The largest number of hops between any two pods: 0 on the same node, 2 in the same innermost domain, and two more
    for each further level. Odd numbers count as the even number below. If not set, the number is as small as possible.
    """
    mode: TopologyMode | None = None
    """`Required`: the pods wait if there is no room within maxHops. `Preferred`: the pods are placed as close together
    as there is room. The default is Required if maxHops is set, else Preferred.
    """


class SubGroup(ApiModel):
    """A role: identical pods of a group, with a minimum and a maximum of their own."""

    name: DnsLabel
    """The role's name; pods carry it in the label kbatch.dev/sub-group."""
    min_member: Annotated[int, Field(ge=0, le=MOST_MEMBERS, json_schema_extra=_INT32)] = 0
    """Pods of this role without which the group does not start."""
    max_member: Annotated[int, Field(ge=1, le=MOST_MEMBERS, json_schema_extra=_INT32)] | None = None
    """The largest number of pods of this role; those above minMember start as there is room. If not set, a template
    makes minMember pods, and of pods that others create any number may start.
    """
    template: dict[str, Any] | None = Field(
        default=None,
        json_schema_extra={
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
        },
    )
    """A pod template, from which the operator creates the pods when the group is in queue. If not set, others create
    them.
    """
    topology: Topology | None = None
    """How close together the pods of this role must be placed."""
    exclusive: bool | None = None
    """Whether the role's pods need nodes without pods of other groups; see exclusive of the group."""

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
    minimum: Annotated[int, Field(ge=1, le=MOST_MEMBERS * MOST_ROLES, json_schema_extra=_INT64)] | None = None
    """The group's minimum, filled in and kept up where it is not minMember, so that it can be shown; what stands here
    decides nothing.
    """
    queue: DnsName = DEFAULT_QUEUE
    """The Queue that the group belongs to. It cannot change once the group runs."""
    priority_class_name: Annotated[str, Field(max_length=253)] | None = None
    """The PriorityClass whose value is the group's priority, but never more than each of its pods was admitted with;
    without one, the lowest priority of its pods.
    """
    min_resources: ResourceList | None = None
    """The resources that must be available before the group comes in queue; filled in if templates determine them."""
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
    """The roles of the group, with unique names. The group is placed when every role has its minimum."""
    objects: (
        Annotated[
            list[Annotated[dict[str, Any], Field(json_schema_extra=_OBJECT)]],
            Field(max_length=MOST_OBJECTS, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
        ]
        | None
    ) = None
    """Services, ConfigMaps and other objects that are created with the group and deleted with it. They are rendered
    like templates, created when the group is in queue, before its pods, and deleted when it has ended.
    """
    suspend: bool | None = None
    """Whether the group is suspended: nothing is reserved for it, and pods made from its templates are deleted. Pods
    that others created keep running. Jobs have a suspend field of their own.
    """
    lifetime_seconds: Annotated[int, Field(ge=0, le=MOST_SECONDS, json_schema_extra=_INT64)] | None = None
    """How long after its start the group may be preempted for others; 0: from the start. If not set: never."""
    min_runtime_seconds: Annotated[int, Field(ge=0, le=MOST_SECONDS, json_schema_extra=_INT64)] = 0
    """How long after its start the group is never evicted for others."""
    disruption: Disruption = Disruption.SURPLUS
    """What may be evicted. `Surplus`: pods above the minimum. `Whole`: these, or the group as one. `Never`: none."""
    topology: Topology | None = None
    """How close together all pods of the group must be placed."""
    exclusive: bool | None = None
    """Whether the group's pods need nodes of their own: no pod of another group that kbatch schedules runs there at the
    same time. Pods of other schedulers may.
    """
    minimum_lost_seconds: Annotated[int, Field(ge=0, le=MOST_SECONDS, json_schema_extra=_INT64)] | None = None
    """How long a group that has run and lost members may stay below its minimum, or that of a role, before its
    remaining pods are evicted together and it waits in the queue again; 0: they are evicted at once. If not set, they
    stay.
    """
    bad_node_limit: Annotated[int, Field(ge=1, le=MOST_FAILURES, json_schema_extra=_INT32)] = 2
    """The group avoids a node after this number of its pods failed there."""
    schedule_timeout_seconds: Annotated[int, Field(ge=1, le=MOST_SECONDS, json_schema_extra=_INT64)] = 300
    """How long the group may be in queue without its minimum being placed before its resources are released."""
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
    """Pods that succeeded."""
    failed: Count = 0
    """Pods that failed."""
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
    """The planned start, if the pods that it waits for end when expected. With the basis history: half of such groups
    start by then.
    """
    latest: Time | None = None
    """Nine of ten such groups start by then."""
    basis: StartBasis
    """`reservation`: the start is planned, and it is known when the pods that it waits for end. `history`: learned from
    earlier groups. `unknown`: room is reserved, and it is not known when all of it will be free.
    """


class PodGroupStatus(ApiModel):
    """What kbatch sees and decided."""

    phase: PodGroupPhase | None = None
    """The phase of the group's life."""
    running: Count = 0
    """Members that run."""
    succeeded: Count = 0
    """Members that succeeded."""
    failed: Count = 0
    """Members that failed."""
    pending: Count = 0
    """Members that wait for a node or for their start."""
    sub_groups: (
        Annotated[
            list[SubGroupStatus],
            Field(json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}),
        ]
        | None
    ) = None
    """The same counts for each role."""
    objects: Annotated[list[MadeObject], Field(json_schema_extra={"x-kubernetes-list-type": "atomic"})] | None = None
    """The objects of spec.objects that were made and not yet deleted."""
    allocated: StatusResourceList | None = None
    """The resources of the members that have a node."""
    conditions: Conditions | None = None
    """Enqueued, Scheduled and Unschedulable are set by the scheduler; Completed, Failed and Stalled by the operator."""
    scheduling_attempts: Count = 0
    """How often the group was sent back to wait since its minimum was last placed: not placed in time, or lost for too
    long.
    """
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
    """The nodes on which members failed by themselves. Nodes with badNodeLimit failures are avoided."""
    finished: (
        Annotated[
            list[FinishedRole],
            Field(json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}),
        ]
        | None
    ) = None
    """Members made from templates that have ended well: they count, and are not run again, when their pods are gone."""
    estimated_start: EstimatedStart | None = None
    """When the group is expected to start; only while it waits, and if that is known."""


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
    PrinterColumn("Phase", "string", ".status.phase", "The phase of the group"),
    # The first of the two that is there.
    PrinterColumn("Min", "integer", ".spec['minimum','minMember']", "Pods that must be placed together"),
    PrinterColumn("Running", "integer", ".status.running", "Pods that run"),
    PrinterColumn("Pending", "integer", ".status.pending", "Pods that wait", priority=1),
    PrinterColumn("Succeeded", "integer", ".status.succeeded", "Pods that succeeded", priority=1),
    PrinterColumn("Failed", "integer", ".status.failed", "Pods that failed", priority=1),
    PrinterColumn("Queue", "string", ".spec.queue", "The group's queue"),
    PrinterColumn(
        "Reason", "string", '.status.conditions[?(@.type=="Scheduled")].reason', "Why the group waits, or that it runs"
    ),
    PrinterColumn(
        "Start", "string", ".status.estimatedStart.time", "When the group is expected to start, if that is known"
    ),
    PrinterColumn(
        "Message",
        "string",
        '.status.conditions[?(@.type=="Scheduled")].message',
        "The reason in words and numbers",
        priority=1,
    ),
    PrinterColumn("Age", "date", ".metadata.creationTimestamp", "Since when the group exists"),
)
