"""What a cycle leaves to the next that changes its decisions. It is recorded in the decision log.

All of it can be made anew, from the API server alone, by a process that has just started: what must outlive a process
is written to the object that it belongs to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Failing:
    """A group on which work has failed.

    Attributes:
        error: the name of the error's type. phase: in which part of the cycle.
        times: how often in a row. until: left out until then, in microseconds since the epoch.
    """

    error: str
    phase: str
    times: int
    until: int


@dataclass(frozen=True, slots=True)
class CycleState:
    """Empty is where a process begins. Fields are plain data that JSON can hold, but for what plugins keep.

    Attributes:
        plugins: by plugin name what each plugin with a `State` keeps.
        failing: by job key the groups that are left out because work on them has failed.
    """

    plugins: Mapping[str, Any] = field(default_factory=dict)
    failing: Mapping[str, Failing] = field(default_factory=dict)
