"""How a long-lived process treats its memory: when the collector looks, and what goes back to the system.

The scheduler makes objects by the hundred thousand, and few cycles; beside kopf it is the other way round.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
from asyncio import sslproto
from typing import Final

YOUNG_OBJECTS: Final = 50_000
"""New objects that make the collector look. Cycles are rare here; looking after every 700, as Python does by itself,
costs more than decoding what the API server says."""

YOUNG_BESIDE_KOPF: Final = (5_000, 5, 2)
"""The thresholds where kopf runs: each event leaves it with some forty objects in cycles, the object's whole body among
them. Fifty thousand of them are twenty megabytes that nobody needs; to look at five thousand takes a millisecond. They
live for seconds, so many get old before they are garbage: all that is not frozen is looked at each fifty thousand."""

LARGE_BYTES: Final = 128 * 1024
"""An allocation of this size or more gets memory of its own, which goes back to the system with it. glibc begins so,
but raises the bound to the largest that was freed: from then on large buffers come to lie on the heap, small objects
settle around them, and the heap grows for as long as connections come and go."""

READ_BYTES: Final = 32 * 1024
"""What is read from a TLS connection at once. asyncio asks for a quarter of a megabyte, which it allocates anew each
time: memory of its own, mapped and given back for the few hundred bytes of an answer. That took a quarter of what a
bind costs. A TLS record, which is what one read gives, has 16 KiB at most."""

TRIM_SECONDS: Final = 60.0
"""How often, beside kopf, everything that is not frozen is looked at for garbage, and what lies free on the heap goes
back to the system. What kopf leaves behind waits for ten minutes otherwise, where one event comes in a second. And by
itself glibc gives back the heap's end alone: of what is read and forgotten holes stay between small things that last.
"""

_M_MMAP_THRESHOLD: Final = -3


def set_up() -> None:
    """Before anything else: let the garbage collector look seldom, keep large buffers off the heap, and read from TLS
    connections without one.
    """
    gc.set_threshold(YOUNG_OBJECTS, 10, 10)
    sslproto.SSLProtocol.max_size = READ_BYTES
    with contextlib.suppress(OSError, AttributeError):  # only glibc has it, and only glibc needs it
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)


def live_beside_kopf() -> None:
    """Let the collector look often."""
    gc.set_threshold(*YOUNG_BESIDE_KOPF)


async def keep_trimming(seconds: float = TRIM_SECONDS) -> None:
    """Collect garbage, and give back what lies free on the heap, now and then, until this is cancelled. That takes a
    millisecond for ten thousand objects, and in a thread another one for some ten mebibytes.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    while True:
        await asyncio.sleep(seconds)
        gc.collect()
        if trim is not None:  # only glibc has it
            await asyncio.to_thread(trim, 0)


def settle() -> None:
    """After the first lists: what is alive now will stay, so the collector need not look at it again."""
    gc.collect()
    gc.freeze()
