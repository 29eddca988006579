"""Mutants of where groups stand: domains and hops, whole nodes, and what grows, shrinks and is lost."""

from __future__ import annotations

from typing import Final

from tests.mutation.mutant import Mutant

_PLUGIN: Final = "kbatch/engine/plugins/topology/plugin.py"
_WISHES: Final = "kbatch/engine/plugins/topology/wishes.py"
_DOMAINS: Final = "kbatch/model/domains.py"
_TOGETHER: Final = "kbatch/engine/placement/together.py"
_SETS: Final = "kbatch/engine/placement/node_sets.py"
_CLEARABLE: Final = "kbatch/engine/placement/clearable.py"
_CLOSENESS: Final = "kbatch/engine/preemption/closeness.py"
_WHOLE: Final = "kbatch/engine/session/whole_nodes.py"
_GROWTH: Final = "kbatch/engine/state/growth.py"
_SHRINKING: Final = "kbatch/engine/state/shrinking.py"
_HOURLY: Final = "kbatch/engine/session/hourly.py"
_COUPLED: Final = "kbatch/engine/plugins/coupled.py"
_BAD_NODES: Final = "kbatch/model/bad_nodes.py"

MUTANTS: Final = (
    # --- pods that are nominated --------------------------------------------------------------------------------------
    Mutant(
        "spread-leans-on-the-nominated", _COUPLED,
        "if fewer.total:", "if False:",
        "a pod is bound whose spread is too uneven until another one's victim has gone",
    ),
    Mutant(
        "the-nominated-are-company", _COUPLED,
        "if any(each.total for each in fewer):", "if False:",
        "a pod is bound near one that may never come",
    ),
    Mutant(
        "first-of-its-kind-beside-the-nominated", _COUPLED,
        "first = self.is_first(fewer)", "first = self.is_first()",
        "a pod that needs nobody waits for one of its kind whose victim has not gone yet",
    ),
    # --- the tree of domains ------------------------------------------------------------------------------------------
    Mutant(
        "racks-of-one-name-are-one", _DOMAINS,
        "path = found[-1] * (len(values) + rows) + own", "path = own",
        "racks of one name in two blocks count as one, and a gang is torn in two",
    ),
    Mutant(
        "no-label-is-a-label", _DOMAINS,
        "len(values) + np.arange(rows)", "len(values) + np.zeros(rows, np.int64)",
        "nodes without a label count as one rack",
    ),
    # --- what is asked for --------------------------------------------------------------------------------------------
    Mutant(
        "odd-hops-count-up", _WISHES,
        "height = topology.max_hops // 2 if", "height = (topology.max_hops + 1) // 2 if",
        "pods stand further apart than maxHops",
    ),
    Mutant(
        "a-number-is-a-wish", _WISHES,
        "if topology.mode else height is not None)", "if topology.mode else False)",
        "a group with maxHops stands wherever there is room",
    ),
    Mutant(
        "annotation-goes-first", _WISHES,
        "group.spec.topology or _annotated(group)", "_annotated(group) or group.spec.topology",
        "what a group's spec says of topology is overruled by an annotation",
    ),
    # --- which domain -------------------------------------------------------------------------------------------------
    Mutant(
        "as-far-as-allowed", _PLUGIN,
        "for height in range(lowest, bound + 1):", "for height in (bound,):",
        "pods stand as far apart as they may, although there is room close together",
    ),
    Mutant(
        "room-left-over-forgotten", _PLUGIN,
        "parents = tree.of[height + 1 : tree.top]",
        "parents = None",
        "a large rack is broken into although a small one would do",
    ),
    Mutant(
        "most-room-left-over-first", _SETS,
        "first = first[some == some.min()]", "first = first[some == some.max()]",
        "the emptiest rack is broken into first",
    ),
    Mutant(
        "left-over-in-small-pods", _SETS,
        "largest = max(kinds, key=lambda", "largest = min(kinds, key=lambda",
        "room that only small pods could use counts as room left over for large ones",
    ),
    Mutant(
        "smallest-role-chooses-first", _SETS,
        "(unit.role is not None, -_size(rankings, unit))", "(unit.role is not None, _size(rankings, unit))",
        "the small roles of a group take the racks that its large ones would fill",
    ),
    Mutant(
        "sum-of-hops-before-the-most", _TOGETHER,
        "return max(of_roles, default=0), sum(of_roles), of_job",
        "return sum(of_roles), max(of_roles, default=0), of_job",
        "one role stands far apart for the sake of the others",
    ),
    Mutant(
        "choices-are-not-revised", _TOGETHER,
        "            self._statement.rollback(mark)\n        return False\n\n    def _all",
        "            self._statement.rollback(mark)\n            return False\n        return False\n\n    def _all",
        "a gang or a role waits for the rack that it chose first although another would hold it",
    ),
    # --- those that stand, and those that have to go ------------------------------------------------------------------
    Mutant(
        "joining-those-too-far-apart", _PLUGIN,
        " if tallest <= bound else np.zeros(len(of), np.bool_)", "",
        "who joins pods that stand too far apart is near to one and far from the other",
    ),
    Mutant(
        "bound-by-the-empty-cluster-alone", _PLUGIN,
        "max(tree.height(rows), self._tallest(job, role)) if rows", "tree.height(rows) if rows",
        "nobody joins a group that stands further apart than it would have to",
    ),
    Mutant(
        "most-victims-first", _CLEARABLE,
        "found.sort(key=lambda each: each[:3])", "found.sort(key=lambda each: (-each[0], *each[1:3]))",
        "victims are sought in the rack where the most have to go",
    ),
    Mutant(
        "victims-make-no-room-in-domains", _CLOSENESS,
        "free = np.maximum(context.session.room.future[name], 0) + gains[name]",
        "free = np.maximum(context.session.room.future[name], 0)",
        "nobody is evicted for a group that must stand in one rack",
    ),
    # --- whole nodes --------------------------------------------------------------------------------------------------
    Mutant(
        "exclusive-joins-others", _WHOLE,
        "of_all=job.job.exclusive(task.role) and not self._gathers", "of_all=False",
        "an exclusive pod comes to a node on which others stand",
    ),
    Mutant(
        "others-join-the-exclusive", _WHOLE,
        "self.exclusive[row] += sign * exclusive", "self.exclusive[row] += 0",
        "others come to the node of an exclusive pod",
    ),
    Mutant(
        "exclusive-of-its-own", _WHOLE,
        "column[row] -= counts[0 if of_all else 1]", "column[row] -= 0",
        "the pods of an exclusive group keep off one another",
    ),
    Mutant(
        "bound-beside-those-that-leave", _WHOLE,
        "counts = self._later if waits else self._now", "counts = self._later",
        "an exclusive pod is bound where others still end",
    ),
    Mutant(
        "tried-stays-whole", _WHOLE,
        "            self._count(self._now, task, row, -1)\n", "",
        "a node on which an exclusive pod was only tried is closed to others",
    ),
    # --- growth -------------------------------------------------------------------------------------------------------
    Mutant(
        "largest-role-grows-first", _GROWTH,
        "return self._rank(task), part_of_role(self._job, role), task.created, task.key",
        "return self._rank(task), -part_of_role(self._job, role), task.created, task.key",
        "one role of a group takes all the room to grow",
    ),
    # --- members lost, nodes that are bad, and what an eviction costs -------------------------------------------------
    Mutant(
        "one-failure-is-enough", _BAD_NODES,
        "len(one.pods) >= limit", "len(one.pods) >= 1",
        "a node is avoided after the first pod that failed there",
    ),
    Mutant(
        "pods-count-as-groups", _HOURLY,
        "if limit is None or not unit.whole:", "if limit is None:",
        "pods above the minimum stay because groups were evicted in this hour",
    ),
    Mutant(
        "most-work-is-lost", _SHRINKING,
        "return lost, -above, -started", "return -lost, -above, -started",
        "of two pods that with which more work is lost goes",
    ),
)  # fmt: skip
