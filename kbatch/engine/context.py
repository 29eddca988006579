"""What an action works with: the parts of one cycle, put together.

It stands above the session, the placement and the reservations, and below all that decides with them, so that nothing
down there needs to know who asks.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from kbatch.api.reasons import Reason
from kbatch.engine.carryover.backlog import Backlog, Entry
from kbatch.engine.carryover.holdings import Holdings
from kbatch.engine.carryover.lone_pods import LonePods
from kbatch.engine.carryover.unschedulable import UnschedulableCache
from kbatch.engine.decisions import Transaction
from kbatch.engine.placement.feasibility import Feasibility
from kbatch.engine.placement.foreknown import Foreknown
from kbatch.engine.placement.ranking import NodeRankings
from kbatch.engine.reservation.ledger import Ledger
from kbatch.engine.reservation.planned import PlannedStarts
from kbatch.engine.session.consent import Consent
from kbatch.engine.session.hourly import HourlyLimit
from kbatch.engine.session.session import Session
from kbatch.engine.state.cycle_state import CycleState
from kbatch.engine.state.wanted import FirstStep


@dataclass(eq=False, slots=True)
class CycleContext:
    """One cycle's parts.

    Attributes:
        session: the accounting, and what the plugins say.
        rankings: which nodes take the next pods of a class.
        feasibility: what the nodes would hold without this scheduler's pods.
        consent: whose pods may be evicted.
        ledger: which room is kept, and for whom.
        planned: its entries that are planned starts; None: nobody plans any.
        unschedulable: what was tried in vain.
        backlog: the groups that wait to come in queue, and that the session does not look at.
        hourly: how often groups may be evicted as wholes.
        foreknown: where `allocate` will place minimums, as far as `reclaim` has found it out.
        holdings: what the groups of queues hold, as far as anybody has asked. reached: what `preemption.reach` said.
        short: what `preemption.steps.lacking` said, by class and number of the pods, and when the room changed last.
        first_steps: what jobs want first for their minimum, by their keys; see `preemption.steps`.
        lone_pods: the candidates for eviction that are alone in their groups, likewise.
        decided: what steps that evict have decided, and nobody has been told yet; see `preemption.sparing`.
        told: of groups of the backlog why they wait, where that is to be told.
        state: what the cycle before left that changes decisions.
    """

    session: Session
    rankings: NodeRankings
    feasibility: Feasibility
    consent: Consent
    ledger: Ledger
    unschedulable: UnschedulableCache
    backlog: Backlog
    state: CycleState
    hourly: HourlyLimit
    foreknown: Foreknown
    planned: PlannedStarts | None = None
    holdings: Holdings = field(default_factory=Holdings)
    lone_pods: LonePods = field(default_factory=LonePods)
    reached: dict[Hashable, bool] = field(default_factory=dict)
    short: dict[Hashable, tuple[int, frozenset[str]]] = field(default_factory=dict)
    first_steps: dict[str, FirstStep] = field(default_factory=dict)
    decided: list[Transaction] = field(default_factory=list)
    told: list[tuple[Entry, Reason]] = field(default_factory=list)

    def close(self) -> None:
        """Let go of everything: the parts hold one another, and the collector should have nothing to find."""
        self.rankings.close()
        self.feasibility.close()
        if self.planned is not None:
            self.planned.close()
        self.session.close()
