"""What pods hold besides room: host ports, attached volumes and claims, now and without terminating pods."""

from __future__ import annotations

from collections.abc import Iterator

from kbatch.engine.cooperative import finish
from kbatch.engine.plugins.coupling import occupants
from kbatch.engine.plugins.ports import PortIndex
from kbatch.engine.plugins.volumes import AttachIndex, ClaimIndex
from kbatch.engine.state.node_resources import Index
from kbatch.model.cluster import ClusterModel
from kbatch.model.nodes import Mask, NodeTable
from kbatch.model.selectors import HostPort, host_ports
from kbatch.model.tasks import TaskClass


class Occupancy:
    """Ports and volumes of a session. Each kind is counted when the first pod that has some is asked about.

    Two counts of each: of all pods, for who binds now, and without the terminating ones, for who waits (`later`). With
    `emptied`, only pods of other schedulers that stay are counted.
    """

    def __init__(self, model: ClusterModel, table: NodeTable, *, emptied: bool = False) -> None:
        self._emptied = emptied
        self._model = model
        self._table = table
        self._ports_of: dict[int, frozenset[HostPort]] = {}
        self._ports: tuple[PortIndex, PortIndex] | None = None
        self._volumes: tuple[AttachIndex, AttachIndex] | None = None
        self._claims: tuple[ClaimIndex, ClaimIndex] | None = None

    def matters(self, cls: TaskClass) -> bool:
        """Whether pods of the class may keep others, or one another, off a node by ports or attach limits."""
        return bool(self._ports_of_class(cls)) or (bool(cls.volumes) and self._attached()[0].limited(cls))

    def shares(self, cls: TaskClass) -> bool:
        """Whether pods elsewhere may keep the class off a node, by a claim that both use."""
        return bool(cls.volumes) and self._used()[0].matters(cls)

    def claims_used(self, cls: TaskClass, rows: Index, *, later: bool) -> Mask | None:
        """The rows on which other users of its claims leave none for the class; None where it may share them all."""
        return self._used()[later].refused(cls, rows) if self.shares(cls) else None

    def ports_taken(self, cls: TaskClass, rows: Index, *, later: bool) -> Mask | None:
        """The rows on which a host port of the class is taken; None where it has none."""
        ports = self._ports_of_class(cls)
        return self._taken()[later].blocked(ports, rows) if ports else None

    def cannot_attach(self, cls: TaskClass, rows: Index, *, later: bool) -> Mask | None:
        """The rows that cannot attach the volumes of one more pod of the class; None where nothing limits them."""
        if not cls.volumes or not self._attached()[later].limited(cls):
            return None
        return self._attached()[later].over(cls, rows)

    def counts(self, cls: TaskClass) -> bool:
        """Whether pods of the class hold anything that is counted here."""
        return bool(cls.volumes) or bool(self._ports_of_class(cls))

    def move(self, cls: TaskClass, row: int, sign: int, *, stays: bool) -> None:
        """One pod more (1) or less (-1) on a row; `stays`: it only begins, or ceases, to terminate there."""
        ports = self._ports_of_class(cls)
        if ports:
            now, later = self._taken()
            later.add(ports, row, sign)
            if not stays:
                now.add(ports, row, sign)
        if cls.volumes:
            attached_now, attached_later = self._attached()
            attached_later.add(cls, row, sign)
            used_now, used_later = self._used()
            used_later.add(cls, row, sign)
            if not stays:
                attached_now.add(cls, row, sign)
                used_now.add(cls, row, sign)

    def _ports_of_class(self, cls: TaskClass) -> frozenset[HostPort]:
        found = self._ports_of.get(cls.id)
        if found is None:
            found = self._ports_of[cls.id] = host_ports(cls.spec)
        return found

    def _taken(self) -> tuple[PortIndex, PortIndex]:
        if self._ports is None:
            now, later = self._ports = (PortIndex(len(self._table)), PortIndex(len(self._table)))
            for cls, rows, terminating in self._pods():
                ports = self._ports_of_class(cls)
                for row in rows if ports else ():
                    now.add(ports, row)
                    if not terminating:
                        later.add(ports, row)
        return self._ports

    def _attached(self) -> tuple[AttachIndex, AttachIndex]:
        if self._volumes is None:
            model, table = self._model, self._table
            now, later = self._volumes = (AttachIndex(model, table), AttachIndex(model, table))
            for cls, rows, terminating in self._pods():
                for row in rows if cls.volumes else ():
                    now.add(cls, row)
                    if not terminating:
                        later.add(cls, row)
        return self._volumes

    def _used(self) -> tuple[ClaimIndex, ClaimIndex]:
        if self._claims is None:
            now, later = self._claims = (ClaimIndex(self._model, self._table), ClaimIndex(self._model, self._table))
            for cls, rows, terminating in self._pods():
                for row in rows if cls.volumes else ():
                    now.add(cls, row)
                    if not terminating:
                        later.add(cls, row)
        return self._claims

    def _pods(self) -> Iterator[tuple[TaskClass, list[int], bool]]:
        """Class, rows and "are terminating" of all pods on nodes, as the snapshot has them."""
        found_by_end = finish(occupants(self._model, self._table, emptied=self._emptied))
        for terminating, found in zip((False, True), found_by_end, strict=True):
            for cls, rows in found.items():
                yield cls, rows.tolist(), terminating
