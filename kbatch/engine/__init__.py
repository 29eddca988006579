"""The engine: what to do about a cluster, decided without touching anything.

    policy = build_policy(parse(text, "scheduler.yaml"))
    memo = Memo()
    snapshot = take_snapshot(model, now)
    for step in cycle(snapshot, policy, memo, NullObserver()):   # `yield from` it to get the Outcome
        ...                                                      # carry out a Transaction, note a Verdict, skip a Turn

`cycle` is a generator that works for a few milliseconds between two steps, so the caller may give its event loop a turn
after each; where there is nothing to tell yet it yields a `Turn`. The model must not change until the generator has
ended. Its return value is the `Outcome`: its memo goes into the next cycle, its state into the next snapshot.
"""

from kbatch.engine.carryover.memo import Memo
from kbatch.engine.cycle import Outcome, cycle
from kbatch.engine.decisions import (
    Bind,
    Eviction,
    GroupError,
    Nomination,
    NullObserver,
    Observer,
    Report,
    StartEstimate,
    Step,
    Transaction,
    Turn,
    Verdict,
    verdict_conditions,
)
from kbatch.engine.loader import build_policy
from kbatch.engine.plugin import QueueStanding
from kbatch.engine.policy.policy import Policy
from kbatch.engine.state.cycle_state import CycleState
from kbatch.engine.state.snapshot import Snapshot, take_snapshot

__all__ = [
    "Bind",
    "CycleState",
    "Eviction",
    "GroupError",
    "Memo",
    "Nomination",
    "NullObserver",
    "Observer",
    "Outcome",
    "Policy",
    "QueueStanding",
    "Report",
    "Snapshot",
    "StartEstimate",
    "Step",
    "Transaction",
    "Turn",
    "Verdict",
    "build_policy",
    "cycle",
    "take_snapshot",
    "verdict_conditions",
]
