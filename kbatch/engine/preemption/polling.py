"""Consent on behalf of one preemptor: each unit is asked about against the state after those already taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kbatch.engine.context import CycleContext
from kbatch.engine.plugin import Preemptor, Unit
from kbatch.engine.preemption.candidates import order_of
from kbatch.engine.session.statement import Statement
from kbatch.resources import Resources


@dataclass(frozen=True, slots=True)
class Evictor:
    """On whose behalf units are evicted: the action's name, and the plugin method that votes on them."""

    name: str
    ballot: str


@dataclass(frozen=True, slots=True)
class Victim:
    """A unit that is to go: the tier that consented, and by how much its queue then lacks its share."""

    unit: Unit
    rank: int
    deficit: Resources

    @property
    def order(self) -> tuple[Any, ...]:
        """Its place among units of as many pods that may go as willingly."""
        return order_of(self.unit)


class Poll:
    """What is said of units for one preemptor, and the units taken for it so far, in order."""

    def __init__(self, context: CycleContext, evictor: Evictor, preemptor: Preemptor) -> None:
        self._consent = context.consent
        self.evictor = evictor
        self.preemptor = preemptor
        self.taken: list[Victim] = []

    @property
    def units(self) -> list[Unit]:
        """The units taken so far."""
        return [victim.unit for victim in self.taken]

    def vote(self, unit: Unit) -> tuple[int | None, Resources]:
        """How willingly the unit goes, None: not at all; and by how much its queue would then be below its share."""
        rank = self._consent.rank(self.evictor.ballot, self.preemptor, unit)
        if rank is None:
            return None, {}
        return rank, self._consent.deficit(self.evictor.ballot, self.preemptor, unit)

    def above_share(self, queue: str) -> Resources | None:
        """What may go of the queue at most without its being below its share; see `Consent.above_share`."""
        return self._consent.above_share(self.evictor.ballot, self.preemptor, queue)

    def bearable(self, deficit: Resources, besides: Sequence[Victim]) -> bool:
        """Whether all that donors would lack in the end is at most what the preemptor gains, dimension by dimension."""
        gains = self.preemptor.request
        return all(
            amount + sum(victim.deficit.get(name, 0) for victim in (*self.taken, *besides)) <= gains.get(name, 0)
            for name, amount in deficit.items()
        )

    def ask(self, unit: Unit, besides: Sequence[Victim], *, below: bool) -> Victim | None:
        """The unit as a victim, `besides` others that are evicted but not taken yet; None where it may not go.

        Only with `below` may it take its queue below its share.
        """
        rank, deficit = self.vote(unit)
        if rank is None or (deficit and not (below and self.bearable(deficit, besides))):
            return None
        return Victim(unit, rank, deficit)

    def take(self, statement: Statement, victim: Victim) -> None:
        """Evict the unit for good, as far as this plan goes."""
        evict(statement, victim.unit, self.evictor.name)
        self.taken.append(victim)

    def assents(self, statement: Statement, units: Sequence[Unit]) -> Unit | None:
        """Ask about units as a set, in order, from the state before any has gone; the first that may not go, or None.

        The statement is left as it was.
        """
        mark, victims = len(statement), list[Victim]()
        refused = None
        for unit in units:
            victim = self.ask(unit, victims, below=True)
            if victim is None:
                refused = unit
                break
            evict(statement, unit, self.evictor.name)
            victims.append(victim)
        statement.rollback(mark)
        return refused


def evict(statement: Statement, unit: Unit, action: str) -> None:
    """Evict the pods of a unit."""
    for task in unit.tasks:
        statement.evict(unit.job, task, action)
