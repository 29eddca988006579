"""Groups as a session sees them: the snapshot's sums, and what the session has decided on top.

Only the engine changes them, through a `Statement`; plugins read.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from kbatch.api.reasons import Reason
from kbatch.engine.decisions import Verdict
from kbatch.engine.state.lost_work import LostWork
from kbatch.model.jobs import Job
from kbatch.model.tasks import Task, TaskClass
from kbatch.resources import Resources


@dataclass(eq=False, slots=True)
class Known:
    """What was worked out of a group as it stands, which many steps ask for; None: nobody has asked yet.

    Attributes:
        moves, waiting: it stands while these are the group's.
        missing: see `JobState.missing`, of a group with roles. shortfalls: see `state.minimum`.
        signature: see `state.minimum`, of the tasks that wait.
        counts: see `placement.kinds.counts_of`. likeness: see `state.minimum`; `()` where it has none.
        valid: what plugins said of it in `job_valid`, and whether it was in queue then.
    """

    moves: int
    waiting: Sequence[Task]
    missing: int | None = None
    shortfalls: Sequence[tuple[str | None, int]] | None = None
    signature: tuple[object, ...] | None = None
    counts: Sequence[tuple[TaskClass, str, int]] | None = None
    likeness: tuple[object, ...] | None = None
    valid: tuple[bool, Reason | None] | None = None


@dataclass(eq=False, slots=True)
class Rest:
    """What was worked out of a group in queue that waits for its single pod, and of which nothing was decided: it holds
    until the group changes. See `reservation.resting`.

    Attributes:
        generation: the group's when it was worked out. noted: the instant. late: when it is sent back; None: never.
        kept: what it goes on being promised where its queue has no hard cap; None: nobody has asked.
        said: the last verdict on it.
    """

    generation: int
    noted: int
    late: int | None
    kept: Resources | None = None
    said: Verdict | None = None


@dataclass(eq=False, slots=True)
class JobState:
    """One group.

    Attributes:
        key: its key in the model.
        waiting: unplaced tasks in task order, gated ones left out; the nominated ones among them.
        gated: how many wait behind scheduling gates.
        placed: tasks that this session binds, with their rows. nominated: tasks that wait for a row.
        evicted: its own pods that this session evicts.
        allocated: requests of what it holds, places and is nominated to, less what is evicted.
        bound: pods that hold a node or succeeded, less evicted, without this session's. by_role: the same per role.
        asks: the dimensions that its waiting pods ask for.
        in_queue: its phase lets it be placed. possible: nothing that it names is missing.
        backing_off: was sent back and must not come in queue yet. attempts: how often it was.
        lost_work: what is lost with its pods; None where nobody in the cluster says when work was saved.
        members_lost: its minimum was placed once, and pods of it were lost; what is left runs on.
        together: what plugins that keep its pods together depend on; None where none has anything to say about it.
        strict: whether the pods must stand so. stands: the pods that hold a node, with their rows, as the snapshot has
            them; only where they are kept together.
        most: by role, and under None of all, how many pods it may have. turns: by pod when it goes, where pods go one
            by one. Both are worked out when they are first asked for: see `growth` and `shrinking`.
        ends: it has a lifetime. charged: what it takes of its queue's excessBudget, in millionths of a resource-minute.
        moves: how often `count` was called, in a list that those share who share their sums.
        rest: what the cycle before knew of it and nothing has changed since; None: it is looked at as ever.
    """

    job: Job
    queue: str
    allocated: Resources
    waiting: list[Task] = field(default_factory=list)
    gated: int = 0
    placed: dict[str, tuple[Task, int]] = field(default_factory=dict)
    nominated: dict[str, tuple[Task, int]] = field(default_factory=dict)
    evicted: dict[str, Task] = field(default_factory=dict)
    bound: int = 0
    by_role: dict[str, int] = field(default_factory=dict)
    asks: tuple[str, ...] = ()
    in_queue: bool = True
    possible: bool = True
    backing_off: bool = False
    attempts: int = 0
    members_lost: bool = False
    together: Hashable | None = None
    strict: bool = False
    stands: tuple[tuple[Task, int], ...] = ()
    lost_work: LostWork | None = None
    most: Mapping[str | None, int] | None = None
    turns: Mapping[str, tuple[Any, ...]] | None = None
    ends: bool = False
    charged: int = 0
    moves: list[int] = field(default_factory=lambda: [0])
    rest: Rest | None = None
    key: str = field(init=False)
    _known: Known | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.key = self.job.key  # asked for dozens of times for each decision

    @property
    def known(self) -> Known:
        """What was worked out of it since it has last changed."""
        known = self._known
        if known is None or known.moves != self.moves[0] or known.waiting is not self.waiting:
            known = self._known = Known(self.moves[0], self.waiting)
        return known

    @property
    def name(self) -> str:
        """`namespace/name`."""
        return self.job.name

    @property
    def priority(self) -> int:
        """See `kbatch.model.priorities`."""
        return self.job.priority

    @property
    def minimum(self) -> int:
        """Pods that must be placed together."""
        return self.job.minimum

    @property
    def ready(self) -> int:
        """Pods that count towards the minimum: holding, succeeded, and bound by this session."""
        return self.bound + len(self.placed)

    @property
    def pipelined(self) -> int:
        """`ready`, and those that are nominated."""
        return self.bound + len(self.placed) + len(self.nominated)

    def standing(self, role: str | None = None) -> list[int]:
        """The rows of its pods, or of one role's, that stand, are placed or wait for a node; one for each."""
        found = [row for task, row in self.stands if task.key not in self.evicted and role in {None, task.role}]
        for task, row in (*self.placed.values(), *self.nominated.values()):
            if role is None or task.role == role:
                found.append(row)
        return found

    def anchor(self, role: str | None = None) -> int | None:
        """The row of one of these; None: there is none."""
        for task, row in chain(self.stands, self.placed.values(), self.nominated.values()):
            if role in {None, task.role} and task.key not in self.evicted:
                return row
        return None

    def role_count(self, role: str) -> int:
        """Pods of a role that count towards its minimum."""
        return self.by_role.get(role, 0)

    def full(self, role: str) -> bool:
        """Whether the role has as many pods as it may."""
        return self.role_headroom(role) == 0

    def role_headroom(self, role: str) -> int | None:
        """How many more pods the role may have; None: any number."""
        for known in self.job.roles:
            if known.name == role and known.max_member is not None:
                return max(0, known.max_member - self.by_role.get(role, 0))
        return None

    def missing(self) -> int:
        """How many pods, bound or nominated, are still wanting for the minimum and for each role's."""
        more = self.job.minimum - self.bound - len(self.placed) - len(self.nominated)
        if not self.job.roles:
            return max(0, more)
        known = self.known
        if known.missing is None:
            roles = sum(max(0, role.min_member - self.by_role.get(role.name, 0)) for role in self.job.roles)
            known.missing = max(0, more, roles)
        return known.missing

    @property
    def seeks_minimum(self) -> bool:
        """Whether it is in queue, may be placed, and waits for its minimum without being nominated."""
        return self.in_queue and self.possible and not self.nominated and bool(self.missing())

    @property
    def idle(self) -> bool:
        """Whether none of its pods waits for a node, but for those that are nominated."""
        return len(self.placed) + len(self.nominated) >= len(self.waiting)

    @property
    def whole(self) -> bool:
        """Whether the minimum, and each role's, is placed without anything nominated."""
        if self.bound + len(self.placed) < self.job.minimum:
            return False
        if not self.job.roles:
            return True
        waiting: dict[str, int] = {}
        for task, _ in self.nominated.values():
            waiting[task.role] = waiting.get(task.role, 0) + 1
        return all(
            self.by_role.get(role.name, 0) - waiting.get(role.name, 0) >= role.min_member for role in self.job.roles
        )

    def count(self, task: Task, number: int) -> None:
        """Count so many tasks like this one, towards their role and their sum; no longer count them, if below 0."""
        self.moves[0] += 1
        if self.job.roles:
            self.by_role[task.role] = self.by_role.get(task.role, 0) + number
        allocated = self.allocated
        for name, amount in task.cls.request.items():
            allocated[name] = allocated.get(name, 0) + number * amount
