"""How tightly a run packed: the nodes that were in use, and how much of the idle room was of no use to who waited."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kbatch.engine.cooperative import finish
from kbatch.model.cluster import ClusterModel
from kbatch.model.fragmentation import Mix, measuring, opened

_FINE: Final = 10**12


@dataclass(slots=True)
class PackingSums:
    """Sums over the time of a run. `opened` are the nodes that held pods so far."""

    opened: set[str] = field(default_factory=set)
    _mix: Mix = field(default_factory=Mix)
    _generation: int = -1
    _of: tuple[int, frozenset[int]] | None = None
    """What was last measured: what stands on the nodes, and the classes that waited."""
    _now: dict[str, int] = field(default_factory=dict)
    _sums: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By resource, fragmentation (in 10^-12) by time, and the time in which there was any to tell."""

    def look(self, model: ClusterModel) -> None:
        """This is how things stand from now on."""
        if model.generation == self._generation:
            return
        self._generation = model.generation
        waiting = finish(self._mix.looking(model))
        of = model.standing_generation, frozenset(cls.id for cls in waiting)
        if of == self._of:
            return
        self._of = of
        self.opened.update(opened(model.table))
        found = finish(measuring(model.table, waiting)) if waiting else {}
        self._now = {name: round(part * _FINE) for name, part in found.items()}

    def passed(self, length: int) -> None:
        """What was looked at last stood for so long."""
        for name, part in self._now.items():
            whole, time = self._sums.get(name, (0, 0))
            self._sums[name] = (whole + part * length, time + length)

    def fragmentation(self) -> dict[str, float]:
        """By resource the mean; in a run of a single instant, as it is then."""
        means = {name: whole // time for name, (whole, time) in self._sums.items() if time} or self._now
        return {name: round(part / _FINE, 6) for name, part in sorted(means.items())}
