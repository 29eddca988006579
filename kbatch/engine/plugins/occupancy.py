"""What pods hold besides room: host ports, attached volumes and claims, now and without terminating pods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeVar

from kbatch.engine.cooperative import finish
from kbatch.engine.plugins.occupants import FOREIGN, LEAVING, STANDING, Occupants, occupants_of, of_part
from kbatch.engine.plugins.ports import PortIndex
from kbatch.engine.plugins.volumes import AttachIndex, ClaimIndex
from kbatch.engine.state.node_resources import Index
from kbatch.model.cluster import ClusterModel
from kbatch.model.nodes import Mask, NodeTable
from kbatch.model.selectors import HostPort, host_ports
from kbatch.model.tasks import TaskClass

_I = TypeVar("_I", AttachIndex, ClaimIndex)


class _Kept:
    """The counts, kept from cycle to cycle; each is made when the first pod that has some of its kind is asked about.

    Two of each: of all pods, for who binds now, and without the terminating ones, for who waits.
    """

    def __init__(self, model: ClusterModel, table: NodeTable, occupants: Occupants, *, emptied: bool) -> None:
        self._model = model
        self._table = table
        parts: tuple[int, int | None] = (FOREIGN, None) if emptied else (STANDING, LEAVING)
        self._stays, self._leaves = parts
        self._staying = of_part(occupants, self._stays)
        self._leaving = of_part(occupants, self._leaves)
        self._ports_of: dict[int, frozenset[HostPort]] = {}
        self._ports: tuple[PortIndex, PortIndex] | None = None
        self._volumes: tuple[AttachIndex, AttachIndex] | None = None
        self._claims: tuple[ClaimIndex, ClaimIndex] | None = None
        self._done: dict[tuple[TaskClass, int, bool], int] = {}

    def ports_of(self, cls: TaskClass) -> frozenset[HostPort]:
        """The host ports of a class."""
        found = self._ports_of.get(cls.id)
        if found is None:
            found = self._ports_of[cls.id] = host_ports(cls.spec)
        return found

    def taken(self) -> tuple[PortIndex, PortIndex]:
        """The ports in use."""
        if self._ports is None:
            now, later = self._ports = (PortIndex(len(self._table)), PortIndex(len(self._table)))
            for cls, rows, stays in self._pods():
                ports = self.ports_of(cls)
                for row, amount in rows.items() if ports else ():
                    now.add(ports, row, amount)
                    if stays:
                        later.add(ports, row, amount)
        return self._ports

    def attached(self) -> tuple[AttachIndex, AttachIndex]:
        """The volumes attached."""
        if self._volumes is None:
            self._volumes = self._counted(lambda: AttachIndex(self._model, self._table))
        return self._volumes

    def used(self) -> tuple[ClaimIndex, ClaimIndex]:
        """The claims in use."""
        if self._claims is None:
            self._claims = self._counted(lambda: ClaimIndex(self._model, self._table))
        return self._claims

    def move(self, cls: TaskClass, row: int, sign: int, *, stays: bool) -> None:
        """The session puts one on a row (1), or takes it away (-1); `stays`: it only begins, or ceases, to terminate
        there.
        """
        if self.ports_of(cls):
            self.taken()
        if cls.volumes:
            self.attached()
            self.used()
        self._done[cls, row, stays] = self._done.get((cls, row, stays), 0) + sign
        self._add(cls, row, sign, now=not stays, later=True)

    def reset(self) -> None:
        """Take back what the session did."""
        for (cls, row, stays), amount in self._done.items():
            if amount:
                self._add(cls, row, -amount, now=not stays, later=True)
        self._done.clear()

    def moved(self, part: int, cls: TaskClass, row: int, amount: int) -> None:
        """See `Follower`."""
        if part == self._stays:
            self._add(cls, row, amount, now=True, later=True)
        elif part == self._leaves:
            self._add(cls, row, amount, now=True, later=False)

    def _add(self, cls: TaskClass, row: int, amount: int, *, now: bool, later: bool) -> None:
        counts = [at for at, wanted in enumerate((now, later)) if wanted]
        ports = self.ports_of(cls) if self._ports is not None else ()
        if ports and self._ports is not None:
            for at in counts:
                self._ports[at].add(ports, row, amount)
        if cls.volumes:
            sign = 1 if amount > 0 else -1
            for _ in range(abs(amount)):
                for at in counts:
                    if self._volumes is not None:
                        self._volumes[at].add(cls, row, sign)
                    if self._claims is not None:
                        self._claims[at].add(cls, row, sign)

    def _counted(self, make: Callable[[], _I]) -> tuple[_I, _I]:
        now, later = make(), make()
        for cls, rows, stays in self._pods():
            for row, amount in rows.items() if cls.volumes else ():
                for _ in range(amount):
                    now.add(cls, row)
                    if stays:
                        later.add(cls, row)
        return now, later

    def _pods(self) -> Iterator[tuple[TaskClass, Mapping[int, int], bool]]:
        """Class, rows and "stays" of all pods on nodes, as the snapshot has them."""
        for cls, rows in self._staying.items():
            yield cls, rows, True
        for cls, rows in self._leaving.items():
            yield cls, rows, False


class Occupancy:
    """Ports and volumes of a session.

    With `emptied`, only pods of other schedulers that stay are counted.
    """

    def __init__(self, model: ClusterModel, table: NodeTable, *, emptied: bool = False) -> None:
        self._model = model
        self._table = table
        self._emptied = emptied
        self._name: Final = "occupancy", emptied
        self._taken: tuple[_Kept, Occupants, int] | None = None
        self._ports: dict[int, frozenset[HostPort]] = {}

    def let_go(self) -> Iterable[None]:
        """Give the counts back for the next cycle. Nothing is asked any more."""
        if self._taken is not None:
            kept, occupants, version = self._taken
            self._taken = None
            kept.reset()
            occupants.give_back(self._name, kept, version)
        return ()

    @property
    def _kept(self) -> _Kept:
        if self._taken is None:
            occupants = finish(occupants_of(self._model, self._table))
            kept = occupants.take(self._name, _Kept)
            if kept is None:
                kept = _Kept(self._model, self._table, occupants, emptied=self._emptied)
            self._taken = kept, occupants, occupants.version
        return self._taken[0]

    def ports_of(self, cls: TaskClass) -> frozenset[HostPort]:
        """The host ports of a class. Nobody's pods are counted for it: most classes have none."""
        found = self._ports.get(cls.id)
        if found is None:
            found = self._ports[cls.id] = host_ports(cls.spec)
        return found

    def matters(self, cls: TaskClass) -> bool:
        """Whether pods of the class may keep others, or one another, off a node by ports or attach limits."""
        return bool(self.ports_of(cls)) or (bool(cls.volumes) and self._kept.attached()[0].limited(cls))

    def shares(self, cls: TaskClass) -> bool:
        """Whether pods elsewhere may keep the class off a node, by a claim that both use."""
        return bool(cls.volumes) and self._kept.used()[0].matters(cls)

    def claims_used(self, cls: TaskClass, rows: Index, *, later: bool) -> Mask | None:
        """The rows on which other users of its claims leave none for the class; None where it may share them all."""
        return self._kept.used()[later].refused(cls, rows) if self.shares(cls) else None

    def ports_taken(self, cls: TaskClass, rows: Index, *, later: bool) -> Mask | None:
        """The rows on which a host port of the class is taken; None where it has none."""
        ports = self.ports_of(cls)
        return self._kept.taken()[later].blocked(ports, rows) if ports else None

    def cannot_attach(self, cls: TaskClass, rows: Index, *, later: bool) -> Mask | None:
        """The rows that cannot attach the volumes of one more pod of the class; None where nothing limits them."""
        if not cls.volumes or not self._kept.attached()[later].limited(cls):
            return None
        return self._kept.attached()[later].over(cls, rows)

    def contend(self, cls: TaskClass, other: TaskClass) -> bool:
        """Whether pods of two classes have a claim in common that they cannot share wherever they like."""
        return bool(cls.volumes and other.volumes) and self._kept.used()[0].contend(cls, other)

    def counts(self, cls: TaskClass) -> bool:
        """Whether pods of the class hold anything that is counted here."""
        return bool(cls.volumes) or bool(self.ports_of(cls))

    def move(self, cls: TaskClass, row: int, sign: int, *, stays: bool) -> None:
        """One pod more (1) or less (-1) on a row; `stays`: it only begins, or ceases, to terminate there."""
        if self.counts(cls):
            self._kept.move(cls, row, sign, stays=stays)
