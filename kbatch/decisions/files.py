"""Decision logs on disk: compressed JSON lines, written by a thread of their own, in so many bytes and no more.

Each log is one file. A file that has grown to its share of the bytes ends, and the next one starts whole; the oldest
files go as room is needed. When the thread cannot keep up, or the disk refuses, the file ends too: a log has no gaps.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

from kbatch.decisions.recording import Heard
from kbatch.decisions.records import End, LogError, PolicyText, encode_line
from kbatch.decisions.writing import beginning, line_of
from kbatch.engine import CycleState
from kbatch.model.image import Image

_log = logging.getLogger(__name__)

SUFFIX: Final = ".jsonl.gz"
_PREFIX: Final = "decisions-"
_GZIP: Final = 31
"""zlib's number for its largest window in gzip's format."""
_LEVEL: Final = 1
_READ: Final = 1 << 16
_CHUNK: Final = 1 << 16

_Beginning: TypeAlias = tuple[Image, PolicyText, CycleState]
_Item: TypeAlias = _Beginning | Heard | str | None
"""What the thread is told: begin a log, one more cycle, end it and why, or leave."""


class LogFolder:
    """A `Sink` that writes files into a folder.

    Args:
        folder: made if it is not there; files of earlier processes in it count, and are the first to go.
        max_bytes: of all files together. Each gets a quarter at most, but for one whole beginning, up to a half.
        max_files: how many files at most.
        most_waiting: changes and decisions that may wait to be written; more, and the log ends.
        rest_seconds: between two beginnings at least, since a beginning costs a look at every object.
        written_by: stands in each log.
    """

    def __init__(
        self,
        folder: Path,
        *,
        max_bytes: int,
        max_files: int = 8,
        most_waiting: int = 100_000,
        rest_seconds: float = 10.0,
        written_by: str = "kbatch",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ended: collections.Counter[str] = collections.Counter()
        """How often a log ended, by why."""
        self._folder = folder
        self._share = max(1, max_bytes // 4)
        self._max_bytes = max_bytes
        self._max_files = max(2, max_files)
        self._most_waiting = most_waiting
        self._rest = rest_seconds
        self._written_by = written_by
        self._clock = clock
        self._not_before = 0.0
        self._open = False
        self._waiting = 0
        self._items: collections.deque[_Item] = collections.deque()
        self._work = threading.Condition()
        self._thread: threading.Thread | None = None
        self._file: _File | None = None
        self._sequence = 0

    # --- the sink's side: never waits ---------------------------------------------------------------------------------

    def ready(self) -> bool:
        """Whether a new log may start: nothing waits to be written, and the last beginning is some time ago."""
        return not self._open and not self._waiting and self._clock() >= self._not_before

    def start(self, image: Image, policy: PolicyText, state: CycleState) -> None:
        """Begin a new log."""
        self._not_before = self._clock() + self._rest
        self._open = True
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="decision log", daemon=True)
            self._thread.start()
        self._put((image, policy, state))

    def cycle(self, heard: Heard) -> bool:
        """Write one more cycle; False where the log has ended."""
        if not self._open:
            return False
        weight = len(heard.deltas) + len(heard.decisions)
        if self._waiting and self._waiting + weight > self._most_waiting:
            self.end("more is decided than can be written")
            return False
        self._put(heard)
        return True

    def end(self, why: str) -> None:
        """End the log, if one is open."""
        if self._open:
            self._open = False
            self._put(why)

    def close(self, seconds: float = 2.0) -> None:
        """End the log and wait so long at most until all is on disk."""
        self.end("stopped")
        if self._thread is not None:
            self._put(None)
            self._thread.join(seconds)

    def _put(self, item: _Item) -> None:
        with self._work:
            self._waiting += _weight(item)
            self._items.append(item)
            self._work.notify()

    # --- the thread's side --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._work:
                while not self._items:
                    self._work.wait()
                item = self._items.popleft()
                more = bool(self._items)
            try:
                if item is None:
                    return
                self._handle(item, flush=not more)
            except Exception as error:  # noqa: BLE001 - a log that cannot be written must not harm what it tells of
                _log.warning("the decision log ends: %s: %s", type(error).__name__, error)
                self._give_up("could not be written", self._rest * 6)
            finally:
                with self._work:
                    self._waiting -= _weight(item)

    def _handle(self, item: _Beginning | Heard | str, *, flush: bool) -> None:
        if isinstance(item, tuple):
            self._begin(*item)
        elif isinstance(item, str):
            self._end(item)
        elif self._file is not None:
            self._file.write(line_of(item))
            if flush or self._file.pending >= _CHUNK:
                self._file.flush()
            if self._file.size >= self._share:
                self._open = False
                self._end("full")

    def _begin(self, image: Image, policy: PolicyText, state: CycleState) -> None:
        self._end("another begins")
        self._folder.mkdir(parents=True, exist_ok=True)
        self._prune()
        self._sequence += 1
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
        self._file = file = _File(self._folder / f"{_PREFIX}{stamp}-{self._sequence:06}{SUFFIX}")
        for line in beginning(image, policy, state, self._written_by):
            file.write(line)
            if file.size > self._max_bytes // 2:
                break
        file.flush()
        if file.size > self._max_bytes // 2:
            _log.warning("a decision log of %d objects takes more than half of its bytes", len(image.objects))
            self._give_up("too large", self._rest * 60)
            return
        _log.info("decision log begins", extra={"file": str(file.path), "objects": len(image.objects)})

    def _end(self, why: str) -> None:
        file, self._file = self._file, None
        if file is not None:
            self.ended[why] += 1
            file.write(encode_line(End(why)))
            file.close()

    def _give_up(self, why: str, rest: float) -> None:
        """Leave the file as it is; one that does not even hold its beginning goes."""
        self._open = False
        self._not_before = self._clock() + rest
        self.ended[why] += 1
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                file.abandon()
                if why == "too large":
                    file.path.unlink()

    def _prune(self) -> None:
        """Remove the oldest files until the rest leaves room for one more: half of the bytes, and its place."""
        older = logs_in(self._folder)
        sizes = {path: _size(path) for path in older}
        total = sum(sizes.values())
        while older and (len(older) >= self._max_files or total > self._max_bytes // 2):
            oldest = older.pop(0)
            total -= sizes[oldest]
            oldest.unlink(missing_ok=True)


class _File:
    """One compressed file. `size` is what it has in bytes, `pending` what was written since it was flushed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self.pending = 0
        self._out: BinaryIO = path.open("xb")
        self._compressor = zlib.compressobj(_LEVEL, wbits=_GZIP)

    def write(self, data: bytes) -> None:
        self.pending += len(data)
        self._pass_on(self._compressor.compress(data))

    def flush(self) -> None:
        """Everything so far can be read from the file."""
        self.pending = 0
        self._pass_on(self._compressor.flush(zlib.Z_SYNC_FLUSH))
        self._out.flush()

    def close(self) -> None:
        self._pass_on(self._compressor.flush())
        self._out.close()

    def abandon(self) -> None:
        self._out.close()

    def _pass_on(self, data: bytes) -> None:
        self.size += len(data)
        self._out.write(data)


def _weight(item: _Item) -> int:
    if isinstance(item, Heard):
        return 1 + len(item.deltas) + len(item.decisions)
    return 1


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def logs_in(folder: Path) -> list[Path]:
    """The logs in a folder, the oldest first."""
    return sorted(folder.glob(f"{_PREFIX}*{SUFFIX}"))


def logs_at(path: Path) -> list[Path]:
    """The logs that a path means: itself, or those in the folder that it is.

    Raises:
        LogError: there are none.
    """
    found = logs_in(path) if path.is_dir() else [path]
    if not found:
        raise LogError(f"no decision logs ({_PREFIX}*{SUFFIX}) in {path}")
    return found


def read_lines(path: Path) -> Iterator[bytes]:
    """The lines of a log, as far as they are whole: the file may still be written to, or its writer was killed.

    Raises:
        OSError: it cannot be read.
        LogError: it is no compressed file.
    """
    rest = b""
    unpack = zlib.decompressobj(_GZIP)
    with path.open("rb") as source:
        while packed := source.read(_READ):
            try:
                rest += unpack.decompress(packed)
            except zlib.error as error:
                plain = "; it is not compressed: gzip it first" if packed[:1] == b"{" and not rest else ""
                raise LogError(f"no decision log: {error}{plain}") from None
            *lines, rest = rest.split(b"\n")
            yield from lines
