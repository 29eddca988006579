"""From a pod to its decision, in the log."""

from __future__ import annotations

import io
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from kbatch.api.reasons import QueueNotFound
from kbatch.engine import Bind, Eviction, Nomination, Report, Transaction, Verdict
from kbatch.process.logs import JsonFormatter
from operators.scheduler.story import GROUPS_IN_A_CYCLE, PODS_IN_A_LINE, Story


@pytest.fixture(autouse=True)
def level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "operators.scheduler.story")


def lines(caplog: pytest.LogCaptureFixture, message: str) -> list[Any]:
    return [record for record in caplog.records if record.getMessage() == message]


def waits(group: str, queue: str = "q") -> dict[str, Verdict]:
    reason = QueueNotFound(queue)
    return {group: Verdict(group, shadow=False, enqueued=False, scheduled=False, reason=reason, job=group)}


def test_every_bound_pod_is_named_with_its_node_and_its_cycle(caplog: pytest.LogCaptureFixture) -> None:
    count = PODS_IN_A_LINE * 2 + 1
    binds = tuple(Bind(f"ns/p-{number}", "u", f"n-{number}") for number in range(count))
    Story().tell(7, [Transaction("ns/g", binds=binds)], Report({}))
    told = lines(caplog, "bind")
    assert len(told) == 3
    assert sum(record.count for record in told) == count
    assert {record.cycle for record in told} == {7}
    assert f"ns/p-{count - 1}=n-{count - 1}" in told[-1].pods.split()


def test_evictions_say_for_whom_and_nominations_where(caplog: pytest.LogCaptureFixture) -> None:
    plan = Transaction(
        "ns/g",
        evictions=(Eviction("ns/v", "u", "n1", "reclaim", "ns/g"),),
        nominations=(Nomination("ns/p", "u", "n1"), Nomination("ns/q", "u", None)),
    )
    Story().tell(3, [plan], Report({}))
    (evict,) = lines(caplog, "evict")
    assert (evict.cycle, evict.pod, evict.node, evict.action, evict.beneficiary) == (3, "ns/v", "n1", "reclaim", "ns/g")
    (nominate,) = lines(caplog, "nominate")
    assert nominate.pods == "ns/p=n1 ns/q=-"


def test_a_reason_is_told_when_it_changes_and_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    story = Story()
    story.tell(1, [], Report(waits("ns/g")))
    story.tell(2, [], Report(waits("ns/g")))
    (told,) = lines(caplog, "waits")
    assert (told.cycle, told.group, told.reason) == (1, "ns/g", "QueueNotFound")
    assert told.why == QueueNotFound("q").message
    done = {"ns/g": Verdict("ns/g", shadow=False, enqueued=True, scheduled=True, job="ns/g")}
    story.tell(3, [], Report(done))
    story.tell(4, [], Report(done))
    (scheduled,) = lines(caplog, "scheduled")
    assert (scheduled.cycle, scheduled.group) == (3, "ns/g")


def test_a_flood_of_groups_that_wait_no_longer_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    story = Story()
    names = [f"ns/g-{number}" for number in range(GROUPS_IN_A_CYCLE + 5)]
    for name in names:
        story._waiting[name] = "QueueNotFound"
    story.tell(
        1, [], Report({name: Verdict(name, shadow=False, enqueued=True, scheduled=True, job=name) for name in names})
    )
    assert len(lines(caplog, "scheduled")) == GROUPS_IN_A_CYCLE
    (more,) = lines(caplog, "and more groups")
    assert more.count == 5


def test_the_operators_recipe_finds_a_pods_lines_and_those_of_its_cycle() -> None:
    """The patterns stand in docs/operations.md, for a pod `default/train-7` in cycle 412."""
    page = (Path(__file__).resolve().parents[3] / "docs" / "operations.md").read_text()
    of_pod, of_cycle = re.findall(r"^\$ grep '(.+)' scheduler\.log", page, re.MULTILINE)
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("operators.scheduler.story")
    logger.addHandler(handler)
    try:
        story = Story()
        for cycle, pods in ((41, ("train-70", "xtrain-7")), (412, ("train-1", "train-7")), (4120, ("train-71",))):
            binds = tuple(Bind(f"default/{pod}", "u", "n1") for pod in pods)
            story.tell(cycle, [Transaction("default/train", binds=binds)], Report({}))
        victim = Eviction("default/train-7", "u", "n1", "reclaim", "default/other")
        plan = Transaction("default/other", evictions=(victim,), nominations=(Nomination("default/o", "u", "n1"),))
        story.tell(500, [plan], Report({}))
    finally:
        logger.removeHandler(handler)
    told = stream.getvalue().splitlines()
    assert [json.loads(line)["cycle"] for line in told if re.search(of_pod, line)] == [412, 500]
    assert [json.loads(line)["cycle"] for line in told if re.search(of_cycle, line)] == [412]
    assert re.search(of_pod, '"message": "bind of default/train-7 to n1 failed: 403"')


def test_a_flood_of_reasons_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    many: dict[str, Verdict] = {}
    for number in range(GROUPS_IN_A_CYCLE + 5):
        many |= waits(f"ns/g-{number}")
    Story().tell(1, [], Report(many))
    assert len(lines(caplog, "waits")) == GROUPS_IN_A_CYCLE
    (more,) = lines(caplog, "and more groups")
    assert more.count == 5
