"""What a running process can be asked about itself: a dump into its log, its log level, its configuration.

Signals ask, as they need no port and no rights but those of who may enter the pod: SIGUSR2 for a dump, SIGUSR1 to
write all log lines and, the second time, those that the flags ask for again.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import faulthandler
import logging
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final

from kbatch.process import logs

FIRST: Final = 100
"""So many of each kind are named in a dump; all of them are counted."""

_log = logging.getLogger(__name__)
_log.setLevel(logging.INFO)  # who asks is answered, whatever else is logged

Part = Callable[[], Iterable[str]]


class Diagnosis:
    """What there is to say of a process besides what all have; its owner adds to it.

    Attributes:
        parts: by name what a dump lists; each is called in the process's event loop.
        configuration: by name what /configz says besides the flags: data for JSON.
    """

    def __init__(self) -> None:
        self.parts: dict[str, Part] = {}
        self.configuration: dict[str, Callable[[], Any]] = {}

    def dump(self) -> None:
        """Log the tasks of the running event loop and all parts: how many there are, and the first of them."""
        _log.info("dump begins")
        self._list("tasks", lambda: sorted(_described(task) for task in asyncio.all_tasks()))
        for name, part in self.parts.items():
            self._list(name, part)
        _log.info("dump ends")

    def _list(self, name: str, part: Part) -> None:
        try:
            every = iter(part())
            first = list(islice(every, FIRST))
            count = len(first) + sum(1 for _ in every)
        except Exception:  # noqa: BLE001 - whatever is wrong with one part, the others are worth having
            _log.exception("dump of %s", name)
            return
        _log.info("dump", extra={"part": name, "count": count, "first": " | ".join(first)})

    def configz(self, name: str, version: str, settings: Any) -> dict[str, Any]:
        """What /configz answers: the flags as they were understood (durations in seconds), and `configuration`.

        What looks like a secret is blotted out, as in logs.
        """
        said: dict[str, Any] = {
            "process": name,
            "version": version,
            "logLevel": logging.getLevelName(logging.getLogger().level).lower(),
            "settings": dataclasses.asdict(settings),
        }
        said |= {part: say() for part, say in self.configuration.items()}
        return {part: _redacted(value) for part, value in said.items()}


def _redacted(value: Any) -> Any:
    if isinstance(value, str):
        return logs.redact(value)
    if isinstance(value, dict):
        return {key: _redacted(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_redacted(inner) for inner in value]
    return value


def _described(task: asyncio.Task[Any]) -> str:
    """The task's name, and the line at which it waits."""
    stack = task.get_stack(limit=1)
    where = f"{stack[0].f_code.co_filename}:{stack[0].f_lineno}" if stack else "-"
    return f"{task.get_name()} at {where}"


@contextlib.contextmanager
def answering(diagnosis: Diagnosis, level: str) -> Iterator[None]:
    """Answer the signals within the block; `level` is the one that the flags ask for.

    The stacks of all threads are written by faulthandler, as plain text: also where the event loop hangs, and then
    they are all there is.
    """
    loop = asyncio.get_running_loop()

    def toggle() -> None:
        debugging = logging.getLogger().level == logging.DEBUG and level != "debug"
        chosen = level if debugging else "debug"
        logs.set_level(chosen)
        _log.info("the log level is %s now", chosen)

    loop.add_signal_handler(signal.SIGUSR1, toggle)
    loop.add_signal_handler(signal.SIGUSR2, diagnosis.dump)
    faulthandler.register(signal.SIGUSR2, file=sys.__stderr__ or 2, all_threads=True, chain=True)
    try:
        yield
    finally:
        faulthandler.unregister(signal.SIGUSR2)
        loop.remove_signal_handler(signal.SIGUSR2)
        loop.remove_signal_handler(signal.SIGUSR1)
