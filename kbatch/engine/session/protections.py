"""What kept pods from being evicted for a preemptor that could otherwise have had their room."""

from __future__ import annotations

from collections.abc import Iterable

from kbatch.api.reasons import Protection, Protector


class Protections:
    """Of each kind the first object by name, and whether there are others: so much is told, however many there are."""

    def __init__(self) -> None:
        self._found: dict[Protector, Protection] = {}

    def has(self, by: Protector, name: str) -> bool:
        """Whether to add this would change nothing."""
        known = self._found.get(by)
        return known is not None and (known.name == name or (known.others and known.name < name))

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

    def clear(self) -> None:
        """Begin anew, for the next preemptor."""
        self._found.clear()

    @property
    def found(self) -> tuple[Protection, ...]:
        """All of it, in the order of the kinds."""
        return tuple(self._found[by] for by in Protector if by in self._found)
