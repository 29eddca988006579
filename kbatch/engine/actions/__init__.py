"""The actions, by the name that stands in configurations. Each is a generator of transactions over a session.

An action may yield a verdict early, so that its caller gets a turn; a later one for the same group replaces it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

from kbatch.engine.actions.allocate import allocate
from kbatch.engine.actions.backfill import backfill
from kbatch.engine.actions.enqueue import enqueue
from kbatch.engine.actions.preempt import preempt
from kbatch.engine.actions.reclaim import reclaim
from kbatch.engine.boundary import Transaction, Verdict

if TYPE_CHECKING:
    from kbatch.engine.session import Session

Action: TypeAlias = "Callable[[Session], Iterator[Transaction | Verdict]]"

ACTIONS: Final[dict[str, Action]] = {
    "enqueue": enqueue,
    "reclaim": reclaim,
    "allocate": allocate,
    "backfill": backfill,
    "preempt": preempt,
}
