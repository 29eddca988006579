"""What a mutant is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One error that somebody could make, and that some test must notice.

    Attributes:
        id: its name, for `--only`.
        file: the file that it is made in, from the root of the repository.
        fragment: text that stands there exactly once.
        replacement: what stands there instead.
        harm: what goes wrong by it.
        survives: why no test can notice it, if that is so; empty else.
    """

    id: str
    file: str
    fragment: str
    replacement: str
    harm: str
    survives: str = ""

    def applied(self, text: str) -> str:
        """The text of the file with the error in it.

        Raises:
            ValueError: the fragment does not stand there exactly once.
        """
        found = text.count(self.fragment)
        if found != 1:
            raise ValueError(f"{self.id}: the fragment stands {found} times in {self.file}: {self.fragment!r}")
        return text.replace(self.fragment, self.replacement)
