# ruff: noqa: D102 -- every `message` is what `Reason.message` says
"""Reasons that pass by themselves, or when somebody outside lifts them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kbatch.api.reasons.base import MOST_KINDS, MOST_TEXT, Reason, amount, count


@dataclass(frozen=True, slots=True)
class EngineError(Reason):
    """Work on the group raised an error: it is left out, so that others go on, and tried again after a while.

    `error` is the name of the error's type, `phase` the part of the cycle.
    """

    code: ClassVar[str] = "EngineError"
    rank: ClassVar[int] = 5
    error: str
    phase: str

    @property
    def message(self) -> str:
        return (
            f"the scheduler failed on this group ({self.error} in {self.phase}) and leaves it out for a while; other "
            f"groups go on; see the group's Events and the scheduler's log, and report it"
        )


@dataclass(frozen=True, slots=True)
class MinimumLost(Reason):
    """The group has run, is below its minimum, and was not whole again within its minimumLostSeconds.

    `left` pods of the `needed` ones stand, and are evicted.
    """

    code: ClassVar[str] = "MinimumLost"
    rank: ClassVar[int] = 48
    left: int
    needed: int
    seconds: int

    @property
    def message(self) -> str:
        when = f"for {self.seconds} s" if self.seconds else "now"
        return (
            f"{self.left} of its {self.needed} pods are left, below its minimum {when}: they are evicted, and it "
            f"queues again (minimumLostSeconds {self.seconds}); without minimumLostSeconds they would keep running"
        )


@dataclass(frozen=True, slots=True)
class Reserved(Reason):
    """The room that the group could use is kept for another one that waits longer or stands before it."""

    code: ClassVar[str] = "Reserved"
    rank: ClassVar[int] = 130
    holder: str
    resource: str
    amount: int

    @property
    def message(self) -> str:
        return (
            f"{amount(self.resource, self.amount)} of the room is reserved for PodGroup {self.holder}, which comes "
            f"first; it continues when that group runs, or when more room is free"
        )


@dataclass(frozen=True, slots=True)
class VictimsTerminating(Reason):
    """The group's room is there when `victims` pods have ended that were evicted for it, or deleted by others."""

    code: ClassVar[str] = "VictimsTerminating"
    rank: ClassVar[int] = 140
    victims: int
    nodes: int

    @property
    def message(self) -> str:
        return f"waits for {count(self.victims, 'pod')} on {count(self.nodes, 'node')} to terminate"


@dataclass(frozen=True, slots=True)
class BindFailed(Reason):
    """A member was placed, but the API server did not take the binding. It is tried again by itself."""

    code: ClassVar[str] = "BindFailed"
    rank: ClassVar[int] = 150
    pod: str
    node: str
    failures: int
    why: str

    @property
    def message(self) -> str:
        return (
            f"binding pod {self.pod} to node {self.node} failed ({count(self.failures, 'failure')}): "
            f"{self.why[:MOST_TEXT]}; it will be retried"
        )


@dataclass(frozen=True, slots=True)
class Gated(Reason):
    """`gated` of the pods that are needed have scheduling gates that others must lift."""

    code: ClassVar[str] = "Gated"
    rank: ClassVar[int] = 160
    gated: int
    needed: int
    gates: tuple[str, ...]

    @property
    def message(self) -> str:
        names = ", ".join(self.gates[:MOST_KINDS])
        return (
            f"{self.gated} of {self.needed} needed pods {'has' if self.gated == 1 else 'have'} scheduling gates "
            f"({names}); {'it counts' if self.gated == 1 else 'they count'} when the gates are removed"
        )
