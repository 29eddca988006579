"""Where pods may stand together: the domains of the tree, and what bounds them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import ClassVar

import numpy as np
from pydantic import BaseModel

from kbatch.api.reasons import Reason, TopologyUnsatisfied
from kbatch.engine.plugin import NodeSets, Plugin, View
from kbatch.engine.plugins.topology.arguments import TopologyArguments
from kbatch.engine.plugins.topology.wishes import Wish, Wishes, wishes_of
from kbatch.engine.state.jobs import JobState
from kbatch.model.domains import DomainTree, domains, preparing
from kbatch.model.nodes import Column, Mask
from kbatch.model.tasks import Task


class Topology(Plugin):
    """Pods of groups and roles with `topology` stand as few hops apart as can be, and no more than `maxHops`.

    Argument: `levels`, the node labels that say where a node stands, outermost first; the node itself is always the
    last level.
    """

    name: ClassVar[str] = "topology"
    Arguments: ClassVar[type[BaseModel]] = TopologyArguments
    shrinks: ClassVar[bool] = True

    def __init__(self, arguments: TopologyArguments, view: View) -> None:
        super().__init__(arguments, view)
        self._levels = arguments.levels
        self._wishes: dict[str, Wishes] = {}

    def prepare(self) -> Iterable[None]:
        """Make the tree, where nodes have changed in themselves."""
        return preparing(self.view.nodes, self._levels)

    @property
    def _tree(self) -> DomainTree:
        return domains(self.view.nodes, self._levels)

    def together(self, job: JobState) -> Hashable | None:
        """What the group and its roles ask for."""
        return self._of(job) or None

    def strict(self, job: JobState) -> bool:
        """Whether the group or some role requires it."""
        return any(wish.required for _, wish in self._of(job))

    def compares(self, job: JobState) -> bool:
        """Where something is required and no number of hops given, the bound is what the emptied cluster allows."""
        return not self.view.emptied and any(wish.required and wish.height is None for _, wish in self._of(job))

    def node_sets(
        self, job: JobState, role: str | None, fitting: Column, placed: Sequence[int]
    ) -> Sequence[NodeSets] | None:
        """The domains of each height, from that which those that stand need to that which is allowed."""
        wish = self._wish(job, role)
        if wish is None:
            return None
        tree = self._tree
        found: list[NodeSets] = []
        for height in range(tree.height(placed), self._bound(job, role, wish) + 1):
            of = tree.of[height]
            if placed:
                of = np.where(of == of[placed[0]], np.int64(0), np.int64(-1))
            found.append(NodeSets(of, 2 * height, tree.of[height + 1 : tree.top]))
        return found

    def within(self, job: JobState, task: Task) -> Mask | None:
        """The domains, of the height that is allowed, of the pods that stand."""
        found: Mask | None = None
        for role, wish in self._of(job):
            if not wish.required or role not in {None, task.role}:
                continue
            rows = self.view.standing(job, role)
            if not rows:
                continue
            tree, bound = self._tree, self._bound(job, role, wish)
            mask = tree.mask(bound, int(tree.of[bound][rows[0]]))
            if not mask[rows].all():
                mask = np.zeros(len(mask), np.bool_)  # whoever came would be too far from one of them
            found = mask if found is None else found & mask
        return found

    def apart(self, job: JobState, role: str | None, needed: int, placeable: int, row: int) -> Reason | None:
        """So many fit into the best domain."""
        wish = self._wish(job, role)
        if wish is None:
            return None
        bound = self._bound(job, role, wish)
        tree = self._tree
        domain = tree.name(bound, row) if row >= 0 else ""
        return TopologyUnsatisfied(needed, placeable, 2 * bound, role or "", domain, tree.level(bound))

    # --- what is asked for --------------------------------------------------------------------------------------------

    def _of(self, job: JobState) -> Wishes:
        found = self._wishes.get(job.key)
        if found is None:
            group = job.job.group
            found = self._wishes[job.key] = wishes_of(group) if group is not None and not job.job.shadow else ()
        return found

    def _wish(self, job: JobState, role: str | None) -> Wish | None:
        return next((wish for of, wish in self._of(job) if of == role), None)

    def _bound(self, job: JobState, role: str | None, wish: Wish) -> int:
        """The height of the domain in which all must stand."""
        tree = self._tree
        if not wish.required:
            return tree.top
        if wish.height is not None:
            return min(wish.height, tree.top)
        alone = self.view.alone(job)
        rows = [row for of, some in alone.items() if role in {None, of} for row in some]
        if not rows:
            return tree.top
        # Those that stand may stand closer than the emptied cluster would have it: others may still join them.
        return max(tree.height(rows), tree.height(self.view.standing(job, role)))
