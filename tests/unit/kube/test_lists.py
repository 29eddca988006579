"""What is said of lists beside the informers' tests."""

from __future__ import annotations

from kbatch.kube.lists import older


def test_versions_compare_as_numbers_where_they_are_numbers() -> None:
    assert older("9", "10")
    assert not older("10", "9")
    assert not older("10", "10")
    assert not older("x", "10")
    assert not older("", "10")
