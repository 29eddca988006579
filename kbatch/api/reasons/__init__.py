"""Why a group waits: the catalogue of reasons, their precedence, and the messages that users read.

A reason is a small frozen dataclass that carries numbers, never text made elsewhere. Its `code` stands as the
condition's reason, its `message` as the condition's message: what was asked, what is there, and what would help.
A waiting group has exactly one reason, the one of the lowest `rank` (`most_specific`): the nearest to something that
somebody can act on. Amounts are in kbatch's units (milli-cores of cpu, base units of everything else).

Plugins from elsewhere subclass `Reason` with a code of the form `<plugin>/<Code>`.
"""

from __future__ import annotations

from typing import Final

from kbatch.api.reasons.base import (
    Reason,
    most_specific,
)
from kbatch.api.reasons.limits import (
    ExcessBudgetExceeded,
    InfiniteShareExceeded,
    NotEnoughTasks,
    QueueCapabilityExceeded,
    QuotaExceeded,
)
from kbatch.api.reasons.named import (
    JobSuspended,
    PodGroupNotFound,
    PriorityClassNotFound,
    QueueClosed,
    QueueNotAllowed,
    QueueNotFound,
    ResourceClaimsUnsupported,
    Suspended,
)
from kbatch.api.reasons.passing import (
    BindFailed,
    EngineError,
    Gated,
    MinimumLost,
    Reserved,
    VictimsTerminating,
)
from kbatch.api.reasons.room import (
    ClusterTooSmall,
    GangExceedsReclaimableShare,
    MinResourcesTooLarge,
    NotEnoughResources,
    Protection,
    Protector,
    QueueOverused,
    RoomInPieces,
    SentBack,
    TopologyUnsatisfied,
    WaitingInQueue,
)

__all__ = [
    "GROUP_REASONS",
    "BindFailed",
    "ClusterTooSmall",
    "EngineError",
    "ExcessBudgetExceeded",
    "GangExceedsReclaimableShare",
    "Gated",
    "InfiniteShareExceeded",
    "JobSuspended",
    "MinResourcesTooLarge",
    "MinimumLost",
    "NotEnoughResources",
    "NotEnoughTasks",
    "PodGroupNotFound",
    "PriorityClassNotFound",
    "Protection",
    "Protector",
    "QueueCapabilityExceeded",
    "QueueClosed",
    "QueueNotAllowed",
    "QueueNotFound",
    "QueueOverused",
    "QuotaExceeded",
    "Reason",
    "Reserved",
    "ResourceClaimsUnsupported",
    "RoomInPieces",
    "SentBack",
    "Suspended",
    "TopologyUnsatisfied",
    "VictimsTerminating",
    "WaitingInQueue",
    "most_specific",
]

GROUP_REASONS: Final[tuple[type[Reason], ...]] = (
    EngineError,
    PodGroupNotFound,
    QueueNotFound,
    QueueClosed,
    QueueNotAllowed,
    PriorityClassNotFound,
    Suspended,
    JobSuspended,
    ResourceClaimsUnsupported,
    MinimumLost,
    NotEnoughTasks,
    QueueCapabilityExceeded,
    QuotaExceeded,
    InfiniteShareExceeded,
    ExcessBudgetExceeded,
    ClusterTooSmall,
    MinResourcesTooLarge,
    GangExceedsReclaimableShare,
    TopologyUnsatisfied,
    WaitingInQueue,
    RoomInPieces,
    SentBack,
    QueueOverused,
    Reserved,
    VictimsTerminating,
    BindFailed,
    Gated,
    NotEnoughResources,
)
"""What may stand on a waiting group, in order of precedence."""
