"""The actions, by the name that stands in configurations. Each is a generator of transactions over a session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

from kbatch.engine.actions.allocate import allocate
from kbatch.engine.boundary import Transaction

if TYPE_CHECKING:
    from kbatch.engine.session import Session

Action: TypeAlias = "Callable[[Session], Iterator[Transaction]]"

ACTIONS: Final[dict[str, Action]] = {"allocate": allocate}
