"""Huge pages for what a process keeps.

The picture of a large cluster is a gigabyte of small objects, of which each cycle looks at others. With pages of 4 KiB
the processor looks up the address of nearly each of them in tables that do not fit into its caches. Python takes its
memory a megabyte at a time, so even where the system gives huge pages to everybody (`always`), hardly any of it lies in
one; and most distributions give them to those alone that ask (`madvise`). So this asks.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

_SMAPS: Final = Path("/proc/self/smaps")
_STATM: Final = Path("/proc/self/statm")
_HEADER: Final = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) \S+ \S+ (\d+)\s*(\S*)")
_HUGE: Final = 2 << 20
"""Bytes of a huge page; where it is larger, the system leaves the rest of a region as it is."""
_MOSTLY: Final = 7 / 8
"""So much of a region must be in use: a huge page is in use as a whole. Stacks of threads are mostly not."""
_ADVISE, _COLLAPSE = 14, 25
"""MADV_HUGEPAGE: from now on; MADV_COLLAPSE: what is there (Linux 6.1, before that the system does it by and by)."""
_EVERY_SECONDS: Final = 60.0
_GROWN: Final = 9 / 8

_log = logging.getLogger(__name__)


def regions(smaps: Iterable[str]) -> Iterator[tuple[int, int]]:
    """First and last address of what `/proc/PID/smaps` shows of private memory of the process's own that is mostly in
    use, in whole huge pages.
    """
    start = end = 0
    for line in smaps:
        if header := _HEADER.match(line):
            first, last, rights, file, name = header.groups()
            ours = rights == "rw-p" and file == "0" and name in ("", "[heap]")
            start, end = (int(first, 16), int(last, 16)) if ours else (0, 0)
        elif start and line.startswith("Rss:"):
            whole = -(-start // _HUGE) * _HUGE, end // _HUGE * _HUGE
            if whole[0] < whole[1] and int(line.split()[1]) * 1024 >= _MOSTLY * (end - start):
                yield whole


def use() -> int:
    """Have what this process holds now in huge pages, as far as the system has any; so many bytes were asked for.

    It takes two milliseconds for a mebibyte that is not in one yet, in which other threads go on.
    """
    asked = 0
    try:
        with _SMAPS.open(encoding="utf-8") as smaps:
            found = list(regions(smaps))
        advise = ctypes.CDLL(None).madvise
    except (OSError, AttributeError):  # it is not Linux, or hides it
        return 0
    advise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    for start, end in found:
        # What was found may be somebody else's by now, or nobody's: neither of these changes what memory holds.
        if advise(start, end - start, _ADVISE) == 0:
            advise(start, end - start, _COLLAPSE)
            asked += end - start
    return asked


async def keep_using() -> None:
    """`use`, in a thread: now, and whenever the process has grown by an eighth since; until it is cancelled, or at once
    where nothing is known of its size.
    """
    then = 0
    while now := _resident():
        if now >= _GROWN * then:
            asked = await asyncio.to_thread(use)
            _log.debug("asked for huge pages for %d of %d MiB", asked >> 20, now >> 20)
            then = now
        await asyncio.sleep(_EVERY_SECONDS)


def _resident() -> int:
    """Bytes; 0: unknown."""
    try:
        return int(_STATM.read_text("utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0
