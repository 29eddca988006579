"""Groups that are over: what they had was free for others, so they are held against the quotas if they come again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from kbatch.model.quota import Ask

REVIVAL_SECONDS: Final = 30.0
"""For so long a grant stands in the ledger whose group is not seen."""

T = TypeVar("T")


class Lapsed:
    """By namespace and name what such groups ask for, until they were held against the quotas and live again."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._over: dict[str, dict[str, Ask]] = {}
        self._passed: dict[str, dict[str, tuple[Ask, float]]] = {}
        """Those that were held against a quota, and until when that counts though they are not seen to live."""

    def __bool__(self) -> bool:
        return bool(self._over or self._passed)

    def __contains__(self, group: tuple[str, str]) -> bool:
        return group[1] in self._over.get(group[0], ())

    def put(self, namespace: str, name: str, ask: Ask) -> None:
        """A group is over, or was when it was last held against a quota."""
        self._over.setdefault(namespace, {})[name] = ask

    def drop(self, namespace: str, name: str) -> None:
        """It is gone."""
        _take(self._over, namespace, name)
        _take(self._passed, namespace, name)

    def lives(self, namespace: str, name: str) -> None:
        """It was held against a quota, and is seen to live."""
        _take(self._passed, namespace, name)

    def held(self, namespace: str, name: str) -> None:
        """It was held against the quotas. If it does not come to life in time, it will be once more."""
        ask = _take(self._over, namespace, name)
        if ask is not None:
            self._passed.setdefault(namespace, {})[name] = ask, self._clock() + REVIVAL_SECONDS

    def among(self, namespace: str) -> Mapping[str, Ask]:
        """Those of a namespace that are to be held against its quotas when they come to life."""
        now = self._clock()
        for name, (ask, until) in tuple(self._passed.get(namespace, {}).items()):
            if until <= now:
                _take(self._passed, namespace, name)
                self.put(namespace, name, ask)
        return self._over.get(namespace, {})


def _take(among: dict[str, dict[str, T]], namespace: str, name: str) -> T | None:
    """Take a group out of a table; what stood there."""
    named = among.get(namespace)
    if named is None:
        return None
    found = named.pop(name, None)
    if not named:
        del among[namespace]
    return found
