"""What a cycle yields: decisions, verdicts and turns; and the observer that times it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import msgspec

from kbatch.api import conditions
from kbatch.api.objects import Condition
from kbatch.api.reasons import Reason

TAKEN_BACK: Final = "allocate"
MINIMUM_LOST: Final = "minimumLost"
OWN_SAKE: Final = frozenset({TAKEN_BACK, MINIMUM_LOST})
"""The `action` of evictions that make room for nobody: a gang bound in part, the rest of one below its minimum."""


class Bind(msgspec.Struct, frozen=True):
    """Bind this pod (`namespace/name`, with this uid) to this node."""

    pod: str
    uid: str
    node: str


class Eviction(msgspec.Struct, frozen=True):
    """Evict this pod from its node; `action` is `reclaim`, `preempt`, `allocate` (a partly bound gang taken back) or
    `minimumLost` (the rest of a gang below its minimum).

    `beneficiary` is the group (`namespace/name`) that gets the room; empty for a gang that is evicted for its own sake.
    """

    pod: str
    uid: str
    node: str
    action: str
    beneficiary: str


class Nomination(msgspec.Struct, frozen=True):
    """Write this node into the pod's `nominatedNodeName`; None withdraws what stands there."""

    pod: str
    uid: str
    node: str | None


class Transaction(msgspec.Struct, frozen=True):
    """What is to be done for one group, as a whole: all of its evictions are tried (dryRun) before one is made."""

    group: str
    """`namespace/name`, for people. A PodGroup and a shadow group may share it; `job` tells them apart."""
    binds: tuple[Bind, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    nominations: tuple[Nomination, ...] = ()
    job: str = ""
    """Key of the group in `ClusterModel.jobs`."""
    evicted: dict[str, tuple[int, ...]] = {}
    """By queue that limits how often, and of which a group is evicted as a whole here: when any were in the last hour,
    this one among them. It is to be written to the Queue before anybody is evicted.
    """


class StartEstimate(msgspec.Struct, frozen=True):
    """When a group that waits is to start.

    Attributes:
        time: in microseconds since the epoch; None: nobody knows. latest: by then, nine times out of ten.
        basis: `reservation` (a planned start, beside ends that are all known), `history` (by what was learned) or
            `unknown` (room is kept for it, and nobody knows when all of it comes free).
    """

    time: int | None
    latest: int | None
    basis: str


UNKNOWN: Final = StartEstimate(None, None, "unknown")


class Verdict(msgspec.Struct, frozen=True):
    """How a group stands at the end of a cycle. Groups that need no word are left out.

    Attributes:
        group: `namespace/name`; of a shadow group that of its owner or its only pod. `job` is its key in the model.
        shadow: there is no PodGroup to write to.
        enqueued: the condition Enqueued; None for a shadow group.
        scheduled: the minimum is bound, assumed or among this cycle's binds.
        reason: why it waits; None exactly where `scheduled` is true.
        attempted: it was tried against the nodes, now or since anything that could help changed.
        pods_unschedulable: its waiting pods are to say Unschedulable: more capacity is what would help.
        members_lost: its minimum was placed once and pods of it were lost since; the rest of it runs on.
        attempts: what `status.schedulingAttempts` should be: how often it was sent back from InQueue for being late.
        charged: what `status.excessCharged` should be, in millionths of a resource-minute.
        estimate: when it is to start; None: nobody plans or foresees that.
        backfilled: this cycle has started it while others, who come first, wait for a start that is planned.
    """

    group: str
    shadow: bool
    enqueued: bool | None
    scheduled: bool
    reason: Reason | None = None
    attempted: bool = False
    pods_unschedulable: bool = False
    attempts: int = 0
    job: str = ""
    members_lost: bool = False
    charged: int = 0
    estimate: StartEstimate | None = None
    backfilled: bool = False


@dataclass(frozen=True, slots=True)
class GroupError:
    """An error that was raised while a group was worked on. What had been begun for it is undone.

    Attributes:
        job: the group's key in the model. group: `namespace/name`.
        phase: the part of the cycle, such as `allocate`.
        text: type and message. trace: with the traceback, for a log.
    """

    job: str
    group: str
    phase: str
    text: str
    trace: str


@dataclass(frozen=True, slots=True)
class Turn:
    """Nothing is decided here, but some work is done: the cycle's caller may do something else before it goes on.

    How often a cycle offers a turn says nothing about what it decides, and may differ where the decisions are equal.
    """


TURN: Final = Turn()

Step: TypeAlias = Transaction | Verdict | Turn
"""What a cycle yields."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a cycle has to say of groups, by their keys.

    Attributes:
        verdicts: of the groups that it looked at, or of which there is something new to tell.
        whole: there is a verdict for each group that is not settled. Where it is not so, the last verdict stands of
            each group of which there is none; but for those in `gone`, which are settled or not there any more.
        gone: keys of groups, see there.
    """

    verdicts: Mapping[str, Verdict]
    whole: bool = True
    gone: Collection[str] = ()

    def onto(self, standing: dict[str, Verdict]) -> dict[str, Verdict]:
        """The verdicts that stand now, where these stood before; may change and return these."""
        if self.whole:
            return dict(self.verdicts)
        for key in self.gone:
            standing.pop(key, None)
        standing.update(self.verdicts)
        return standing


_WORDS: Final[Mapping[str, str]] = {
    "reservation": "; its start is planned (status.estimatedStart)",
    "unknown": "; room is kept for it, and nobody knows when all of it comes free",
}
"""What is said besides a reason, by the basis of an estimate."""


def verdict_conditions(verdict: Verdict, generation: int) -> tuple[Condition, ...]:
    """The scheduler's own conditions of a PodGroup, all of them, without times; `generation` is what was observed."""
    reason = verdict.reason
    code, message = (reason.code, reason.message) if reason is not None else ("", "")
    if message and verdict.estimate is not None:
        message += _WORDS.get(verdict.estimate.basis, "")

    def condition(type_: str, status: bool, reason_: str, text: str = "") -> Condition:
        word = conditions.TRUE if status else conditions.FALSE
        return Condition(type=type_, status=word, reason=reason_, message=text, observed_generation=generation)

    if verdict.enqueued:
        lost = verdict.members_lost and not verdict.scheduled
        enqueued = condition(
            conditions.ENQUEUED, True, conditions.REASON_MEMBERS_LOST if lost else conditions.REASON_ENQUEUED
        )
    else:
        enqueued = condition(conditions.ENQUEUED, False, code or conditions.REASON_NOT_TRIED, message)
    if verdict.scheduled:
        scheduled = condition(conditions.SCHEDULED, True, conditions.REASON_SCHEDULED)
        unschedulable = condition(conditions.UNSCHEDULABLE, False, conditions.REASON_SCHEDULED)
    else:
        scheduled = condition(conditions.SCHEDULED, False, code or conditions.REASON_NOT_TRIED, message)
        if verdict.attempted:
            unschedulable = condition(conditions.UNSCHEDULABLE, True, code or conditions.REASON_NOT_TRIED, message)
        else:
            unschedulable = condition(conditions.UNSCHEDULABLE, False, conditions.REASON_NOT_TRIED)
    return enqueued, scheduled, unschedulable


class Observer(Protocol):
    """Whoever times the engine. Never read by it."""

    def span(self, name: str) -> AbstractContextManager[None]:
        """A stretch of work, such as `action:allocate`; nests."""
        ...


class NullObserver:
    """Times nothing."""

    _NOTHING: Final = nullcontext()

    def span(self, name: str) -> AbstractContextManager[None]:
        """Do nothing."""
        return self._NOTHING
