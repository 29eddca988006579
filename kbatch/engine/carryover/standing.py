"""What keeps a group of the backlog out of the queue: as a member of an enum, and as a number in a column."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Standing(IntEnum):
    """What keeps a group out of the queue. Of several the one with the largest number is said."""

    PASSES = 0
    SENT_BACK = 1
    WAITING = 2
    BEYOND_SHARE = 3
    UNFIT = 4
    TOO_LARGE = 5
    HOPELESS = 6
    LIMITED = 7
    """By plugins, by what its queue has."""
    QUOTA = 8
    CAPABILITY = 9
    FIXED = 10
    UNKNOWN = 11
    """Nobody has looked yet."""


class Code:
    """The same as plain numbers: to compare a column with a member takes ten times as long, and to ask a member for its
    value is a call each time.
    """

    PASSES: Final = int(Standing.PASSES)
    SENT_BACK: Final = int(Standing.SENT_BACK)
    WAITING: Final = int(Standing.WAITING)
    BEYOND_SHARE: Final = int(Standing.BEYOND_SHARE)
    UNFIT: Final = int(Standing.UNFIT)
    TOO_LARGE: Final = int(Standing.TOO_LARGE)
    HOPELESS: Final = int(Standing.HOPELESS)
    LIMITED: Final = int(Standing.LIMITED)
    QUOTA: Final = int(Standing.QUOTA)
    CAPABILITY: Final = int(Standing.CAPABILITY)
    FIXED: Final = int(Standing.FIXED)
    UNKNOWN: Final = int(Standing.UNKNOWN)
