"""What a process's allocator and collector are told; in a process of its own, as it cannot be taken back."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys

import pytest

_MAPPED = """
import ctypes, json, sys
from kbatch.process import memory

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ord smb hblks hblkhd usm fsm used free keep".split()]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Info
if sys.argv[1] == "set up":
    memory.set_up()
for _ in range(3):  # what connections do that come and go
    del [bytearray(4 << 20) for _ in range(2)][:]
before = libc.mallinfo2().hblkhd
buffer = bytearray(256 << 10)
print(json.dumps(libc.mallinfo2().hblkhd - before))
"""


def mapped(how: str) -> int:
    """Bytes that the buffer of one TLS connection takes outside of the heap, after larger ones have come and gone."""
    answer = subprocess.run([sys.executable, "-c", _MAPPED, how], capture_output=True, text=True, check=True)
    return int(json.loads(answer.stdout))


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="the C library is not glibc 2.33 or later")
def test_large_buffers_never_settle_on_the_heap() -> None:
    assert mapped("as it is") == 0, "glibc has learnt to keep them on the heap"
    assert mapped("set up") >= 256 << 10
