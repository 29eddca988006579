"""An event loop that looks at its sockets some hundred times a second at most.

A busy watch brings events one by one, half a millisecond apart, and binds are answered one by one. Each of them alone
wakes the loop, and a turn of the loop costs several times what the event does. So after a look that found something the
next one waits a few milliseconds, and what has arrived by then shares one turn: under load that saves more than half of
the processor's time, for a wait that nobody notices behind writes that take tens of milliseconds. A loop that was idle
looks at once, and so does one that reads a connection on which more lies than one read takes: waiting would gather
nothing more, only bound what that connection brings in a second.
"""

from __future__ import annotations

import asyncio
import fcntl
import functools
import selectors
import sys
import termios
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kbatch.process.memory import READ_BYTES

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

T = TypeVar("T")

GATHER_SECONDS: Final = 0.005


class GatheringSelector(selectors.DefaultSelector):
    """The system's selector, which lets events gather.

    Args:
        gather: seconds between a look that found something and the next.
        clock, sleep: of the time that is waited.
    """

    def __init__(
        self,
        gather: float = GATHER_SECONDS,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        super().__init__()
        self._gather = gather
        self._clock = clock
        self._sleep = sleep
        self._next = 0.0
        self._last: set[int] = set()
        """Where the last look found something."""
        self._steady: set[int] = set()
        """Where the one before did, too. More lies only there: of the connections of requests, each is answered once in
        a while, and to ask the system about them costs more than to read them."""
        self._rich: set[int] = set()
        """Where more lay than one read takes, at some time: few connections, watches, of the many."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """As every selector's; nothing where the time is not come and the loop has other work, or a timer is due."""
        left = self._next - self._clock()
        if left > 0 and not self._more(self._rich if timeout == 0 else self._steady):
            if timeout is not None and timeout <= left:
                if timeout > 0:
                    self._sleep(timeout)
                return []
            self._sleep(left)
            if timeout is not None:
                timeout -= left
        found: list[tuple[selectors.SelectorKey, int]] = super().select(timeout)
        if found:
            self._next = self._clock() + self._gather
            now = {key.fd for key, _ in found}
            self._steady, self._last = now & self._last, now
        return found

    def unregister(self, fileobj: FileDescriptorLike) -> selectors.SelectorKey:
        """As every selector's."""
        key = super().unregister(fileobj)
        self._rich.discard(key.fd)
        return key

    def _more(self, among: Iterable[int]) -> bool:
        """Whether more lies on one of these than one read takes."""
        for each in among:
            if _waiting(each) >= READ_BYTES:
                self._rich.add(each)
                return True
        return False


def _waiting(descriptor: int) -> int:
    """How many bytes can be read there now; none where it was closed meanwhile."""
    try:
        return int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)), sys.byteorder)
    except OSError:
        return 0


def event_loop(gather: float = GATHER_SECONDS) -> asyncio.AbstractEventLoop:
    """A loop for `asyncio.Runner`, made of it."""
    return asyncio.SelectorEventLoop(GatheringSelector(gather))


def run(main: Coroutine[Any, Any, T], gather: float = GATHER_SECONDS) -> T:
    """As `asyncio.run`, in such a loop."""
    with asyncio.Runner(loop_factory=functools.partial(event_loop, gather)) as runner:
        return runner.run(main)
