"""The arguments of action `backfill`: whose start is planned, and for how long that stands."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

MOST_STARTS: Final = 1_000
"""Planned starts at one time."""


class BackfillArguments(BaseModel):
    """What action `backfill` may be told.

    Attributes:
        mode: `none`: no start is planned. `easy`: the starts of the first jobs that cannot start are planned anew in
            each cycle. `conservative`: those of all, and what was planned is kept.
        depth: of so many jobs the starts are planned; None: of 1 in mode `easy`, of 1,000 in mode `conservative`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: Literal["none", "easy", "conservative"] = "none"
    depth: int | None = Field(None, ge=1, le=MOST_STARTS)

    @property
    def starts(self) -> int:
        """Of how many jobs the starts are planned."""
        if self.mode == "none":
            return 0
        return self.depth or (1 if self.mode == "easy" else MOST_STARTS)
