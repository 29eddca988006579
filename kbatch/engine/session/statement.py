"""The one transaction: what is planned for a group is done to the session at once, and kept whole or undone whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import TypeVar

from kbatch.engine.decisions import Bind, Eviction, Nomination, Transaction
from kbatch.engine.session.session import Session
from kbatch.engine.state.jobs import JobState
from kbatch.model.tasks import Task

_T = TypeVar("_T")


class Operation(Enum):
    """What a step of a statement does."""

    ALLOCATE = "allocate"
    PIPELINE = "pipeline"
    WITHDRAW = "withdraw"
    EVICT = "evict"


class Statement:
    """An open plan for one group. `rollback` undoes the steps after a mark, `commit` makes a `Transaction` of them."""

    def __init__(self, session: Session, job: JobState) -> None:
        self.session = session
        self.job = job
        self._steps: list[tuple[Operation, Task, int, JobState, str, tuple[Callable[[], None], ...]]] = []

    def __len__(self) -> int:
        """A mark to roll back to."""
        return len(self._steps)

    def allocate(self, task: Task, row: int) -> None:
        """Put a waiting task of the statement's job on a row."""
        self._do(Operation.ALLOCATE, task, row, self.job)

    def pipeline(self, task: Task, row: int) -> None:
        """Let a waiting task of the statement's job wait for a row."""
        self._do(Operation.PIPELINE, task, row, self.job)

    def withdraw(self, job: JobState, task: Task) -> None:
        """End a nomination, of any job."""
        self._do(Operation.WITHDRAW, task, job.nominated[task.key][1], job)

    def evict(self, job: JobState, task: Task, action: str) -> None:
        """Evict a pod that holds a node; the statement's job is the beneficiary, unless the pod is its own."""
        self._do(Operation.EVICT, task, self.session.nodes.row.get(task.node, -1), job, action)

    def rollback(self, mark: int = 0) -> None:
        """Undo all steps after the mark, the last first."""
        while len(self._steps) > mark:
            operation, task, row, job, _, undos = self._steps.pop()
            for undo in reversed(undos):
                undo()
            self._apply(operation, task, row, job, -1)

    def pipeline_all(self) -> None:
        """Turn every bind into a nomination: a gang that must wait for some of its room waits as a whole."""
        for at, (operation, task, row, job, action, undos) in enumerate(self._steps):
            if operation is Operation.ALLOCATE:
                self._apply(Operation.ALLOCATE, task, row, job, -1)
                self._apply(Operation.PIPELINE, task, row, job, 1)
                self._steps[at] = (Operation.PIPELINE, task, row, job, action, undos)

    def recorded(self) -> list[tuple[Operation, Task, int, JobState, str]]:
        """The steps so far, for `replay`."""
        return [(operation, task, row, job, action) for operation, task, row, job, action, _ in self._steps]

    def replay(self, steps: Iterable[tuple[Operation, Task, int, JobState, str]]) -> None:
        """Do recorded steps again, from the state that they began with."""
        for operation, task, row, job, action in steps:
            self._do(operation, task, row, job, action)

    def commit(self) -> list[Transaction]:
        """Close the statement: its decisions, one transaction for its own job and one for each whose nomination ended.

        Empty where nothing would change: for example where each task is nominated to the node it was nominated to.
        """
        binds: dict[str, Bind] = {}
        nominations: dict[str, dict[str, Nomination]] = {}
        evictions: list[Eviction] = []
        names = self.session.nodes.names
        ours: dict[str, Nomination] = {}
        for operation, task, row, job, action, _ in self._steps:
            if operation is Operation.ALLOCATE:
                binds[task.key] = Bind(task.key, task.uid, names[row])
                ours.pop(task.key, None)
            elif operation is Operation.PIPELINE:
                if task.nominated == names[row]:
                    ours.pop(task.key, None)
                else:
                    ours[task.key] = Nomination(task.key, task.uid, names[row])
            elif operation is Operation.WITHDRAW:
                self.session.room_moves += 1
                found = ours if job is self.job else nominations.setdefault(job.key, {})
                found[task.key] = Nomination(task.key, task.uid, None)
            else:
                self.session.room_moves += 1
                self.session.leaving.add(task.key)
                beneficiary = self.job.name if action != "allocate" else ""
                evictions.append(Eviction(task.key, task.uid, task.node, action, beneficiary))
        if self._steps:
            self.session.commits += 1
        self._steps = []
        found_transactions: list[Transaction] = []
        for key, theirs in nominations.items():
            found_transactions.append(
                Transaction(self.session.job(key).name, nominations=tuple(theirs.values()), job=key)
            )
        if binds or evictions or ours:
            found_transactions.append(
                Transaction(self.job.name, tuple(binds.values()), tuple(evictions), tuple(ours.values()), self.job.key)
            )
        return found_transactions

    def _do(self, operation: Operation, task: Task, row: int, job: JobState, action: str = "") -> None:
        self._apply(operation, task, row, job, 1)
        undos: tuple[Callable[[], None], ...] = ()
        if operation in (Operation.ALLOCATE, Operation.PIPELINE):
            if self.session.placed_hooks:
                undos = tuple([hook(task, row) for hook in self.session.placed_hooks])
        elif self.session.removed_hooks and row >= 0:
            undos = tuple([hook(task, row) for hook in self.session.removed_hooks])
        self._steps.append((operation, task, row, job, action, undos))

    def _apply(self, operation: Operation, task: Task, row: int, job: JobState, sign: int) -> None:
        """Do (1) or undo (-1) one step to the session's sums."""
        room, key = self.session.room, task.key
        if operation is Operation.ALLOCATE:
            room.allocate(task.cls, row, sign)
            _put(job.placed, key, (task, row), sign)
            change = sign
        elif operation is Operation.PIPELINE:
            room.pipeline(task.cls, row, sign)
            _put(job.nominated, key, (task, row), sign)
            change = sign
        elif operation is Operation.WITHDRAW:
            room.pipeline(task.cls, row, -sign)
            _put(job.nominated, key, (task, row), -sign)
            change = -sign
        else:
            if row >= 0:
                room.release(task.cls, row, sign)
            _put(job.evicted, key, task, sign)
            job.bound -= sign
            change = -sign
        job.count(task, change)
        queue = self.session.queues.get(job.queue)
        if queue is not None:
            queue.add(task.cls.request, change)


def _put(where: dict[str, _T], key: str, value: _T, sign: int) -> None:
    if sign > 0:
        where[key] = value
    else:
        del where[key]
