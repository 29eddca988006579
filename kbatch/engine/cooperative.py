"""Work in pieces: generators that stop every few milliseconds, so that whoever runs them may do something else."""

from __future__ import annotations

from collections.abc import Generator, Iterator, MutableMapping
from typing import Any, Final, TypeVar

_T = TypeVar("_T")

WORK_BETWEEN_TURNS: Final = 200
"""In units of about ten microseconds: what it takes to look at one group."""

_FREED_AT_ONCE: Final = 500


class Pace:
    """Says when a turn is due. It counts work and not time: the engine reads no clock."""

    def __init__(self) -> None:
        self._left = WORK_BETWEEN_TURNS

    def due(self, work: int = 1) -> bool:
        """Some work is done (in the units above): whether the caller should get a turn."""
        self._left -= work
        if self._left > 0:
            return False
        self._left = WORK_BETWEEN_TURNS
        return True


def emptying(known: MutableMapping[Any, Any]) -> Iterator[None]:
    """Empty a mapping, in pieces: to free thousands of things at once takes long."""
    while known:
        for _ in range(min(len(known), _FREED_AT_ONCE)):
            known.popitem()
        yield


def finish(steps: Generator[object, None, _T]) -> _T:
    """The result of work in pieces, done in one."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: _T = end.value
            return found
