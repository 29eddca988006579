"""Of whom nothing can be had is known without asking anybody."""

from __future__ import annotations

from typing import Any

import pytest

from kbatch.engine.preemption.candidates import may_give
from tests.unit.engine.worlds import group, members, node, world


@pytest.mark.parametrize(
    ("pods", "spec", "gives"),
    [
        (2, {"min_member": 2}, False),
        (3, {"min_member": 2}, True),
        (1, {"min_member": 1}, True),
        (2, {"min_member": 2, "disruption": "Whole"}, True),
        (3, {"min_member": 2, "disruption": "Never"}, False),
        (2, {"min_member": 2, "lifetime_seconds": 5}, True),
        (2, {"min_member": 2, "min_runtime_seconds": 5}, True),
        (0, {"min_member": 1}, False),
    ],
)
def test_a_gang_gives_what_is_beyond_its_minimum_or_all_of_it(pods: int, spec: dict[str, Any], gives: bool) -> None:
    model = world(node("n"), group("g", **spec), members("g", pods, on="n"))
    assert may_give(model.jobs["ns/g"]) is gives
