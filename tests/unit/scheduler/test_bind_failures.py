"""How many lines failed binds make."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import pytest

from kbatch.engine import Bind
from kbatch.kube.errors import ApiError, NoAnswerError
from operators.scheduler.bind_failures import FORGET_SECONDS, LINES, BindFailures


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def denied(pod: str) -> ApiError:
    return ApiError(403, "Forbidden", f"admission webhook denied pod {pod}")


def fail(failures: BindFailures, pod: str, group: str, error: Exception | None = None) -> None:
    failures.note(Bind(f"ns/{pod}", f"uid-{pod}", "n1"), f"ns/{group}", error or denied(pod))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    caplog.clear()
    return found


def test_the_first_of_each_kind_and_group_has_a_line_and_the_others_are_summed_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failures = BindFailures(Clock())
    for number in range(1000):
        fail(failures, f"p{number}", "g")
    fail(failures, "q", "h")
    fail(failures, "q", "h", NoAnswerError("POST", "/x", sent=True, why="cut"))
    said = warnings(caplog)
    assert len(said) == 3
    assert said[0].startswith("bind of ns/p0 to n1 failed: ")
    assert "bind of ns/q to n1 failed: " in said[1]
    failures.sum_up()
    (record,) = [one for one in caplog.records if one.levelno == logging.WARNING]
    told = vars(record)
    assert (told["reason"], told["count"], told["groups"]) == ("403 Forbidden", 999, 1)
    assert "ns/p999" in told["last"]
    caplog.clear()
    failures.sum_up()
    assert not warnings(caplog), "nothing has failed since"
    fail(failures, "p1", "g")
    assert not warnings(caplog), "it was said before"


def test_many_groups_do_not_make_many_lines(caplog: pytest.LogCaptureFixture) -> None:
    failures = BindFailures(Clock())
    for number in range(5000):
        fail(failures, f"p{number}", f"g{number}")
    assert len(warnings(caplog)) == LINES
    failures.sum_up()
    (record,) = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert (vars(record)["count"], vars(record)["groups"]) == (5000 - LINES, 5000 - LINES)


def test_what_has_not_failed_for_long_is_said_anew(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    failures = BindFailures(clock)
    fail(failures, "p", "g")
    clock.now += FORGET_SECONDS + 1
    failures.sum_up()
    fail(failures, "p", "g")
    assert len(warnings(caplog)) == 2


async def test_what_is_counted_is_said_also_when_the_process_ends(caplog: pytest.LogCaptureFixture) -> None:
    failures = BindFailures(Clock())
    task = asyncio.create_task(failures.run())
    await asyncio.sleep(0)
    for pod in ("a", "b"):
        fail(failures, pod, "g")
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert warnings(caplog)[-1] == "binds failed again"
