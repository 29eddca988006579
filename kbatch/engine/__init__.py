"""The engine: what to do about a cluster, decided without touching anything.

    policy = build_policy(parse(text, "scheduler.yaml"))
    memo = Memo()
    snapshot = take_snapshot(model, now_ms)
    for decision in cycle(snapshot, policy, memo, NullObserver()):   # `yield from` it to get the Outcome
        ...                                                          # dispatch a Transaction, note a Verdict

`cycle` is a generator: it works between two decisions, never longer than a gang takes, so the caller may give its
event loop a turn after each. The model must not change until the generator has ended. Its return value is the
`Outcome`, whose memo goes into the next cycle.
"""

from kbatch.engine.boundary import (
    Bind,
    Eviction,
    Memo,
    Nomination,
    NullObserver,
    Observer,
    Outcome,
    Transaction,
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
    "Transaction",
    "Verdict",
    "build_policy",
    "cycle",
    "take_snapshot",
    "verdict_conditions",
]
