"""What a cycle leaves to the next to save it work. It changes no decision."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kbatch.api.reasons import Reason
from kbatch.engine.carryover.backlog import Backlog
from kbatch.engine.carryover.holdings import Holdings
from kbatch.engine.carryover.known_ends import KnownEnds
from kbatch.engine.carryover.lone_pods import LonePods
from kbatch.engine.placement.feasibility import Trial


class Stated(NamedTuple):
    """A reason, the instant at which its numbers were worked out, and the `standing_generation` of the nodes for which
    they hold; None where the cycle that worked them out had changed the nodes itself.
    """

    reason: Reason
    at: int
    nodes: int | None


@dataclass(slots=True)
class Memo:
    """What a cycle leaves to the next: what failed, and what that depended on. Empty is always right.

    Attributes:
        policy: fingerprint of the policy it was made with; another policy starts afresh.
        shrinking: by signature of what was to be placed in vain, the model's `room_generation` then: it fails again
            while room only shrinks. exact: the same with `standing_generation`: while the nodes are just as they were.
        shortages: what groups lacked.
        trials: what the nodes would hold of groups without our pods, while `capacity_generation` is `trials_at`; of
            those that the last cycle asked about. alike: the same for all, by what a group's answer depends on. proved:
            which of these the nodes cannot hold by number or sum. most: of how many pods of a class (by its id) the
            emptied nodes have room.
        idle: the snapshot's generation and `next_wake` of the last cycle, if that decided nothing.
        backlog: the groups that wait to come in queue, as the cycle of this stamp left them; another cycle that has
            taken it over since has changed it.
        holdings: what the groups of queues hold; it says itself what of that is still so.
        lone_pods: the candidates for eviction that are alone in their groups, likewise.
        ends: when pods are expected to end, which says itself what of that is still so; None: nobody has asked.
        opinion: `Outcome.opinion` of that cycle.
    """

    policy: str = ""
    shrinking: dict[object, int] = field(default_factory=dict)
    exact: dict[object, int] = field(default_factory=dict)
    shortages: dict[object, Stated] = field(default_factory=dict)
    trials: Mapping[object, Trial] = field(default_factory=dict)
    alike: dict[Hashable, Trial] = field(default_factory=dict)
    proved: dict[object, bool] = field(default_factory=dict)
    most: dict[int, int] = field(default_factory=dict)
    trials_at: int = -1
    idle: tuple[int, int | None] | None = None
    backlog: tuple[Backlog, int] | None = None
    holdings: Holdings | None = None
    lone_pods: LonePods | None = None
    ends: KnownEnds | None = None
    opinion: int | None = None
