"""Host ports that pods take on nodes."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from kbatch.engine.state.node_resources import Index
from kbatch.model.nodes import Column, Mask
from kbatch.model.selectors import ANY_ADDRESS, HostPort


class PortIndex:
    """How many pods take each host port on each of `nodes` rows: a column per port, protocol and address in use."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._taken: dict[tuple[str, int], dict[str, Column]] = {}
        self._users: dict[HostPort, int] = {}

    def add(self, ports: Iterable[HostPort], row: int, amount: int = 1) -> None:
        """So many pods more (or less) with these ports stand on a row."""
        for port in ports:
            key = port.protocol, port.port
            columns = self._taken.setdefault(key, {})
            if port.ip not in columns:
                columns[port.ip] = np.zeros(self._nodes, np.int64)
            columns[port.ip][row] += amount
            users = self._users.get(port, 0) + amount
            if users:
                self._users[port] = users
            else:
                del self._users[port]
                del columns[port.ip]
                if not columns:
                    del self._taken[key]

    def blocked(self, ports: Iterable[HostPort], rows: Index) -> Mask:
        """The rows on which one of the ports is taken; the address `0.0.0.0` meets every other."""
        mask = np.zeros(len(rows), np.bool_)
        for port in ports:
            for ip, column in self._taken.get((port.protocol, port.port), {}).items():
                if ip == port.ip or ANY_ADDRESS in {ip, port.ip}:
                    mask |= column[rows] > 0
        return mask
