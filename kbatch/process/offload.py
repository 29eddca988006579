"""Work that would hold up the event loop, in one thread beside it, the owners of the work taking turns.

A thread and not a process: the work shares the interpreter's lock with the loop, which waits for it a few milliseconds
at a time, and copies nothing. One thread and not several: they would only wait for one another. Whoever wants much
waits longer; each other owner is served after at most one piece of work of everybody else's.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from kbatch.model.template_budget import Budget

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class _Piece:
    work: Callable[[], Any]
    answer: asyncio.Future[Any]


class Offload:
    """Does pieces of work one after the other; made and used in one event loop."""

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._waiting: OrderedDict[str, deque[_Piece]] = OrderedDict()  # by owner; whose turn it is first
        self._busy: asyncio.Task[None] | None = None

    async def run(self, owner: str, work: Callable[[], T]) -> T:
        """What the work returns or raises. If this is cancelled before the work has begun, it never does."""
        piece = _Piece(work, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(owner, deque()).append(piece)
        if self._busy is None:
            self._busy = asyncio.create_task(self._serve(), name="offload")
            self._busy.add_done_callback(self._ended)
        result: T = await piece.answer
        return result

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            owner, pieces = self._waiting.popitem(last=False)
            piece = pieces.popleft()
            if pieces:
                self._waiting[owner] = pieces  # behind all others
            if piece.answer.done():
                continue
            try:
                result = await loop.run_in_executor(self._thread, piece.work)
            except Exception as error:  # noqa: BLE001 - it is the caller's
                if not piece.answer.done():
                    piece.answer.set_exception(error)
            except BaseException:
                piece.answer.cancel()
                raise
            else:
                if not piece.answer.done():
                    piece.answer.set_result(result)
        self._busy = None

    def _ended(self, task: asyncio.Task[None]) -> None:
        """When the loop comes to its end nobody is left waiting."""
        if not task.cancelled():
            return
        self._busy = None
        for pieces in self._waiting.values():
            for piece in pieces:
                piece.answer.cancel()
        self._waiting.clear()


def rendering_budget() -> Budget:
    """What may be spent on templates from now on in this thread: time is what the thread itself has worked."""
    return Budget(time.thread_time)
