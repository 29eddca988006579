"""The engine: what to do about a cluster, decided without touching anything.

    policy = build_policy(parse(text, "scheduler.yaml"))
    memo = Memo()
    snapshot = take_snapshot(model, now)
    for step in cycle(snapshot, policy, memo, NullObserver()):   # `yield from` it to get the Outcome
        ...                                                      # carry out a Transaction, note a Verdict, skip a Turn

`cycle` is a generator that works for a few milliseconds between two steps, so the caller may give its event loop a turn
after each; where there is nothing to tell yet it yields a `Turn`. The model must not change until the generator has
ended. Its return value is the `Outcome`, whose memo goes into the next cycle.
"""

from kbatch.engine.boundary import (
    Bind,
    Eviction,
    Memo,
    Nomination,
    NullObserver,
    Observer,
    Outcome,
    Step,
    Transaction,
    Turn,
    Verdict,
    verdict_conditions,
)
from kbatch.engine.building import build_policy
from kbatch.engine.cycle import cycle
from kbatch.engine.policy import Policy
from kbatch.engine.snapshot import Snapshot, take_snapshot

__all__ = [
    "Bind",
    "Eviction",
    "Memo",
    "Nomination",
    "NullObserver",
    "Observer",
    "Outcome",
    "Policy",
    "Snapshot",
    "Step",
    "Transaction",
    "Turn",
    "Verdict",
    "build_policy",
    "cycle",
    "take_snapshot",
    "verdict_conditions",
]
