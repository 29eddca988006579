"""What the rendering of templates may cost: steps that are counted as they are taken, and time as a net beneath them.

A step is the least that rendering does: one node of a template's structure or of an expression, one peer at one mention
of `peers`. It takes about a third of a microsecond; what costs more is charged as more steps. So what may be asked for
does not depend on how busy the machine is; the time is far above what the steps take, and is reached only where
something costs more than it was charged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

MOST_STEPS: Final = 500_000
"""Of one member."""
MOST_STEPS_TOGETHER: Final = 1_000_000
"""Of all that is rendered for one review, or in one turn of the operator."""
MOST_SECONDS: Final = 1.0
"""For the same; of the thread that renders alone."""

_STEPS_OF_CHARACTER: Final = 2
_STEPS_OF_NODE: Final = 200
_STEPS_OF_CALL: Final = 3
_CHARACTERS_OF_STEP: Final = 32
_STEPS_BETWEEN_LOOKS: Final = 1_000
"""The clock is looked at so often: a look costs as much as several steps."""


class RefusedTextError(Exception):
    """What jinja2 could do, but templates here may not."""


class Budget:
    """What may still be spent; each source of a text is paid for once, however often it is rendered.

    Args:
        clock: seconds that were worked; None where only steps are limited.
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock
        self._end = 0.0 if clock is None else clock() + MOST_SECONDS
        self._left = MOST_STEPS_TOGETHER
        self._next_look = MOST_STEPS_TOGETHER
        self._of_member = MOST_STEPS
        self._read: set[str] = set()

    @property
    def left(self) -> int:
        """Steps that may still be taken."""
        return self._left

    def serves_another(self) -> bool:
        """Whether one more member can be rendered, whatever it takes within its own limit."""
        return self._left >= MOST_STEPS and not self._late()

    def next_member(self) -> None:
        """The rendering of a member begins."""
        self._of_member = MOST_STEPS
        self._next_look = self._left

    def spend(self, steps: int) -> None:
        """Take so many steps.

        Raises:
            RefusedTextError: they are too many; the message names the limit.
        """
        self._left -= steps
        self._of_member -= steps
        if self._of_member < 0:
            raise RefusedTextError(f"rendering one member takes more than {MOST_STEPS} steps")
        if self._left < 0:
            raise RefusedTextError(f"the templates of the group take more than {MOST_STEPS_TOGETHER} steps together")
        if self._left <= self._next_look:
            self._next_look = self._left - _STEPS_BETWEEN_LOOKS
            if self._late():
                raise RefusedTextError(f"the templates of the group take longer than {MOST_SECONDS:g} s")

    def spend_on_text(self, *texts: object) -> None:
        """Pay for work on whole texts, or on anything else.

        Raises:
            RefusedTextError: as `spend`.
        """
        steps = _STEPS_OF_CALL * len(texts)
        for text in texts:
            if isinstance(text, str):
                steps += len(text) // _CHARACTERS_OF_STEP
        self.spend(steps)

    def reads(self, source: str) -> bool:
        """Pay for parsing a text; False where that was paid for before.

        Raises:
            RefusedTextError: as `spend`.
        """
        if source in self._read:
            return False
        self.spend(len(source) * _STEPS_OF_CHARACTER)
        self._read.add(source)
        return True

    def compiles(self, nodes: int) -> None:
        """Pay for compiling a text of so many nodes.

        Raises:
            RefusedTextError: as `spend`.
        """
        self.spend(nodes * _STEPS_OF_NODE)

    def _late(self) -> bool:
        return self._clock is not None and self._clock() > self._end
