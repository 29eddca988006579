"""How far a long run is, on a terminal."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from kbatch.times import SECOND

if TYPE_CHECKING:
    from rich.console import Console

    from kbatch.simulator.run import Progress

LONG: Final = 1.0
"""A run that takes longer than these seconds shows how far it is."""
OFTEN: Final = 0.1
"""Seconds between two looks at it."""


@contextlib.contextmanager
def shown(
    console: Console | None = None, clock: Callable[[], float] = time.monotonic, after: float = LONG
) -> Iterator[Progress | None]:
    """A bar on standard error while the run in the block goes on, gone after it; None where nobody would see it."""
    if console is None:
        if not sys.stderr.isatty():
            yield None
            return
        from rich.console import Console

        console = Console(stderr=True)
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn
    from rich.progress import Progress as Bar

    bar = Bar(
        BarColumn(None), TaskProgressColumn(), TextColumn("{task.description}"),
        console=console, transient=True, auto_refresh=False, expand=True,
    )  # fmt: skip
    task = bar.add_task("", total=1.0)
    due, farthest = clock() + after, 0.0

    def show(now: int, cycles: int, part: float) -> None:
        nonlocal due, farthest
        if clock() < due:
            return
        due = clock() + OFTEN
        farthest = max(farthest, min(1.0, part))
        bar.start()
        bar.update(task, completed=farthest, description=f"{now / SECOND:g} s simulated, {cycles} cycles", refresh=True)

    try:
        yield show
    finally:
        bar.stop()
