"""The phase of a PodGroup: one table, from facts that anybody can read off the API server.

The table is read from the top, and the first rule that applies decides: so the phase follows from what is there, not
from what somebody happened to see on the way, and a process that was down for an hour derives the same phase as one
that watched. The phase before matters in two places only: what is over stays over when its pods are cleaned up, and a
group that runs and lost a member is still running while a replacement is made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Phase(StrEnum):
    """Where a PodGroup is in its life. The value is what stands in `status.phase`."""

    PENDING = "Pending"
    """Waits to be let in; holds and reserves nothing."""
    IN_QUEUE = "InQueue"
    """Let in: its minResources are reserved, its pods are created and placed."""
    RUNNING = "Running"
    """The minimum, and that of each role, has its nodes."""
    UNKNOWN = "Unknown"
    """Some run, and the rest of the minimum cannot be placed."""
    COMPLETED = "Completed"
    """No pod is left, and the minimum succeeded, or whoever makes pods says that the work is done."""
    FAILED = "Failed"
    """The minimum can no longer be met, and its owner gave up."""


OVER: Final[frozenset[str]] = frozenset({Phase.COMPLETED, Phase.FAILED})
"""Phases, as they stand in `status.phase`, of a group that has ended."""
STARTED: Final[frozenset[str]] = frozenset({Phase.RUNNING, Phase.UNKNOWN})
"""Those of one whose minimum has had its nodes, and that has not ended."""
ADMITTED: Final[frozenset[str]] = STARTED | {Phase.IN_QUEUE}
"""Those of one that was let in and has not ended: its members may exist."""


@dataclass(frozen=True, slots=True)
class MemberCounts:
    """Members of a group (or of one role), each counted once. Pods that are being deleted count in none.

    Attributes:
        pending: without a node.
        bound: with a node, not yet running.
        running: running.
        succeeded: ended well.
        failed: ended badly.
        coming: so many have no pod, and are made again from a template whatever happens.
    """

    bound: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    pending: int = 0
    coming: int = 0

    @property
    def placed(self) -> int:
        """Pods that have a node and have not ended."""
        return self.bound + self.running

    @property
    def alive(self) -> int:
        """Pods that have not ended."""
        return self.placed + self.pending


@dataclass(frozen=True, slots=True)
class RoleFacts:
    """One role (an entry of `spec.subGroups`): its minimum and its pods."""

    minimum: int
    members: MemberCounts = MemberCounts()


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """All that a phase depends on.

    Attributes:
        minimum: the group's: the larger of minMember and the sum of the roles' minimums.
        members: all pods of the group, those without a role included.
        roles: each role with its own minimum.
        enqueued: status of the condition Enqueued; None where there is none.
        scheduled: status of the condition Scheduled; None where there is none.
        unschedulable: status of the condition Unschedulable; None where there is none.
        gave_up: nobody will make more pods: the owning Job is Failed; or the pods have no controller and some failed.
            Not true merely because no pod exists yet.
        done: nobody will make more pods, because the work is done: the Jobs that make members are all Complete.
        ongoing: a Job that makes members has not ended, so that more may come although none is there.
        current: the phase that stands in the status; None for a group that has none yet.
    """

    minimum: int
    members: MemberCounts = MemberCounts()
    roles: tuple[RoleFacts, ...] = ()
    enqueued: bool | None = None
    scheduled: bool | None = None
    unschedulable: bool | None = None
    gave_up: bool = False
    done: bool = False
    ongoing: bool = False
    current: Phase | None = None

    def reached(self, count: Callable[[MemberCounts], int]) -> bool:
        """Whether `count` of the members reaches the group's minimum, and each role's its own."""
        return count(self.members) >= self.minimum and all(count(role.members) >= role.minimum for role in self.roles)


@dataclass(frozen=True, slots=True)
class Rule:
    """A line of the table: the phase that holds if `applies`; None as phase keeps the one that stands."""

    name: str
    phase: Phase | None
    applies: Callable[[GroupFacts], bool]


def _placed_or_done(members: MemberCounts) -> int:
    return members.placed + members.succeeded


def _attainable(members: MemberCounts) -> int:
    return members.alive + members.succeeded + members.coming


def _succeeded(members: MemberCounts) -> int:
    return members.succeeded


TABLE: Final[tuple[Rule, ...]] = (
    Rule(
        "it succeeded and nothing is left",
        Phase.COMPLETED,
        lambda facts: facts.members.alive == 0 and not facts.ongoing and facts.reached(_succeeded),
    ),
    Rule(
        "fewer have succeeded, but who makes them says that this was enough",
        Phase.COMPLETED,
        lambda facts: (
            facts.done
            and facts.members.alive == 0
            and not facts.ongoing
            and (facts.members.succeeded > 0 or facts.current in STARTED)
        ),
    ),
    Rule(
        "over, and no pod has come since, nor a Job that makes any",
        None,
        lambda facts: facts.current in OVER and facts.members.alive == 0 and not facts.ongoing,
    ),
    Rule(
        "what is left cannot make the minimum, and nobody makes more",
        Phase.FAILED,
        lambda facts: facts.gave_up and not facts.reached(_attainable),
    ),
    Rule(
        "the minimum has its nodes, or had them and its Job goes on",
        Phase.RUNNING,
        lambda facts: (facts.members.alive > 0 or facts.ongoing) and facts.reached(_placed_or_done),
    ),
    Rule(
        "some run, the rest of the minimum cannot be placed",
        Phase.UNKNOWN,
        lambda facts: facts.members.running > 0 and (facts.scheduled is False or facts.unschedulable is True),
    ),
    Rule(
        "it ran and lost members; what replaces them is not refused",
        None,
        lambda facts: facts.current in STARTED and facts.members.placed > 0,
    ),
    Rule(
        "let in, or some pod has a node already",
        Phase.IN_QUEUE,
        lambda facts: facts.enqueued is True or facts.members.placed > 0,
    ),
    Rule("not let in, or taken back", Phase.PENDING, lambda facts: True),
)
"""Read from the top; the last line applies always."""


def decide(facts: GroupFacts) -> tuple[Phase, Rule]:
    """The phase, and the line of the table that says so."""
    rule = next(rule for rule in TABLE if rule.applies(facts))
    return rule.phase or facts.current or Phase.PENDING, rule


def derive(facts: GroupFacts) -> Phase:
    """The phase of a group."""
    return decide(facts)[0]
