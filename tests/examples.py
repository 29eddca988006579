"""How many examples a property is tried on."""

from __future__ import annotations

import os
from typing import Final

EXPLORING: Final = bool(os.environ.get("KBATCH_EXPLORE"))
"""Whether new random examples are looked for (`make properties`), and not the same few tried again."""
_MORE: Final = 5


def examples(quick: int) -> int:
    """Half as many in the quick run, which has a budget of time; five times as many in `make properties`."""
    return quick * _MORE if EXPLORING else max(10, quick // 2)
