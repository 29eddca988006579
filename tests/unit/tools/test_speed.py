"""How much a time budget is stretched."""

from __future__ import annotations

import pytest

from tools import speed
from tools.speed import MOST, QUICK_SECONDS, Speed, stretched


@pytest.mark.parametrize(
    ("taken", "factor"),
    [
        ([], 1.0),
        ([QUICK_SECONDS / 3], 1.0),
        ([QUICK_SECONDS], 1.0),
        ([QUICK_SECONDS * 1.2, QUICK_SECONDS * 1.2, QUICK_SECONDS * 9], 1.2),
        ([QUICK_SECONDS * 100], MOST),
    ],
)
def test_a_budget_is_never_shorter_and_not_much_longer(taken: list[float], factor: float) -> None:
    assert stretched(taken) == pytest.approx(factor)


def test_the_work_is_timed_while_something_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []
    monkeypatch.setattr(speed, "work", lambda: done.append(1))
    with Speed() as found:
        pass
    assert done
    assert found.factor == 1.0
