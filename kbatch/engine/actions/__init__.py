"""The actions, by the name that stands in configurations. Each is a generator over a session: of transactions, and of
turns for its caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

from kbatch.engine.actions.allocate import allocate
from kbatch.engine.actions.backfill import backfill
from kbatch.engine.actions.enqueue import enqueue
from kbatch.engine.actions.preempt import preempt
from kbatch.engine.actions.reclaim import reclaim
from kbatch.engine.decisions import Transaction, Turn

if TYPE_CHECKING:
    from kbatch.engine.session.session import Session

Action: TypeAlias = "Callable[[Session], Iterator[Transaction | Turn]]"

ACTIONS: Final[dict[str, Action]] = {
    "enqueue": enqueue,
    "reclaim": reclaim,
    "allocate": allocate,
    "backfill": backfill,
    "preempt": preempt,
}
