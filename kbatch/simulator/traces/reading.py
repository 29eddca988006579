"""Traces from files: line by line, never the whole text; what is wrong with one, with the place where it stands."""

from __future__ import annotations

import contextlib
import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import IO, Final, TypeAlias, TypeVar

from kbatch.simulator.errors import Fault, InputError, Place
from kbatch.simulator.traces.jobs import Job, Trace
from kbatch.times import SECOND

_GZIP: Final = b"\x1f\x8b"
_NUMBER: Final = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,2})?", re.ASCII)
_MOST_SECONDS: Final = 10**9
"""Thirty years: longer durations are mistakes."""
_MOST_INSTANT: Final = 4 * 10**9
"""Times may be counted from 1970; in microseconds they are exact numbers for readers of JSON."""

Found = TypeVar("Found")
Lines: TypeAlias = Iterable[tuple[int, str]]
"""The lines of a file without their ends, numbered from 1."""


class LineError(Exception):
    """A line cannot be understood; `located` says of which file."""

    def __init__(self, number: int, field: str, what: str) -> None:
        super().__init__(f"line {number}: {field}: {what}")
        self.number, self.field, self.what = number, field, what


def read(path: str, parse: Callable[[Lines], Iterator[Job | str]]) -> Trace:
    """The jobs of a file in the order of submission; `parse` gives jobs, and for each that is left out the reason.

    Raises:
        InputError: it cannot be read or understood, or two jobs have one name; with the line.
    """
    trace = Trace([])
    names: set[str] = set()
    for number, found in located(path, parse):
        if isinstance(found, str):
            trace.dropped[found] += 1
        elif found.name in names:
            raise InputError([Fault(Place(path, line=number), "", f"there is a job {found.name!r} already")])
        else:
            names.add(found.name)
            trace.jobs.append(found)
    trace.jobs.sort(key=lambda job: job.submit)  # stable: ties by the place in the file
    for number, job in enumerate(trace.jobs):
        job.number = number
    return trace


def located(path: str, parse: Callable[[Lines], Iterator[Found]]) -> Iterator[tuple[int, Found]]:
    """What `parse` finds in a file, plain or compressed by gzip, each with the number of the line where it stands.

    Raises:
        InputError: as `read`.
    """
    at = 0

    def numbered(lines: IO[str]) -> Iterator[tuple[int, str]]:
        nonlocal at
        for line in lines:
            at += 1
            yield at, line.rstrip("\n")

    try:
        with _opened(path) as lines:
            for found in parse(numbered(lines)):
                yield at, found
    except LineError as error:
        raise InputError([Fault(Place(path, line=error.number), error.field, error.what)]) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError([Fault(Place(path, line=at + 1), "", f"the compressed file is damaged: {error}")]) from None
    except OSError as error:
        raise InputError([Fault(Place(path), "", f"cannot be read: {error.strerror or error}")]) from None


@contextlib.contextmanager
def _opened(path: str) -> Iterator[IO[str]]:
    """The file as text; what is no UTF-8 (in comments, say) is replaced."""
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(Path(path).open("rb"))
        if file.peek(2)[:2] == _GZIP:
            unpacked = stack.enter_context(gzip.GzipFile(fileobj=file))
            yield stack.enter_context(io.TextIOWrapper(unpacked, encoding="utf-8-sig", errors="replace"))
        else:
            yield stack.enter_context(io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace"))


def seconds(number: int, field: str, text: str, most: int = _MOST_SECONDS) -> int:
    """Seconds, with fractions, as microseconds: to the nearest; may be negative.

    Raises:
        LineError: no number, or beyond all measure.
    """
    text = text.strip()
    if text.isdecimal() and text.isascii() and len(text) < 10:
        return int(text) * SECOND
    if not _NUMBER.fullmatch(text):
        raise LineError(number, field, f"{text[:40]!r} is no number of seconds")
    value = Decimal(text)
    if abs(value) > most:
        raise LineError(number, field, f"{text[:40]!r} is more than {most} seconds")
    return round(value * SECOND)


def instant(number: int, field: str, text: str) -> int:
    """As `seconds`, of a time that may be counted from 1970."""
    return seconds(number, field, text, _MOST_INSTANT)


def whole(number: int, field: str, text: str, most: int = 2**31 - 1) -> int:
    """A whole number; may be negative.

    Raises:
        LineError: no whole number, or too large.
    """
    text = text.strip()
    if text.isdecimal() and text.isascii() and len(text) < 10:
        return int(text)
    if not _NUMBER.fullmatch(text) or (value := Decimal(text)) != value.to_integral_value():
        raise LineError(number, field, f"{text[:40]!r} is no whole number")
    if abs(value) > most:
        raise LineError(number, field, f"{text[:40]!r} is more than {most}")
    return int(value)
