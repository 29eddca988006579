"""How long groups run, by what was learned of those that have ended.

Of each group that has ended the run time over what was said of it is kept, in thousandths: under its queue, its name
without digits and its size, and under less and less of these. Of groups of which nobody says anything it is the run
time itself, in tenths of a second.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from kbatch.engine.plugins.estimates.windows import UNIT, Windows, quantile
from kbatch.times import SECOND

_LEAST: Final = 5
"""Of so many that are alike in all, something is known of the next one."""
_HALF: Final = UNIT // 2
_TENTH: Final = SECOND // 10
_DIGITS: Final = re.compile(r"[0-9]+")
_WORD: Final = 60
"""So much of a name counts."""


def kinds_of(queue: str, name: str, pods: int, *, said: bool) -> Sequence[str]:
    """What a group is alike in with others, the most special first.

    Args:
        queue: of the group.
        name: of the group, `namespace/name`.
        pods: its minimum.
        said: somebody says how long it runs.
    """
    word = _DIGITS.sub("", name)[:_WORD]
    of = "said" if said else "unsaid"
    return f"{of} {queue} {word} {pods.bit_length()}", f"{of} {queue} {word}", f"{of} {queue}", of


def learn(windows: Windows, kinds: Sequence[str], said: int | None, ran: int) -> None:
    """A group has ended that ran for so long, in microseconds, where `said` was said."""
    windows.add(kinds, ran * UNIT // said if said else ran // _TENTH)


def length(windows: Windows, kinds: Sequence[str], said: int | None, ran: int = 0) -> int | None:
    """How long such a group runs in the middle, in microseconds, where it has run for some time already.

    None: of none like it anything is known, and nobody says anything. Where none ran as long as it has: what was said,
    which may be past.
    """
    unit = said or UNIT * _TENTH
    longer = [number for number in windows.best(kinds, _LEAST) if number * unit // UNIT > ran]
    if longer:
        return max(1, quantile(longer, _HALF) * unit // UNIT)
    if said:
        return said
    return max(1, ran * 11 // 10) if windows[kinds[-1]] else None
