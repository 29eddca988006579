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
        self._bounds: dict[tuple[str, str | None], int] = {}
        self._heights: dict[tuple[str, str | None], int] = {}
        self._masks: dict[tuple[int, int, bool], Mask] = {}
        self._sets: dict[int, Sequence[NodeSets]] = {}

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
        bound = self._bound(job, role, wish)
        if placed:
            return self._domains(self._tree.height(placed), bound, placed[0])
        found = self._sets.get(bound)
        if found is None:
            found = self._sets[bound] = self._domains(0, bound)
        return found

    def _domains(self, lowest: int, bound: int, row: int | None = None) -> Sequence[NodeSets]:
        """Those of each height from the lowest to the bound: all, or only that which a row is in."""
        tree = self._tree
        found: list[NodeSets] = []
        for height in range(lowest, bound + 1):
            of = tree.of[height]
            if row is not None:
                of = np.where(of == of[row], np.int64(0), np.int64(-1))
            parents = tree.of[height + 1 : tree.top]
            found.append(NodeSets(of, 2 * height, parents, by_row=not height and row is None))
        return found

    def within(self, job: JobState, task: Task) -> Mask | None:
        """The domains, of the height that is allowed, of the pods that stand."""
        found: Mask | None = None
        for role, wish in self._of(job):
            if wish.required and role in {None, task.role}:
                row = job.anchor(role)
                if row is not None:
                    mask = self._around(row, self._bound(job, role, wish), self._tallest(job, role))
                    found = mask if found is None else found & mask
        return found

    def _around(self, row: int, bound: int, tallest: int) -> Mask:
        """The domain of a row; empty where those that stand are too far apart already: so would be who joins them."""
        found = self._masks.get((row, bound, tallest <= bound))
        if found is None:
            of = self._tree.of[bound]
            found = of == of[row] if tallest <= bound else np.zeros(len(of), np.bool_)
            self._masks[row, bound, tallest <= bound] = found
        return found

    def apart(self, job: JobState, role: str | None, needed: int, placeable: int, row: int) -> Reason | None:
        """So many fit into the best domain."""
        wish = self._wish(job, role)
        if wish is None:
            return None
        bound = self._bound(job, role, wish)
        tree = self._tree
        domain = tree.name(bound, row) if row >= 0 else ""
        level, unlabelled = tree.level(bound), tree.unlabelled(bound)
        return TopologyUnsatisfied(
            needed, placeable, 2 * bound, role or "", domain, level, self.view.emptied, unlabelled
        )

    # --- what is asked for --------------------------------------------------------------------------------------------

    def _of(self, job: JobState) -> Wishes:
        found = self._wishes.get(job.key)
        if found is None:
            group = job.job.group
            found = self._wishes[job.key] = wishes_of(group) if group is not None and not job.job.shadow else ()
        return found

    def _wish(self, job: JobState, role: str | None) -> Wish | None:
        for of, wish in self._of(job):
            if of == role:
                return wish
        return None

    def _bound(self, job: JobState, role: str | None, wish: Wish) -> int:
        """The height of the domain in which all must stand."""
        tree = self._tree
        if not wish.required:
            return tree.top
        if wish.height is not None:
            return min(wish.height, tree.top)
        found = self._bounds.get((job.key, role))
        if found is None:
            rows = [row for of, some in self.view.alone(job).items() if role in {None, of} for row in some]
            # Those that stand may stand closer than the emptied cluster would have it: others may still join them.
            found = max(tree.height(rows), self._tallest(job, role)) if rows else tree.top
            self._bounds[job.key, role] = found
        return found

    def _tallest(self, job: JobState, role: str | None) -> int:
        """The height of the lowest domain of those that stood when the cycle began; whoever came since is within it, or
        within the bound.
        """
        found = self._heights.get((job.key, role))
        if found is None:
            rows = [row for task, row in job.stands if role in {None, task.role}]
            found = self._heights[job.key, role] = self._tree.height(rows)
        return found
