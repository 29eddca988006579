"""Annotations that cannot be read are told to whoever wrote them."""

from __future__ import annotations

from typing import Any

import pytest

from webhooks.estimates import warning


def saying(value: Any) -> dict[str, Any]:
    return {"metadata": {"annotations": {"kbatch.dev/expected-seconds": value}}}


@pytest.mark.parametrize("value", ["90", "0.5", "1.000001"])
def test_a_number_of_seconds_is_fine(value: str) -> None:
    assert warning(saying(value)) is None
    assert warning({"metadata": {}, "spec": {"template": saying(value)}}) is None


@pytest.mark.parametrize("value", ["", "0", "-1", "soon", "1h", "1e3", 5, "9" * 100])
def test_anything_else_is_told(value: Any) -> None:
    said = warning(saying(value))
    assert said is not None
    assert said.startswith("the annotation kbatch.dev/expected-seconds is ")
    assert len(said) < 300
    assert warning({"metadata": {}, "spec": {"template": saying(value)}}) == said


@pytest.mark.parametrize(
    "body", [{}, {"metadata": None}, {"metadata": {"annotations": None}}, {"spec": {"template": 7}}, {"spec": []}]
)
def test_other_shapes_are_the_api_servers_to_refuse(body: dict[str, Any]) -> None:
    assert warning(body) is None
