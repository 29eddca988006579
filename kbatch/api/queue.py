"""Queue: a share of the cluster for the PodGroups that name it. The typed model, from which its CRD is generated."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Final, TypeAlias

from pydantic import Field

from kbatch.api.placement import Placement
from kbatch.api.schema import (
    ApiModel,
    Conditions,
    Count,
    DnsName,
    LabelSelector,
    PrinterColumn,
    ResourceList,
    Rule,
    StatusResourceList,
    Usage,
)

MOST_WEIGHT: Final = 1_000_000
MOST_BUDGET: Final = 1_000_000_000


class QueueState(StrEnum):
    """Whether a queue takes new groups."""

    OPEN = "Open"
    CLOSED = "Closed"


class QueueSpec(ApiModel):
    """What the administrator grants."""

    weight: Annotated[int, Field(ge=1, le=MOST_WEIGHT, json_schema_extra={"format": "int32"})] = 1
    """The queue's share of the cluster, relative to the weights of the other queues that have work."""
    capability: ResourceList | None = None
    """A hard limit on what the queue's groups together hold, even while the cluster is idle. Terminating pods do not
    count. `pods` in it has no effect.
    """
    reclaimable: bool = True
    """Whether other queues may reclaim what this queue holds above its share."""
    state: QueueState = QueueState.OPEN
    """`Closed`: no new groups start; running groups continue."""
    namespace_selector: LabelSelector | None = None
    """Selects the namespaces that may use the queue, by their labels. If not set: all."""
    placement: Placement | None = None
    """Which of the feasible nodes the queue's pods prefer. `Pack`: the fullest, so that other nodes stay empty for
    large pods; `Spread`: the emptiest; `LeastLost`: the node with the least left over that others could have used. If
    not set: as the scheduler's configuration says.
    """
    evictions_per_hour: Annotated[int, Field(ge=0, le=1_000_000, json_schema_extra={"format": "int32"})] | None = None
    """How many groups of the queue may be evicted as a whole in any hour; 0: none. If not set: any number. Evictions of
    pods above a group's minimum do not count.
    """
    excess_budget: Annotated[int, Field(ge=0, le=MOST_BUDGET, json_schema_extra={"format": "int64"})] | None = None
    """How many resource-minutes the queue's groups with a lifetime may together be charged for use above its fair
    share; see the plugin `flow`. If not set: any number.
    """
    parent: DnsName | None = None
    """The parent queue. Not used yet."""


MOST_EVICTIONS: Final = 10_000
"""So many instants are kept in a Queue's status at most, the last ones: they must fit into an object."""
Instant: TypeAlias = Annotated[str, Field(max_length=64, json_schema_extra={"format": "date-time"})]


class QueueFlow(ApiModel):
    """How much the queue has used, its past fading; in the units of the plugin `flow`, such as cores.

    At a later instant t the flow is `usage + (value - usage) * 0.5 ** ((t - time) / halfTime)`. Written when the usage
    has changed.
    """

    value: Usage
    """The flow at `time`; never below the usage."""
    unlimited_value: Usage
    """The same, of the groups without a lifetime only."""
    usage: Usage
    """What the queue's groups have used since then: the requests of groups that are placed or in queue."""
    unlimited_usage: Usage
    """The same, of the groups without a lifetime only."""
    time: Instant
    """The time of the last change of the usage."""


class QueueStatus(ApiModel):
    """What kbatch sees and computed."""

    state: QueueState | None = None
    """The state that is in force."""
    deserved: StatusResourceList | None = None
    """The queue's fair share of the cluster as it is and as the queues ask now."""
    allocated: StatusResourceList | None = None
    """The requests of the queue's pods that are bound, about to be bound, or nominated to a node."""
    requested: StatusResourceList | None = None
    """What the queue holds, and what its waiting groups request."""
    share: Annotated[str, Field(max_length=64)] | None = None
    """The largest ratio of allocated to deserved over all resources, as a decimal number."""
    pending: Count = 0
    """Groups that wait for their resources."""
    inqueue: Count = 0
    """Groups whose resources are reserved, and which are not placed yet."""
    running: Count = 0
    """Groups that run, whole or in part."""
    completed: Count = 0
    """Groups that succeeded or failed, and still exist."""
    flow: QueueFlow | None = None
    """What the queue has used; only if the plugin `flow` is configured."""
    fair_share: Usage | None = None
    """The queue's share of the cluster by weight among all open queues; only with the plugin `flow`."""
    excess_charged: Usage | None = None
    """Resource-minutes that the queue's groups are together charged; only with the plugin `flow`."""
    evicted: (
        Annotated[
            list[Instant], Field(max_length=MOST_EVICTIONS, json_schema_extra={"x-kubernetes-list-type": "atomic"})
        ]
        | None
    ) = None
    """When groups of the queue were evicted as wholes in the last hour; only where `evictionsPerHour` limits that."""
    conditions: Conditions | None = None
    """`OverCapability`: the queue holds more than its capability, which was lowered; written by the queue operator."""


class Queue(ApiModel):
    """A share of the cluster."""

    spec: QueueSpec = Field(default_factory=QueueSpec)
    """What the administrator grants."""
    status: QueueStatus | None = None
    """What kbatch sees and computed; written by kbatch alone."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            expression="!has(self.spec.parent) || self.spec.parent != self.metadata.name",
            message="a queue cannot be its own parent",
            field_path=".spec.parent",
        ),
    )


QUEUE_COLUMNS: Final = (
    PrinterColumn("Weight", "integer", ".spec.weight", "The queue's share, relative to the other queues' weights"),
    PrinterColumn("State", "string", ".spec.state", "Whether the queue takes new groups"),
    PrinterColumn("Share", "string", ".status.share", "The largest ratio of allocated to deserved"),
    PrinterColumn("Deserved-CPU", "string", ".status.deserved.cpu", "CPU that the queue deserves"),
    PrinterColumn("Allocated-CPU", "string", ".status.allocated.cpu", "CPU that the queue holds"),
    PrinterColumn("Capability-CPU", "string", ".spec.capability.cpu", "CPU that it may hold at most", priority=1),
    PrinterColumn(
        "Over-Capability",
        "string",
        '.status.conditions[?(@.type=="OverCapability")].status',
        "Whether the queue holds more than its capability, which was lowered",
        priority=1,
    ),
    PrinterColumn("Deserved-Memory", "string", ".status.deserved.memory", "Memory that the queue deserves", priority=1),
    PrinterColumn("Allocated-Memory", "string", ".status.allocated.memory", "Memory that the queue holds", priority=1),
    PrinterColumn("Pending", "integer", ".status.pending", "Groups that wait"),
    PrinterColumn("InQueue", "integer", ".status.inqueue", "Groups with a reservation"),
    PrinterColumn("Running", "integer", ".status.running", "Groups that run"),
    PrinterColumn("Completed", "integer", ".status.completed", "Groups that ended", priority=1),
    PrinterColumn("Age", "date", ".metadata.creationTimestamp", "Since when the queue exists"),
)
