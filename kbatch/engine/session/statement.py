"""The one transaction: what is planned for a group is done to the session at once, and kept whole or undone whole.

Here, and nowhere else, it is asked whether a task may take room on a node: of that task, at that moment, of every limit
of the session (see `kbatch.engine.session.limits`). Undoing a step, or doing a recorded one again, asks nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from operator import attrgetter
from typing import Final, NamedTuple, TypeVar

from kbatch.api.reasons import Reason
from kbatch.engine.decisions import OWN_SAKE, TURN, Bind, Eviction, Nomination, Transaction, Turn
from kbatch.engine.session.errors import CulpritError
from kbatch.engine.session.hooks import take_back, tell
from kbatch.engine.session.session import Session
from kbatch.engine.state.jobs import JobState
from kbatch.model.nodes import Mask
from kbatch.model.tasks import Task

_T = TypeVar("_T")
_MANY: Final = 6
"""From so many tasks on it takes less to put them on their rows together than one by one."""
_AT_ONCE: Final = 500
"""So many steps are undone between two turns: a few milliseconds."""


class Operation(Enum):
    """What a step of a statement does."""

    ALLOCATE = "allocate"
    PIPELINE = "pipeline"
    WITHDRAW = "withdraw"
    EVICT = "evict"


class _Step(NamedTuple):
    """One step: what was done with which task of which job, on which row; for an eviction by which action; what the
    plugins gave to take it back; and how many steps the session has seen, this one included.
    """

    operation: Operation
    task: Task
    row: int
    job: JobState
    action: str
    undos: tuple[Callable[[], None], ...]
    number: int


class Statement:
    """An open plan for one group. `rollback` undoes the steps after a mark, `commit` makes a `Transaction` of them.

    Attributes:
        refused: the first task that a limit refused, and why; None while none was. A rollback does not forget it.
        within: the rows to which the placement keeps a task for now; None: none in particular.
        apart: the pods are placed as though nothing kept them together, to see what would be then.
        searched: other arrangements were looked for where that could help; False where too many were in this cycle.
    """

    def __init__(self, session: Session, job: JobState) -> None:
        self.session = session
        self.job = job
        self.searched = True
        self.apart = False
        self.within: Callable[[Task], Mask | None] | None = None
        self.refused: tuple[Task, Reason] | None = None
        self._steps: list[_Step] = []

    def __len__(self) -> int:
        """A mark to roll back to."""
        return len(self._steps)

    def mark_at(self, number: int) -> int:
        """The mark that `len` gave when the session had seen so many steps, if none before it was undone since."""
        return bisect_right(self._steps, number, key=_number)

    def headroom(self, task: Task) -> int | None:
        """How many more tasks of this one's class and role the limits leave the statement's job; None: any number."""
        least: int | None = None
        for limit in self.session.limits:
            found = limit.headroom(self.job, task)
            if found is not None:
                least = found if least is None else min(least, found)
        return least

    def rows(self, task: Task, *, waits: bool = False) -> Mask | None:
        """The rows that the limits, and `within`, leave to the task, to be bound or (`waits`) nominated; None: all."""
        allowed = self.within(task) if self.within is not None else None
        for limit in self.session.limits:
            found = None if self.apart and limit.keeps_together else limit.rows(self.job, task, waits=waits)
            if found is not None:
                allowed = found if allowed is None else allowed & found
        return allowed

    def may(self, task: Task, row: int, *, waits: bool = False) -> bool:
        """Whether the limits let the statement's job place a waiting task on a row now, or (`waits`) let it wait."""
        if self.headroom(task) == 0:
            return False
        allowed = self.rows(task, waits=waits)
        return allowed is None or bool(allowed[row])

    def allocate(self, task: Task, row: int) -> bool:
        """Put a waiting task of the statement's job on a row; False where a limit refuses: nothing is done then."""
        return bool(self.place((task,), (row,)))

    def pipeline(self, task: Task, row: int) -> bool:
        """Let a waiting task of the job wait for a row; False where a limit refuses: nothing is done then."""
        return bool(self.place((task,), (row,), waits=True))

    def place(self, tasks: Sequence[Task], rows: Sequence[int], *, waits: bool = False) -> int:
        """Put tasks of one class and role on rows, one on each, or let them wait for these; how many were placed.

        The limits are asked once for all. The first tasks are placed, up to the first that a limit refuses.
        """
        if not tasks:
            return 0
        if self.job.strict and len(rows) > 1 and self.job.anchor(tasks[0].role) is None:
            # The first that stands binds the others to its surroundings.
            return self._place(tasks[:1], rows[:1], waits=waits) and 1 + self._place(tasks[1:], rows[1:], waits=waits)
        return self._place(tasks, rows, waits=waits)

    def _place(self, tasks: Sequence[Task], rows: Sequence[int], *, waits: bool) -> int:
        first = tasks[0]
        allowed, most = self.rows(first, waits=waits), self.headroom(first)
        count = len(rows) if most is None else min(most, len(rows))
        if allowed is not None:
            count = next((at for at in range(count) if not allowed[rows[at]]), count)
        if count >= _MANY and not waits and not self.session.plugins.followers(first.cls):
            self._allocate_all(tasks[:count], rows[:count])
        else:
            operation = Operation.PIPELINE if waits else Operation.ALLOCATE
            for at in range(count):
                self._do(operation, tasks[at], rows[at], self.job)
        if count < len(rows) and self.refused is None:
            self.note_refusal(first, rows[count])
        return count

    def note_refusal(self, task: Task, row: int | None = None) -> None:
        """Remember why a limit refuses the task, on a row or anywhere, if it is the first that was refused."""
        if self.refused is not None:
            return
        for limit in self.session.limits:
            allowed = limit.rows(self.job, task) if row is not None else None
            if limit.headroom(self.job, task) == 0 or (allowed is not None and not allowed[row]):
                self.refused = task, limit.refusal(self.job, task)
                return

    def withdraw(self, job: JobState, task: Task) -> None:
        """End a nomination, of any job."""
        self._do(Operation.WITHDRAW, task, job.nominated[task.key][1], job)

    def withdraw_all(self, job: JobState) -> None:
        """End all nominations of any job."""
        for task, _ in list(job.nominated.values()):
            self.withdraw(job, task)

    def evict(self, job: JobState, task: Task, action: str) -> None:
        """Evict a pod that holds a node; the statement's job is the beneficiary, unless the pod is its own."""
        self._do(Operation.EVICT, task, self.session.nodes.row.get(task.node, -1), job, action)

    def take_back(self, task: Task) -> None:
        """Undo the eviction of a pod of the statement's job that was committed, and told to nobody; for good. A hook
        that raises meanwhile keeps nothing else from it.
        """
        session, job = self.session, self.job
        try:
            take_back(session.leaving.pop(task.key))
        except Exception as error:  # noqa: BLE001 -- as in `rollback`
            session.mishaps.append((job, error))
        self._apply(Operation.EVICT, task, session.nodes.row.get(task.node, -1), job, -1)
        session.room_moves += 1  # what was found out since may have counted on its room
        session.commits += 1
        session.committed.append(job.key)

    def withdraw_quietly(self, job: JobState, task: Task) -> None:
        """End a nomination whatever the plugins' hooks raise: those have raised for this job before."""
        row = job.nominated[task.key][1]
        try:
            self._do(Operation.WITHDRAW, task, row, job)
        except CulpritError:
            self._apply(Operation.WITHDRAW, task, row, job, 1)
            self._note(Operation.WITHDRAW, task, row, job)

    def rollback(self, mark: int = 0) -> None:
        """Undo all steps after the mark, the last first. A hook that raises meanwhile keeps nothing else from it."""
        while len(self._steps) > mark:
            operation, task, row, job, _, undos, _ = self._steps.pop()
            try:
                take_back(undos)
            except Exception as error:  # noqa: BLE001 -- the sums come first; the group is left out afterwards
                self.session.mishaps.append((job, error))
            self._apply(operation, task, row, job, -1)
        if not self._steps:
            self.session.open_statements.pop(id(self), None)

    def rolling_back(self) -> Iterator[Turn]:
        """`rollback` of all, in pieces of a few milliseconds."""
        while len(self._steps) > _AT_ONCE:
            self.rollback(len(self._steps) - _AT_ONCE)
            yield TURN
        self.rollback()

    def pipeline_all(self) -> None:
        """Turn every bind into a nomination: a gang that must wait for some of its room waits as a whole.

        Raises:
            CulpritError: a plugin raised. Some are binds still.
        """
        for at, step in enumerate(self._steps):
            if step.operation is not Operation.ALLOCATE:
                continue
            _, task, row, job, *_ = step
            self._apply(Operation.ALLOCATE, task, row, job, -1)
            self._apply(Operation.PIPELINE, task, row, job, 1)
            step = self._steps[at] = step._replace(operation=Operation.PIPELINE)
            hooks = self.session.plugins.delayers(task.cls) if step.undos else []
            if hooks:
                try:
                    undos = tell(hooks, task, row)
                except Exception as error:
                    raise CulpritError(job) from error
                self._steps[at] = step._replace(undos=(*step.undos, *undos))

    def recorded(self) -> list[tuple[Operation, Task, int, JobState, str]]:
        """The steps so far, for `replay`."""
        return [(operation, task, row, job, action) for operation, task, row, job, action, _, _ in self._steps]

    def starting(self) -> list[tuple[Task, int]]:
        """The tasks that it places on what is idle, with their rows."""
        return [(step.task, step.row) for step in self._steps if step.operation is Operation.ALLOCATE]

    def replay(self, steps: Iterable[tuple[Operation, Task, int, JobState, str]]) -> None:
        """Do recorded steps again, from the state that they began with."""
        for operation, task, row, job, action in steps:
            self._do(operation, task, row, job, action)

    def commit(self) -> list[Transaction]:
        """Close the statement; its decisions.

        Empty where there is nothing to tell: each task is nominated to the node that its status names, for example. Of
        a nomination that ended nothing is told as yet: the same cycle may nominate the pod again
        (`session.withdrawn`). What would take the queue over its capability if pods that are being evicted stayed
        waits for them as a nomination.
        """
        session = self.session
        if session.evictions_could_fail(self.job.queue) and any(
            step.operation is Operation.ALLOCATE for step in self._steps
        ):
            self.pipeline_all()
        binds: dict[str, Bind] = {}
        nominations: dict[str, Nomination] = {}
        evictions: list[Eviction] = []
        names = session.nodes.names
        for operation, task, row, job, action, undos, _ in self._steps:
            key = task.key
            if operation is Operation.ALLOCATE:
                binds[key] = Bind(key, task.uid, names[row])
                nominations.pop(key, None)
                session.withdrawn.pop(key, None)
            elif operation is Operation.PIPELINE:
                session.withdrawn.pop(key, None)
                if session.told.get(key, task.nominated) == names[row]:
                    nominations.pop(key, None)
                else:
                    nominations[key] = Nomination(key, task.uid, names[row])
            elif operation is Operation.WITHDRAW:
                session.room_moves += 1
                nominations.pop(key, None)
                if session.told.get(key, task.nominated):
                    session.withdrawn[key] = task
                session.committed.append(job.key)
            else:
                session.room_moves += 1
                session.leaving[key] = undos
                beneficiary = self.job.name if action not in OWN_SAKE else ""
                if beneficiary:
                    session.beneficiaries.add(self.job.key)
                evictions.append(Eviction(key, task.uid, task.node, action, beneficiary))
        for key, nomination in nominations.items():
            session.told[key] = nomination.node or ""
        if self._steps:
            session.commits += 1
            session.committed.append(self.job.key)
            if self.job.ends:
                session.plugins.charge_placed(self.job)
        self._steps = []
        session.open_statements.pop(id(self), None)
        if not (binds or evictions or nominations):
            return []
        found = Transaction(
            self.job.name, tuple(binds.values()), tuple(evictions), tuple(nominations.values()), self.job.key
        )
        return [found]

    def _do(self, operation: Operation, task: Task, row: int, job: JobState, action: str = "") -> None:
        if operation in (Operation.ALLOCATE, Operation.PIPELINE):
            hooks = self.session.plugins.followers(task.cls)
        else:
            hooks = self.session.plugins.removed_hooks if row >= 0 else []
        self._apply(operation, task, row, job, 1)
        undos: tuple[Callable[[], None], ...] = ()
        if hooks:
            try:
                undos = tell(hooks, task, row)
            except Exception as error:
                self._apply(operation, task, row, job, -1)
                raise CulpritError(job) from error
        self._note(operation, task, row, job, action, undos)

    def _allocate_all(self, tasks: Sequence[Task], rows: Sequence[int]) -> None:
        """`_do` for tasks of one class and role that no plugin counts: nothing is asked or raised between them."""
        session, job, first = self.session, self.job, tasks[0]
        session.room.allocate_all(first.cls, rows)
        job.placed.update((task.key, (task, row)) for task, row in zip(tasks, rows, strict=True))
        job.count(first, len(tasks))
        queue = session.queues.get(job.queue)
        if queue is not None:
            queue.add(first.cls.request, len(tasks), ends=job.ends)
        if not self._steps:
            session.open_statements[id(self)] = self
        session.steps += 1
        self._steps += [
            _Step(Operation.ALLOCATE, task, row, job, "", (), session.steps)
            for task, row in zip(tasks, rows, strict=True)
        ]

    def _note(
        self,
        operation: Operation,
        task: Task,
        row: int,
        job: JobState,
        action: str = "",
        undos: tuple[Callable[[], None], ...] = (),
    ) -> None:
        session = self.session
        if not self._steps:
            session.open_statements[id(self)] = self
        session.steps += 1
        self._steps.append(_Step(operation, task, row, job, action, undos, session.steps))

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
            self.session.departures += 1
            change = -sign
        if operation is Operation.PIPELINE or operation is Operation.WITHDRAW:
            if job.nominated:
                self.session.nominees[job.key] = job
            else:
                self.session.nominees.pop(job.key, None)
        job.count(task, change)
        queue = self.session.queues.get(job.queue)
        if queue is not None:
            queue.add(task.cls.request, change, ends=job.ends)


_number = attrgetter("number")


def _put(where: dict[str, _T], key: str, value: _T, sign: int) -> None:
    if sign > 0:
        where[key] = value
    else:
        del where[key]
