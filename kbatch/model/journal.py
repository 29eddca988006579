"""Which things have changed, in order, for readers that come back now and then."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Final, Generic, TypeVar

_K = TypeVar("_K")

_MOST: Final = 1 << 13
"""So many changes are kept by default; a reader that comes back later than that has to look at everything. Eight times
as many filled for more than an hour where fifty pods came in a second, and kept the keys of what was gone by then."""
_NOTHING: Final = ()


class Journal(Generic[_K]):
    """The keys of changed groups (nodes, classes), each as often as it has changed between two readings of its sums.

    At most so many of the last changes are kept; None: as many as by default. Where there are more groups (`alive`), as
    many as there are: to look at everything costs that much.
    """

    def __init__(self, most: int | None = None, alive: Sized = _NOTHING) -> None:
        self._most = _MOST if most is None else most
        self._alive = alive
        self._keys: list[_K] = []
        self._dropped = 0

    @property
    def position(self) -> int:
        """Where a reader that has seen everything stands."""
        return self._dropped + len(self._keys)

    def note(self, key: _K) -> None:
        """It has changed, has come or is gone."""
        self._keys.append(key)
        count = len(self._keys)
        if count > self._most and count > len(self._alive):
            dropped = count // 2
            del self._keys[:dropped]
            self._dropped += dropped

    def since(self, position: int) -> Sequence[_K] | None:
        """The keys noted since that position, some more than once; None where that is not known any more."""
        at = position - self._dropped
        return self._keys[at:] if at >= 0 else None
