"""How deep the objects may be that a process reads.

A part of a kind that is open (`x-kubernetes-preserve-unknown-fields`: the template of a PodGroup) may be nested as
deep as the API server decodes JSON: 10,000 levels. Python's readers give up at a thousand, with an error that ends
whoever lists or watches: one object of one user would end every process that looks at PodGroups, at each new start too.
"""

from __future__ import annotations

import sys
import threading
from typing import Final

LEVELS: Final = 12_000
"""What an API server takes, and the calls of whoever reads."""
STACK_BYTES: Final = 16 * 2**20
"""10,000 levels take less than 4 MiB to read, compare, write or copy (Python 3.11). The main thread has 8 as a rule; of
other threads it is address space, of which no more is used than is needed.
"""


def allow_deep_objects() -> None:
    """Let this process, and the threads that it starts from now on, read whatever an API server takes."""
    sys.setrecursionlimit(max(sys.getrecursionlimit(), LEVELS))
    threading.stack_size(STACK_BYTES)
