"""The arguments of the plugin."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class EstimatesArguments(BaseModel):
    """Of so many groups it is told when they start."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    most: int = Field(
        default=500,
        ge=1,
        le=5000,
        alias="most",
        description="so many groups are told when they start, those of the highest priority first, then the oldest",
    )
