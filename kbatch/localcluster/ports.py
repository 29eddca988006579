"""Free ports on loopback for servers that other programs will open."""

from __future__ import annotations

import random
import socket
from typing import TYPE_CHECKING

from kbatch.localcluster.errors import LocalClusterError, PortTakenError

if TYPE_CHECKING:
    from collections.abc import Collection

LOOPBACK = "127.0.0.1"

# Below Linux' range for outgoing connections (32768 and up): a server that is restarted, as tests do, must find its
# port still free.
_FIRST, _LAST = 20_000, 32_000


def is_free(port: int) -> bool:
    """Tell whether a server could listen on this port of loopback now."""
    with socket.socket() as probe:
        # As servers do: a port that only lingers in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def require_free_port(port: int, purpose: str) -> int:
    """Return the port, or raise PortTakenError."""
    if not is_free(port):
        raise PortTakenError(port, purpose)
    return port


def free_ports(count: int, reserved: Collection[int] = ()) -> list[int]:
    """Return distinct ports that are free now, none of them reserved.

    Nothing holds them: whoever may race for them holds a lock from here until the servers listen.
    """
    # Scattered, so that two users of one machine seldom try the same ones; which ones does not matter to any result.
    candidates = random.sample(range(_FIRST, _LAST), _LAST - _FIRST)
    chosen: list[int] = []
    for port in candidates:
        if len(chosen) == count:
            break
        if port not in reserved and is_free(port):
            chosen.append(port)
    if len(chosen) < count:
        raise LocalClusterError(f"There are no {count} free ports between {_FIRST} and {_LAST} on {LOOPBACK}.")
    return chosen
