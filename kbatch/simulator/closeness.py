"""Where groups stand in the network, as far as they ask to stand close together: domains and hops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kbatch.api.names import MAX_HOPS_ANNOTATION
from kbatch.api.objects import PodGroup
from kbatch.engine import Policy
from kbatch.model.cluster import ClusterModel
from kbatch.model.domains import DomainTree, domains
from kbatch.model.tasks import Task

_PLUGIN = "topology"


@dataclass(frozen=True, slots=True)
class Stand:
    """Where the pods of a role (`role` "": of the whole group) stand: the lowest domain that holds all `pods` of them,
    what its level is called, and the most hops between any two.
    """

    role: str
    pods: int
    hops: int
    level: str
    domain: str

    def json(self) -> dict[str, Any]:
        """As it stands in a group's `topology`."""
        return {"pods": self.pods, "hops": self.hops, "level": self.level, "domain": self.domain}


def asks_for_it(group: PodGroup) -> bool:
    """Whether the group, or a role of it, says how close its pods are to stand."""
    roles = group.spec.sub_groups or ()
    annotated = MAX_HOPS_ANNOTATION in (group.metadata.annotations or {})
    return bool(group.spec.topology or annotated or any(role.topology for role in roles))


def levels_of(policy: Policy) -> Sequence[str] | None:
    """The levels of the plugin topology; None where it is not configured."""
    arguments = [part.arguments for part in policy.plugins if part.plugin.name == _PLUGIN]
    found: Sequence[str] | None = getattr(arguments[0], "levels", ()) if arguments else None
    return found


def stands_of(model: ClusterModel, levels: Sequence[str] | None, key: str) -> tuple[Stand, ...]:
    """Where the group of this key stands, and then each of its roles; those of which no pod has a node are left out."""
    job = model.jobs[key]
    if levels is None or job.group is None or not asks_for_it(job.group):
        return ()
    tree = domains(model.table, levels)
    placed = [task for task in job.tasks.values() if task.node in model.table.row and (task.succeeded or task.holds)]
    roles = [role.name for role in job.roles]
    found = [_stand(model, tree, "", placed)]
    found += [_stand(model, tree, role, (task for task in placed if task.role == role)) for role in roles]
    return tuple(stand for stand in found if stand is not None)


def _stand(model: ClusterModel, tree: DomainTree, role: str, tasks: Iterable[Task]) -> Stand | None:
    rows = [model.table.row[task.node] for task in tasks]
    if not rows:
        return None
    height = tree.height(rows)
    return Stand(role, len(rows), 2 * height, tree.level(height), tree.name(height, rows[0]))
