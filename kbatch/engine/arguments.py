"""The arguments of whatever takes none: pydantic's model, apart from what is compiled."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class NoArguments(BaseModel):
    """A plugin or an action without arguments."""

    model_config = ConfigDict(extra="forbid", frozen=True)
