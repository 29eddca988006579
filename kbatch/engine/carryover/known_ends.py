"""When the pods on nodes are expected to end, kept from cycle to cycle: a cycle looks at those alone that changed.

What the objects of a cluster say of a pod's end changes only with the pod and its group, and when the pod outlives it.
Ends that depend on more (binds under way, Jobs, what was learned) are worked out in each cycle.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, compress
from operator import attrgetter
from typing import Final

import numpy as np

from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.state.timeline import Release, releases
from kbatch.model.cluster import ClusterModel
from kbatch.model.expected import Expected
from kbatch.model.jobs import Job
from kbatch.model.journal import Journal
from kbatch.model.nodes import NodeTable
from kbatch.model.tasks import Task

_NEAR: Final = 256
_PART: Final = 8
_TOO_MANY: Final = 4
"""At least so many are in order, or all; when they are fewer, a part of all of them is put in order, and also when they
are so many times that.
"""
_FAR: Final = 2**63
_FEW: Final = 64
"""So many find their places one by one; where there are more, all are put in order."""
_AT_ONCE: Final = 500
"""Of so many pods it is found out in some milliseconds."""


class KnownEnds:
    """The releases of one model's pods.

    Attributes:
        horizon: those before this instant are in order; the others hardly matter to anybody.
        near: these. Nobody changes the list: it is another one when anything has changed.
    """

    def __init__(self) -> None:
        self.near: Sequence[Release] = ()
        self.horizon = 0
        self._far: Sequence[Release] | None = None
        self._of_pod: dict[str, Release] = {}
        self._of: dict[str, tuple[Release, ...]] = {}
        """By key of the group; those of other schedulers' pods by the node's name, behind an @."""
        self._with_others: set[str] = set()
        """The names of these nodes."""
        self._fleeting: set[str] = set()
        """Those of these that are worked out in each cycle."""
        self._groups: tuple[Journal[str], int] | None = None
        self._nodes: tuple[Journal[str], int] | None = None
        self._static = -1
        self._now = 0

    def catching_up(
        self, model: ClusterModel, table: NodeTable, now: int, expected: Expected, positions: tuple[int, int]
    ) -> Iterator[Turn]:
        """Take over what has changed since the last time, in pieces; what is left off half-way is done next time.

        `positions`: of the model's `changes` and `node_changes` when the cycle began.
        """
        groups, nodes = (model.changes, positions[0]), (model.node_changes, positions[1])
        names, members = self._changed(model, table, now), model.members
        if names is None:
            self._of, self._of_pod, self._fleeting, self._groups = {}, {}, set(), None
            self._with_others = set()
            self.near, self.horizon, self._far = (), 0, None
            foreign = (f"@{name}" for name, record in model.nodes.items() if record.foreign)
            names = chain(members, foreign)
        found: dict[str, tuple[Release, ...]] = {}
        fleeting: set[str] = set()
        work = 0
        known, before = self._of, self._fleeting
        for name in names:
            job = members.get(name)
            tasks = () if job is not None and not job.holding else _tasks(model, job, name)
            if tasks:
                found[name] = releases(table, tasks, expected)
                for task in tasks:
                    if not expected.lasting(task):
                        fleeting.add(name)
                        break
            elif name in known or name in before:
                found[name] = ()
            work += 1 + len(tasks)
            if work > _AT_ONCE:
                work = 0
                yield TURN
        self._take_over(found, fleeting)
        self._groups, self._nodes, self._static, self._now = groups, nodes, table.static_generation, now

    def __len__(self) -> int:
        return len(self._of_pod)

    def far(self) -> Sequence[Release]:
        """Those that are not `near`, in order."""
        if self._far is None:
            self._far = sorted([release for release in self._of_pod.values() if release.at >= self.horizon])
        return self._far

    def any_of(self, key: str) -> bool:
        """Whether any are known of a group's pods."""
        return key in self._of

    def of(self, tasks: Iterable[Task]) -> Iterator[Release]:
        """What is known of these pods."""
        for task in tasks:
            release = self._of_pod.get(task.key)
            if release is not None:
                yield release

    def _changed(self, model: ClusterModel, table: NodeTable, now: int) -> Iterable[str] | None:
        """Whose releases are to be worked out again; None: all."""
        if self._groups is None or self._nodes is None or now < self._now or table.static_generation != self._static:
            return None
        if self._groups[0] is not model.changes or self._nodes[0] is not model.node_changes:
            return None
        groups, nodes = model.changes.since(self._groups[1]), model.node_changes.since(self._nodes[1])
        if groups is None:
            return None
        records, others = model.nodes, self._with_others
        if nodes is None:  # who changes most are the pods of groups, and those are known
            nodes = [*records, *others]
        foreign = [
            f"@{name}" for name in nodes
            if name in others or ((record := records.get(name)) is not None and record.foreign)
        ]  # fmt: skip
        if now < self.horizon:
            late: Iterable[Release] = self.near[: bisect_right(self.near, now, key=_at)]
        else:
            late = [release for release in self._of_pod.values() if release.at <= now]
        over = [release.task.job or f"@{release.task.node}" for release in late]
        return dict.fromkeys(chain(groups, foreign, self._fleeting, over))

    def _take_over(self, found: Mapping[str, tuple[Release, ...]], fleeting: set[str]) -> None:
        of_pod, of = self._of_pod, self._of
        come: list[Release] = []
        gone: list[Release] = []
        for name, some in found.items():
            before = of.get(name, ())
            if some == before:
                continue
            for release in before:
                if of_pod.get(release.key) is release:
                    del of_pod[release.key]
                    gone.append(release)
            if some:
                of[name] = some
                come += some
            else:
                del of[name]
            if name[0] == "@":
                (self._with_others.add if some else self._with_others.discard)(name[1:])
        for release in come:
            other = of_pod.get(release.key)
            if other is not None:
                gone.append(other)
            of_pod[release.key] = release
        if gone or come:
            self._put_in_order(gone, come)
            if not min(_NEAR, len(of_pod)) <= len(self.near) <= _TOO_MANY * self._wanted:
                self._look_further()
        self._fleeting = self._fleeting - found.keys() | fleeting

    def _put_in_order(self, gone: Sequence[Release], come: Sequence[Release]) -> None:
        """Have no more of `gone` among `near`, and those of `come` that belong there."""
        before = self.near
        stays = bytearray(b"\x01") * len(before)
        for release in gone:
            place = bisect_left(before, release) if release.at < self.horizon else len(before)
            if place < len(before) and before[place] is release:
                stays[place] = 0
        near = list(compress(before, stays))
        more = [release for release in come if release.at < self.horizon]
        if len(more) <= _FEW:
            for release in more:
                insort(near, release)
        else:
            near += more
            near.sort()
        self.near, self._far = near, None

    @property
    def _wanted(self) -> int:
        return max(2 * _NEAR, len(self._of_pod) // _PART)

    def _look_further(self) -> None:
        """Have as many of them in order as are wanted."""
        every, count = self._of_pod.values(), self._wanted
        if count < len(every):
            instants = np.array([release.at for release in every], np.float64)  # exact for some hundred years
            self.horizon = int(np.partition(instants, count)[count]) + 1
        else:
            self.horizon = _FAR
        horizon = self.horizon
        self.near, self._far = sorted([release for release in every if release.at < horizon]), None


_at = attrgetter("at")


def _tasks(model: ClusterModel, job: Job | None, name: str) -> Sequence[Task]:
    """The pods of a group that hold a node; behind an @ those of other schedulers on a node."""
    if job is not None:
        return [task for task in job.tasks.values() if task.node and not (task.terminal or task.terminating)]
    record = model.nodes.get(name[1:]) if name[0] == "@" else None
    return [task for task in record.tasks.values() if not task.job] if record is not None else ()
