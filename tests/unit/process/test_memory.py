"""What a process's allocator and collector are told; in a process of its own, as it cannot be taken back."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from pathlib import Path

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


_HOLES = """
import asyncio, gc, json, os, weakref
from pathlib import Path
from kbatch.process import memory

class Cycle:
    pass

def resident():
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")

async def main():
    memory.set_up()
    gone = weakref.ref(cycle_of := Cycle())
    cycle_of.itself = cycle_of
    gc.collect()
    del cycle_of
    small = [bytes(8000) if at % 16 else bytes(600) for at in range(8000)]  # 60 MB, and every sixteenth stays
    del small[-1]
    kept = small[::16]
    del small
    before = resident()
    trimming = asyncio.create_task(memory.keep_trimming(0.01))
    for _ in range(1000):
        await asyncio.sleep(0.01)
        if before - resident() > 20 << 20:
            break
    trimming.cancel()
    print(json.dumps([len(kept), before - resident(), gone() is None]))

asyncio.run(main())
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the C library is not glibc")
def test_garbage_is_collected_and_what_lies_free_on_the_heap_goes_back() -> None:
    answer = subprocess.run([sys.executable, "-c", _HOLES], capture_output=True, text=True, check=True)
    kept, given_back, collected = json.loads(answer.stdout)
    assert kept == 500
    assert given_back > 20 << 20
    assert collected


_READS = """
import asyncio, json, resource, ssl, sys
from kbatch.process import memory

TURNS = 500
certificate, key = sys.argv[1:]

async def echo(reader, writer):
    while message := await reader.read(1000):
        writer.write(message)
    writer.close()

async def main():
    memory.set_up()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    trust = ssl.create_default_context(cafile=certificate)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust, server_hostname="localhost")
    for turn in range(2 * TURNS):
        if turn == TURNS:  # what is needed once is there by then
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        writer.write(b"x" * 500)
        await reader.readexactly(500)
    print(json.dumps((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / TURNS))
    writer.close()
    server.close()

asyncio.run(main())
"""


def test_what_is_read_from_a_tls_connection_needs_no_new_memory_each_time() -> None:
    pairs = Path(__file__).parents[1] / "webhooks" / "certificates"
    command = [sys.executable, "-c", _READS, str(pairs / "first.crt"), str(pairs / "first.key")]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(answer.stdout) < 0.5, "pages that are new to the process, for each message that comes and goes"
