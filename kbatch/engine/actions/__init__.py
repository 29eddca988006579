"""The built-in actions, by the name that stands in configurations."""

from __future__ import annotations

from typing import Final

from kbatch.engine.actions.allocate import Allocate
from kbatch.engine.actions.backfill import Backfill
from kbatch.engine.actions.base import Action
from kbatch.engine.actions.enqueue import Enqueue
from kbatch.engine.actions.preempt import Preempt
from kbatch.engine.actions.reclaim import Reclaim

BUILTIN: Final[dict[str, type[Action]]] = {
    action.name: action for action in (Allocate, Backfill, Enqueue, Preempt, Reclaim)
}
