"""The one transaction: what is planned for a group is done to the session at once, and kept whole or undone whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import TypeAlias, TypeVar

from kbatch.engine.decisions import Bind, Eviction, Nomination, Transaction
from kbatch.engine.session.errors import CulpritError
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


_Step: TypeAlias = tuple[Operation, Task, int, JobState, str, tuple[Callable[[], None], ...]]


class Statement:
    """An open plan for one group. `rollback` undoes the steps after a mark, `commit` makes a `Transaction` of them."""

    def __init__(self, session: Session, job: JobState) -> None:
        self.session = session
        self.job = job
        self._steps: list[_Step] = []

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

    def withdraw_quietly(self, job: JobState, task: Task) -> None:
        """End a nomination whatever the plugins' hooks raise: those have raised for this job before."""
        row = job.nominated[task.key][1]
        try:
            self._do(Operation.WITHDRAW, task, row, job)
        except CulpritError:
            self._apply(Operation.WITHDRAW, task, row, job, 1)
            self._note((Operation.WITHDRAW, task, row, job, "", ()))

    def rollback(self, mark: int = 0) -> None:
        """Undo all steps after the mark, the last first. A hook that raises meanwhile keeps nothing else from it."""
        while len(self._steps) > mark:
            operation, task, row, job, _, undos = self._steps.pop()
            try:
                _undo(undos)
            except Exception as error:  # noqa: BLE001 -- the sums come first; the group is left out afterwards
                self.session.mishaps.append((job, error))
            self._apply(operation, task, row, job, -1)
        if not self._steps:
            self.session.open_statements.pop(id(self), None)

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
        self.session.open_statements.pop(id(self), None)
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
            hooks = self.session.placed_hooks
        else:
            hooks = self.session.removed_hooks if row >= 0 else []
        if hooks:
            done: list[Callable[[], None]] = []
            try:
                for hook in hooks:
                    done.append(hook(task, row))  # noqa: PERF401 -- those before an error must be known
            except Exception as error:
                try:
                    _undo(done)
                finally:
                    self._apply(operation, task, row, job, -1)
                raise CulpritError(job) from error
            undos = tuple(done)
        self._note((operation, task, row, job, action, undos))

    def _note(self, step: _Step) -> None:
        if not self._steps:
            self.session.open_statements[id(self)] = self
        self._steps.append(step)

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


def _undo(undos: Sequence[Callable[[], None]]) -> None:
    """Take the hooks' changes back, the last first: all of them, whichever raises.

    Raises:
        Exception: the first that was raised.
    """
    found: Exception | None = None
    for undo in reversed(undos):
        try:
            undo()
        except Exception as error:  # noqa: BLE001 -- raised when all is done
            found = found or error
    if found is not None:
        raise found


def _put(where: dict[str, _T], key: str, value: _T, sign: int) -> None:
    if sign > 0:
        where[key] = value
    else:
        del where[key]
