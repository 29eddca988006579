"""Why one node does not take one pod: what predicates answer, counted into a group's NotEnoughResources.

A predicate names the types; `short` is the text under which nodes are counted: `7 insufficient cpu, 5 taint dedicated`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from kbatch.api.reasons import Reason


@dataclass(frozen=True, slots=True)
class NodeReason(Reason):
    """Base of the reasons of one node. Never a group's own reason."""

    rank: ClassVar[int] = 900
    words: ClassVar[str] = ""
    """The text under which nodes are counted; the code where it is empty."""

    @property
    def short(self) -> str:
        """The text under which nodes are counted."""
        return self.words or self.code

    @property
    def message(self) -> str:
        """One line for people."""
        return f"the node does not take the pod: {self.short}"


@dataclass(frozen=True, slots=True)
class Insufficient(NodeReason):
    """Not enough free of one resource."""

    code: ClassVar[str] = "Insufficient"
    resource: str = "resources"

    @property
    def short(self) -> str:
        """`insufficient cpu`."""
        return f"insufficient {self.resource}"


@dataclass(frozen=True, slots=True)
class UntoleratedTaint(NodeReason):
    """A taint that the pod does not tolerate."""

    code: ClassVar[str] = "UntoleratedTaint"
    key: str = ""

    @property
    def short(self) -> str:
        """`taint dedicated`."""
        return f"taint {self.key}" if self.key else "taint"


@dataclass(frozen=True, slots=True)
class TooManyPods(NodeReason):
    """The node holds as many pods as it may."""

    code: ClassVar[str] = "TooManyPods"
    words: ClassVar[str] = "too many pods"


@dataclass(frozen=True, slots=True)
class NodeUnschedulable(NodeReason):
    """The node is cordoned."""

    code: ClassVar[str] = "NodeUnschedulable"
    words: ClassVar[str] = "unschedulable"


@dataclass(frozen=True, slots=True)
class NodeNotReady(NodeReason):
    """The node is not Ready, or its network is not there."""

    code: ClassVar[str] = "NodeNotReady"
    words: ClassVar[str] = "not ready"


@dataclass(frozen=True, slots=True)
class NodeSelectorMismatch(NodeReason):
    """The pod's nodeSelector, or its required node affinity, does not choose the node."""

    code: ClassVar[str] = "NodeSelectorMismatch"
    words: ClassVar[str] = "node selector"


@dataclass(frozen=True, slots=True)
class HostPortTaken(NodeReason):
    """A host port that the pod asks for is in use."""

    code: ClassVar[str] = "HostPortTaken"
    words: ClassVar[str] = "host port taken"


@dataclass(frozen=True, slots=True)
class MemoryPressure(NodeReason):
    """The node reports memory pressure."""

    code: ClassVar[str] = "MemoryPressure"
    words: ClassVar[str] = "memory pressure"


@dataclass(frozen=True, slots=True)
class DiskPressure(NodeReason):
    """The node reports disk pressure."""

    code: ClassVar[str] = "DiskPressure"
    words: ClassVar[str] = "disk pressure"


@dataclass(frozen=True, slots=True)
class PidPressure(NodeReason):
    """The node runs short of process ids."""

    code: ClassVar[str] = "PidPressure"
    words: ClassVar[str] = "pid pressure"


@dataclass(frozen=True, slots=True)
class PodAffinityUnsatisfied(NodeReason):
    """Required pod affinity finds no partner in the node's domain."""

    code: ClassVar[str] = "PodAffinityUnsatisfied"
    words: ClassVar[str] = "pod affinity"


@dataclass(frozen=True, slots=True)
class PodAntiAffinityViolated(NodeReason):
    """Required pod anti-affinity, the pod's own or another's, forbids the node's domain."""

    code: ClassVar[str] = "PodAntiAffinityViolated"
    words: ClassVar[str] = "pod anti-affinity"


@dataclass(frozen=True, slots=True)
class TopologySpreadViolated(NodeReason):
    """The node's domain already holds too many of the pods that must spread."""

    code: ClassVar[str] = "TopologySpreadViolated"
    words: ClassVar[str] = "topology spread"


@dataclass(frozen=True, slots=True)
class ClaimNotFound(NodeReason):
    """A PersistentVolumeClaim that the pod names does not exist in its namespace: no node would help."""

    code: ClassVar[str] = "ClaimNotFound"
    claim: str = ""

    @property
    def short(self) -> str:
        """With the name of the claim."""
        return f"claim {self.claim} not found"


@dataclass(frozen=True, slots=True)
class VolumeUnavailable(NodeReason):
    """A volume of the pod cannot be used from the node."""

    code: ClassVar[str] = "VolumeUnavailable"
    words: ClassVar[str] = "volume"


@dataclass(frozen=True, slots=True)
class NodeFeatureMissing(NodeReason):
    """The node does not declare a feature of Kubernetes that the pod needs: its kubelet would refuse the pod."""

    code: ClassVar[str] = "NodeFeatureMissing"
    words: ClassVar[str] = "feature missing"


@dataclass(frozen=True, slots=True)
class NodeReserved(NodeReason):
    """The node's room is kept for another group."""

    code: ClassVar[str] = "NodeReserved"
    words: ClassVar[str] = "reserved"


@dataclass(frozen=True, slots=True)
class RefusedPod(NodeReason):
    """The API server refused to bind the pod to the node a moment ago."""

    code: ClassVar[str] = "RefusedPod"
    words: ClassVar[str] = "refused the pod"


@dataclass(frozen=True, slots=True)
class NodeFailedPods(NodeReason):
    """As many pods of the group as its badNodeLimit have failed on the node: the group avoids it."""

    code: ClassVar[str] = "NodeFailedPods"
    words: ClassVar[str] = "failed its pods"


@dataclass(frozen=True, slots=True)
class NodeExclusive(NodeReason):
    """Pods of an exclusive group stand on the node, or the pod's group is exclusive and others' pods stand there."""

    code: ClassVar[str] = "NodeExclusive"
    words: ClassVar[str] = "exclusive"


NODE_REASONS: Final[tuple[type[NodeReason], ...]] = (
    Insufficient,
    UntoleratedTaint,
    TooManyPods,
    NodeUnschedulable,
    NodeNotReady,
    NodeSelectorMismatch,
    HostPortTaken,
    MemoryPressure,
    DiskPressure,
    PidPressure,
    PodAffinityUnsatisfied,
    PodAntiAffinityViolated,
    TopologySpreadViolated,
    ClaimNotFound,
    VolumeUnavailable,
    NodeFeatureMissing,
    NodeReserved,
    RefusedPod,
    NodeFailedPods,
    NodeExclusive,
)
"""All that nodes are counted under."""
