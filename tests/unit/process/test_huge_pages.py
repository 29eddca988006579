"""Which memory is asked for in huge pages, and that the system then has it so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kbatch.process import huge_pages

_SMAPS = """\
55d0c0000000-55d0c0500000 rw-p 00000000 00:00 0                          [heap]
Size:               5120 kB
Rss:                5000 kB
AnonHugePages:         0 kB
7f0000100000-7f0000a00000 rw-p 00000000 00:00 0
Rss:                9216 kB
7f0000a00000-7f0001200000 rw-p 00000000 00:00 0
Rss:                  16 kB
7f0001200000-7f0001300000 rw-p 00000000 00:00 0
Rss:                1024 kB
7f0002000000-7f0003000000 rw-p 00000000 fe:00 131                        /usr/lib/libc.so.6
Rss:               16384 kB
7f0003000000-7f0004000000 r--p 00000000 00:00 0
Rss:               16384 kB
7f0004000000-7f0005000000 rw-s 00000000 00:01 12                         /dev/shm/it
Rss:               16384 kB
7ffd00000000-7ffd01000000 rw-p 00000000 00:00 0                          [stack]
Rss:               16384 kB
"""


def test_what_is_private_and_in_use_is_asked_for_in_whole_huge_pages() -> None:
    found = [(hex(first), hex(last)) for first, last in huge_pages.regions(_SMAPS.splitlines())]
    assert found == [("0x55d0c0000000", "0x55d0c0400000"), ("0x7f0000200000", "0x7f0000a00000")]


_GROWN = """
import json, re
from pathlib import Path
from kbatch.process import huge_pages

kept = [(number, str(number)) for number in range(400_000)]
def huge():
    return int(re.search(r"AnonHugePages: +(\\d+) kB", Path("/proc/self/smaps_rollup").read_text())[1]) * 1024
before = huge()
asked = huge_pages.use()
print(json.dumps([before, asked, huge()]))
assert kept[399_999] == (399_999, "399999")
"""


def _given() -> bool:
    """Whether this system gives huge pages to those that ask, and at once."""
    enabled = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not enabled.exists() or "[never]" in enabled.read_text("utf-8"):
        return False
    major, minor = Path("/proc/sys/kernel/osrelease").read_text("utf-8").split(".")[:2]
    return (int(major), int(minor.partition("-")[0])) >= (6, 1)


@pytest.mark.skipif(not _given(), reason="the system gives no huge pages, or only by and by")
def test_objects_that_are_kept_lie_in_huge_pages_afterwards() -> None:
    answer = subprocess.run([sys.executable, "-c", _GROWN], capture_output=True, text=True, check=True)
    before, asked, after = json.loads(answer.stdout)
    assert asked >= 16 << 20
    assert after > before, "the system may lack some, but not all of them"


async def test_where_nothing_is_known_of_it_nothing_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(huge_pages, "_SMAPS", tmp_path / "smaps")
    monkeypatch.setattr(huge_pages, "_STATM", tmp_path / "statm")
    assert huge_pages.use() == 0
    await huge_pages.keep_using()
