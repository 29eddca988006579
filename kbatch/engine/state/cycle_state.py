"""What a cycle leaves to the next that changes its decisions. It is recorded in the decision log.

All of it can be made anew, from the API server alone, by a process that has just started: what must outlive a process
is written to the object that it belongs to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class CycleState:
    """Empty is where a process begins. Fields are plain data that JSON can hold, but for what plugins keep.

    Attributes:
        plugins: by plugin name what each plugin with a `State` keeps.
    """

    plugins: Mapping[str, Any] = field(default_factory=dict)
