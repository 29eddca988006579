"""Nodes on which a group's pods failed, and which of them the group therefore avoids.

A pod that failed is soon made again and its object deleted, so the podgroup operator writes down in the PodGroup's
status which pods failed where, by uid: whoever counts those in the status and the pods that are there counts none
twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kbatch.api.objects import NodeFailures, Pod, PodGroup
from kbatch.model.tasks import Task

MOST_NODES: Final = 64
"""Of so many nodes a group's status says which failed its pods."""

_NONE: Final[frozenset[str]] = frozenset()


def failed_on(pod: Pod) -> str:
    """The node on which the pod failed by itself; empty for any other: one that others ended, that is being deleted."""
    if pod.status.phase != "Failed" or pod.metadata.deletion_timestamp is not None:
        return ""
    if any(one.type == "DisruptionTarget" and one.status == "True" for one in pod.status.conditions or ()):
        return ""
    return pod.spec.node_name


def remembered(
    standing: Iterable[NodeFailures], seen: Iterable[tuple[str, str]], limit: int
) -> tuple[NodeFailures, ...]:
    """What a group's status should say, in the order of names; of each node `limit` failures, which is all that counts.

    Args:
        standing: what it says.
        seen: node and uid of each pod that failed and is there.
        limit: after so many failures the node is avoided.
    """
    found: dict[str, dict[str, None]] = {one.node: dict.fromkeys(one.pods) for one in standing}
    for node, uid in sorted(seen):
        found.setdefault(node, {})[uid] = None
    most = sorted(found, key=lambda node: (-len(found[node]), node))[:MOST_NODES]
    return tuple(NodeFailures(node=node, pods=tuple(found[node])[:limit]) for node in sorted(most))


def avoided(failures: Iterable[NodeFailures], limit: int) -> frozenset[str]:
    """The nodes that the group avoids."""
    return frozenset(one.node for one in failures if len(one.pods) >= limit)


class BadNodes:
    """The nodes that each group avoids. Changed by the `ClusterModel` alone."""

    def __init__(self) -> None:
        self._failed: dict[str, dict[str, tuple[str, str]]] = {}
        self._avoided: dict[str, frozenset[str]] = {}

    def of(self, job: str) -> frozenset[str]:
        """The nodes that the group of this key avoids."""
        return self._avoided.get(job, _NONE)

    @property
    def every(self) -> Mapping[str, frozenset[str]]:
        """By the group's key, for those that avoid any."""
        return self._avoided

    def swap(self, old: Task | None, new: Task | None) -> set[str]:
        """Put `new` in the place of `old`: the same pod before and after. The groups of which others have failed."""
        changed: set[str] = set()
        if old is not None and old.terminal and old.job in self._failed:
            mine = self._failed[old.job]
            if mine.pop(old.key, None) is not None:
                changed.add(old.job)
                if not mine:
                    del self._failed[old.job]
        if new is not None and new.terminal and not new.succeeded and new.job:
            node = failed_on(new.pod)
            if node:
                self._failed.setdefault(new.job, {})[new.key] = node, new.uid
                changed.add(new.job)
        return changed

    def settle(self, job: str, group: PodGroup | None) -> bool:
        """Work out which nodes the group of this key avoids; whether these are others than before."""
        found = _NONE
        if group is not None and (group.status.node_failures or job in self._failed):
            limit = group.spec.bad_node_limit
            seen = self._failed.get(job, {}).values()
            found = avoided(remembered(group.status.node_failures or (), seen, limit), limit)
        if found == self.of(job):
            return False
        if found:
            self._avoided[job] = found
        else:
            del self._avoided[job]
        return True
