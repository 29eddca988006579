"""One failing group stops nobody: work on a group that raises is undone, and the group is left out.

Everything that works on one group after another does so through `working` (generators) or `attempt` (plain calls).
What is raised there, by the engine or by a plugin, rolls back every statement that was opened meanwhile and excludes
the group for the rest of the cycle; `CycleState.failing` keeps it out of the next ones, for a pause that grows. An
error that is about no group (a plugin that cannot be made, the order of queues) ends the cycle as ever.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Generator
from typing import Any, Final, TypeVar

from kbatch.api.reasons import EngineError
from kbatch.engine.decisions import GroupError
from kbatch.engine.session.errors import CulpritError
from kbatch.engine.session.session import Session
from kbatch.engine.session.statement import Statement
from kbatch.engine.state.cycle_state import Failing
from kbatch.engine.state.jobs import JobState
from kbatch.times import SECOND

_S = TypeVar("_S")
_T = TypeVar("_T")

FIRST_PAUSE: Final = SECOND
LONGEST_PAUSE: Final = 300 * SECOND
"""For how long a group that failed once, or again and again, is left out."""

_MOST_TEXT: Final = 2_000
"""Characters of an error's text that are kept."""


def working(
    session: Session, job: JobState, work: Callable[[], Generator[_S, None, _T]], otherwise: _T
) -> Generator[_S, None, _T]:
    """Work on one group; `otherwise` where that raised. Work that another group made fail is done again without it."""
    while True:
        mark = session.steps
        try:
            found = yield from work()
        except Exception as error:  # noqa: BLE001 -- whatever is raised is this group's own affair
            if not _undone(session, job, error, mark):
                return otherwise
        else:
            if session.mishaps:
                own_up(session)
            return found


def attempt(session: Session, job: JobState, call: Callable[[], _T], otherwise: _T) -> _T:
    """`working`, for a plain call."""
    while True:
        mark = session.steps
        try:
            found = call()
        except Exception as error:  # noqa: BLE001 -- as above
            if not _undone(session, job, error, mark):
                return otherwise
        else:
            if session.mishaps:
                own_up(session)
            return found


def key_of(session: Session, job: JobState) -> tuple[Any, ...] | None:
    """The job's order key; None where asking for it raised: the job is out, then."""
    try:
        return session.plugins.job_key(job)
    except CulpritError as error:
        fail(session, job, _cause(error))
        return None


def sound(session: Session, job: JobState) -> bool:
    """Whether plugins have nothing against the job. False, too, where asking raises: who works on it is to see that."""
    try:
        return session.plugins.valid(job) is None
    except Exception:  # noqa: BLE001 -- as above
        return False


def fail(session: Session, job: JobState, error: BaseException) -> None:
    """Leave the group out for the rest of the cycle; what it was nominated to is free for others."""
    if job.key in session.failed:
        return
    report(session, job, error)
    before = session.snapshot.state.failing.get(job.key)
    times = before.times + 1 if before is not None else 1
    until = session.now + min(FIRST_PAUSE << min(times - 1, 30), LONGEST_PAUSE)
    failing = Failing(type(error).__name__, session.phase, times, until)
    session.exclude(job, failing)
    if job.nominated:
        statement = Statement(session, job)
        for task, _ in list(job.nominated.values()):
            statement.withdraw_quietly(job, task)
        statement.commit()


def report(session: Session, job: JobState, error: BaseException) -> None:
    """Keep what was raised for whoever runs the engine; of one group once in a cycle."""
    if job.key not in session.errors:
        trace = "".join(traceback.format_exception(error))
        text = f"{type(error).__name__}: {error}"[:_MOST_TEXT]
        session.errors[job.key] = GroupError(job.key, job.name, session.phase, text, trace)


def own_up(session: Session) -> None:
    """Leave out the groups of which something was raised where work could go on."""
    while session.mishaps:
        job, error = session.mishaps.pop()
        fail(session, job, error)


def failing_after(session: Session) -> dict[str, Failing]:
    """The groups that the next cycles leave out."""
    return {**session.out, **session.failed}


def reason_of(failing: Failing) -> EngineError:
    """What such a group is told. Its text is the same as long as it fails alike."""
    return EngineError(failing.error, failing.phase)


def _undone(session: Session, job: JobState, error: Exception, mark: int) -> bool:
    """Undo what was begun since the session had seen so many steps (`mark`), and leave out whose fault it was; whether
    it was another group's, so that work may go on.
    """
    culprit = error.job if isinstance(error, CulpritError) else job
    known = culprit.key in session.failed
    for statement in reversed(list(session.open_statements.values())):
        statement.rollback(statement.mark_at(mark))
    for forget in session.caches:
        forget()
    fail(session, job if known else culprit, _cause(error) if isinstance(error, CulpritError) else error)
    own_up(session)
    return culprit is not job and not known


def _cause(error: CulpritError) -> BaseException:
    return error.__cause__ or error
