"""What kept pods from being evicted for a preemptor that could otherwise have had their room."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from kbatch.api.reasons import Protection, Protector
from kbatch.engine.plugin import Unit

LOOKS: Final = 5_000
"""So many units one cycle looks at for what protects them: some ten milliseconds, however much waits and runs."""


class Protections:
    """Of each kind the first object by name, and whether there are others: so much is told, however many there are.

    Args:
        looks: so many units are looked at; the groups behind are told nothing.
    """

    def __init__(self, looks: int = LOOKS) -> None:
        self._found: dict[Protector, Protection] = {}
        self._concerns: Callable[[Unit], bool] | None = None
        self._looks = looks

    def begin(self, concerns: Callable[[Unit], bool]) -> None:
        """Forget what was found for the preemptor before. `concerns`: whether a unit would be of use to this one."""
        self._found.clear()
        self._concerns = concerns

    def end(self) -> None:
        """Nothing is noted until the next one begins."""
        self._concerns = None

    def wants(self, by: Protector, name: str) -> bool:
        """Whether it would be news that this object protects pods, and there is time to look at it."""
        if self._concerns is None or not self._looks:
            return False
        known = self._found.get(by)
        if known is not None and (known.name == name or (known.others and known.name < name)):
            return False
        self._looks -= 1
        return True

    def concern(self, unit: Unit) -> bool:
        """Whether the unit would be of use to the preemptor."""
        return self._concerns is not None and self._concerns(unit)

    def add(self, by: Protector, name: str) -> None:
        """Pods are protected by this object."""
        known = self._found.get(by)
        if known is None:
            self._found[by] = Protection(by, name)
        elif known.name != name:
            self._found[by] = Protection(by, min(name, known.name), others=True)

    def merge(self, found: Iterable[Protection]) -> None:
        """Add what was found at another time."""
        for each in found:
            self.add(each.by, each.name)
            if each.others:
                self._found[each.by] = Protection(each.by, self._found[each.by].name, others=True)

    @property
    def found(self) -> tuple[Protection, ...]:
        """All of it, in the order of the kinds."""
        return tuple(self._found[by] for by in Protector if by in self._found)
