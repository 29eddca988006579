"""What the processes of a run have used, by part, with all of their descendants."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from kbatch.localcluster.cluster import COMPONENTS, Cluster
from kbatch.localcluster.host import Folder

_TICK: Final = os.sysconf("SC_CLK_TCK")


def family(pid: int) -> set[int]:
    """A process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found: set[int] = set()
    left = [pid]
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left += children.get(one, [])
    return found


def cpu(pid: int) -> float:
    """Seconds of CPU of a process and its descendants, those that have ended and were waited for included."""
    total = 0
    for one in family(pid):
        if fields := _stat(one):
            total += sum(map(int, fields[11:15]))
    return total / _TICK


def parts(cluster: Cluster) -> dict[str, int]:
    """The pids of the control plane and of kbatch's own processes, by name. What plays their kubelet is none."""
    found = {name: pid for name in COMPONENTS if (pid := cluster.pid(name)) is not None}
    states = Folder(cluster.host_folder).states()
    return found | {f"kbatch-{name}": state.pid for name, state in states.items() if state.pid is not None}


def _stat(pid: int) -> list[str] | None:
    """The fields after the name; None once it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        return None
