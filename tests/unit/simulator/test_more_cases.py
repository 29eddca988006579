"""More named cases, and small ones written out here: sentences of the design, each with what must come of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

# kube-batch's own file.
SHIPPED = """
actions: "reclaim, allocate, backfill, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
"""

evicting = pytest.mark.parametrize("conf", [None, SHIPPED], ids=["default", "shipped"])


@evicting
def test_the_youngest_goes_first(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("the-youngest-goes-first", conf)
    assert [(each["pod"], each["time"]) for each in outcome.evictions] == [
        ("default/b", 10.0),
        ("default/a", 20.0),
        ("default/c", 30.0),
    ]
