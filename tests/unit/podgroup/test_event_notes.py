"""What is told of a group by Events when its phase changes."""

from __future__ import annotations

import pytest

from kbatch.api.objects import PodGroup
from kbatch.api.reasons import SentBack
from kbatch.kube.events import Regarding
from kbatch.model.phase import Phase
from operators.podgroup.event_notes import Teller
from tests.unit.podgroup.build import NOW, condition, group


class Told(list[tuple[str, str]]):
    """A recorder of reasons and notes."""

    def tell(self, regarding: Regarding, type_: str, reason: str, action: str, note: str) -> None:
        self.append((reason, note))

    def remark(self, regarding: Regarding, reason: str, action: str, note: str) -> None:
        self.tell(regarding, "Normal", reason, action, note)


def waiting(reason: str, message: str, attempts: int) -> PodGroup:
    found: PodGroup = group(conditions=(condition("Scheduled", "False", reason, message),))
    found.status.scheduling_attempts = attempts
    return found


@pytest.mark.parametrize(
    ("reason", "attempts", "why"),
    [
        (SentBack.code, 2, "its minimum was not placed in time, or was lost (2 times)"),
        ("QuotaExceeded", 0, "it is in queue no more"),
        ("QuotaExceeded", 1, "it is in queue no more"),
    ],
)
def test_that_a_group_was_sent_back_is_told_with_its_cause(reason: str, attempts: int, why: str) -> None:
    """How often it has timed out before says nothing of why it is sent back now."""
    told = Told()
    Teller(told, NOW).phase(waiting(reason, "as it is", attempts), "InQueue", Phase.PENDING, [])
    assert told == [("SentBack", f"{why}; as it is")]


@pytest.mark.parametrize(
    ("old", "new", "events"),
    [
        ("Pending", Phase.IN_QUEUE, [("Enqueued", "admitted by Queue default")]),
        ("InQueue", Phase.RUNNING, [("Scheduled", "its minimum is placed")]),
        ("Pending", Phase.RUNNING, [("Scheduled", "admitted by Queue default, and its minimum is placed")]),
        ("Unknown", Phase.RUNNING, []),
    ],
)
def test_steps_that_are_taken_at_once_are_one_event(old: str, new: Phase, events: list[tuple[str, str]]) -> None:
    told = Told()
    of = group()
    of.spec.queue = "default"
    Teller(told, NOW).phase(of, old, new, [])
    assert told == events
