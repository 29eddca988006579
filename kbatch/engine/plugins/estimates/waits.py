"""How far what is foreseen of a wait is from what comes of it.

Of each group that was told when it starts, the wait that came of it over the wait that was foreseen is kept, as it was
told first. The next group is told the middle of these, and what nine of ten stay within. As waits that follow one
another are alike, and the last ones are not known yet, nine of ten of the last may be more or less of the next: so each
queue has a level that rises with each group that starts later than it was told, nine times as much as it falls with
each other one. However they come, nine of ten start in time in the long run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kbatch.engine.plugins.estimates.windows import UNIT, Numbers, Windows, quantile
from kbatch.times import SECOND

LEVEL: Final = 920
"""Where levels begin, in thousandths: a little above nine of ten, as the first to be told are told by guess."""
_LEAST_LEVEL: Final = 600
_MOST_LEVEL: Final = 1400
"""Above a thousand it is more than any that was seen: by a hundredth of that for each."""
_STEP: Final = 2
"""So much a level falls with each that starts in time."""
_HALF: Final = UNIT // 2
_LEAST: Final = 20
"""Of so many that are alike in all, nine of ten can be told."""
_FLOOR: Final = 10 * SECOND
"""What is foreseen of any wait at the least, in microseconds: below that ratios mean nothing."""
_FIRST: Final[Numbers] = (
    1000, 5000, 600, 1000, 3000, 150, 1000, 4500, 300, 1600, 1000, 4000, 450, 2000, 750, 3500, 50, 2500, 900, 1300,
)  # fmt: skip
"""What counts where little was seen: half wait no longer than is foreseen, some for much longer. In such an order that
the first ones, of which fewer and fewer count, say about the same.
"""


def kinds_of(queue: str, wait: int, *, planned: bool) -> Sequence[str]:
    """What a foreseen wait (microseconds) is alike in with others, the most special first."""
    how = "planned" if planned else "line"
    long = max(wait, _FLOOR) // _FLOOR
    size = long.bit_length() // 2
    return f"{how} {queue} {size}", f"{how} {size}"


def learn(windows: Windows, kinds: Sequence[str], foreseen: int, waited: int) -> None:
    """A wait came to so much for which so much was foreseen, both in microseconds."""
    windows.add(kinds, waited * UNIT // max(foreseen, _FLOOR))


def level_after(level: int, *, late: bool) -> int:
    """A queue's level after one more of its groups has started, or has not by the time that it was told."""
    moved = level + (9 * _STEP if late else -_STEP)
    return max(_LEAST_LEVEL, min(_MOST_LEVEL, moved))


def told(
    windows: Windows, kinds: Sequence[str], levels: Mapping[str, int], queue: str, foreseen: int
) -> tuple[int, int]:
    """For how long a group is told that it waits, in the middle and nine times out of ten, in microseconds."""
    seen = windows.best(kinds, _LEAST)
    if len(seen) < _LEAST:
        seen = (*_FIRST[: _LEAST - len(seen)], *seen)
    wait = max(foreseen, _FLOOR)
    middle = quantile(seen, _HALF)
    level = levels.get(queue, LEVEL)
    most = quantile(seen, min(level, UNIT))
    if level > UNIT:
        most = most * (100 + level - UNIT) // 100
    most = max(middle, most)
    return middle * wait // UNIT, most * wait // UNIT
