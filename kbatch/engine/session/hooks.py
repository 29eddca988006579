"""How those are told who follow which pods stand where, and how what they did is taken back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kbatch.engine.plugin import Undo
from kbatch.model.tasks import Task


def tell(hooks: Sequence[Callable[[Task, int], Undo]], task: Task, row: int) -> tuple[Undo, ...]:
    """What takes back what the hooks did when they were told of a task on a row. One that raises leaves nothing."""
    done: list[Callable[[], None]] = []
    try:
        for hook in hooks:
            done.append(hook(task, row))  # noqa: PERF401 -- those before an error must be known
    except BaseException:
        take_back(done)
        raise
    return tuple(done)


def take_back(undos: Sequence[Undo]) -> None:
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
