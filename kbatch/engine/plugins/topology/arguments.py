"""The arguments of the plugin."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, field_validator

_EXAMPLE = "topology.kubernetes.io/zone, example.com/block, example.com/rack"


class TopologyArguments(BaseModel):
    """Which node labels say where a node stands."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    levels: tuple[str, ...] = Field(
        default=(),
        alias="levels",
        description=f"node labels, outermost first: a list, or divided by commas, such as {_EXAMPLE}",
    )

    @field_validator("levels", mode="before")
    @classmethod
    def _divided(cls, value: object) -> object:
        """A text with commas is a list."""
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
