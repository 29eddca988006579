"""That a group is told why it waits changes nothing that anybody decides by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from kbatch.api.objects import Condition, EstimatedStart, FinishedRole, NodeFailures, PodGroup, PodGroupStatus
from kbatch.model.events import Upsert
from tests.unit.engine.worlds import group, node, pod, queue, world


@dataclass(frozen=True)
class Say:
    """One condition."""

    type: str
    status: str
    message: str = ""

    def __call__(self, found: PodGroup) -> None:
        one = Condition(type=self.type, status=self.status, reason="R", message=self.message)
        found.status.conditions = (*(found.status.conditions or ()), one)


def counted(found: PodGroup) -> None:
    found.status.phase, found.status.pending = "Pending", 1
    found.status.estimated_start = EstimatedStart(time="2026-01-01T00:00:00Z", latest=None, basis="history")
    found.metadata.resource_version = "17"


def changed(name: str, value: object) -> Callable[[PodGroup], None]:
    def change(found: PodGroup) -> None:
        part = found.status if name in PodGroupStatus.__struct_fields__ else found.metadata
        setattr(part, name, value)

    return change


def asks_for_two(found: PodGroup) -> None:
    found.spec.min_member = 2


TOLD: list[Callable[[PodGroup], None]] = [
    Say("Enqueued", "False", "much"),
    Say("Scheduled", "False"),
    Say("Unschedulable", "True"),
    counted,
]
NEWS: list[Callable[[PodGroup], None]] = [
    Say("Enqueued", "True"),
    Say("Scheduled", "True"),
    Say("Failed", "True"),
    Say("Stalled", "True"),
    asks_for_two,
    changed("scheduling_attempts", 1),
    changed("excess_charged", "3"),
    changed("node_failures", (NodeFailures(node="n", pods=("u",)),)),
    changed("finished", (FinishedRole(name="", indexes="0"),)),
    changed("phase", "InQueue"),
    changed("uid", "other"),
    changed("labels", {"a": "b"}),
    changed("annotations", {"a": "b"}),
    changed("creation_timestamp", "2026-01-01T00:00:01Z"),
    changed("deletion_timestamp", "2026-01-01T00:00:01Z"),
]


def noted(change: Callable[[PodGroup], None], on: str = "", before: Callable[[PodGroup], None] | None = None) -> bool:
    """Whether the group of one pod counts as changed."""

    def one() -> PodGroup:
        found = group("g")
        if before is not None:
            before(found)
        return found

    model = world(queue(), node("n"), one(), pod("p", of="g", on=on))
    model.refresh()
    position, generation = model.changes.position, model.generation
    now = one()
    change(now)
    model.apply(Upsert(now))
    assert model.generation > generation
    assert model.jobs["ns/g"].group is now
    model.validate()
    return model.changes.position > position


@pytest.mark.parametrize("change", TOLD)
def test_what_a_waiting_group_is_told_is_no_news(change: Callable[[PodGroup], None]) -> None:
    assert not noted(change)
    assert not noted(change, before=Say("Enqueued", "False"))


@pytest.mark.parametrize("change", NEWS)
def test_whatever_else_it_says_is_news(change: Callable[[PodGroup], None]) -> None:
    assert noted(change)


@pytest.mark.parametrize("change", TOLD)
def test_of_a_group_that_is_in_queue_or_runs_all_is_news(change: Callable[[PodGroup], None]) -> None:
    assert noted(change, on="n")
    assert noted(change, before=Say("Enqueued", "True"))
    assert noted(change, before=Say("Scheduled", "True"))
    assert noted(change, before=changed("scheduling_attempts", 1))


def test_that_somebody_took_away_what_it_was_told_is_news() -> None:
    assert noted(changed("conditions", None), before=Say("Enqueued", "False", "much"))


def test_a_group_whose_sums_are_not_worked_out_yet_is_looked_at() -> None:
    model = world(queue(), node("n"), group("g"), pod("p", of="g"))
    model.refresh()
    model.apply(Upsert(pod("p", "3", of="g")))
    said = group("g")
    TOLD[0](said)
    model.apply(Upsert(said))
    assert model.jobs["ns/g"].request["cpu"] == 3000
    model.validate()
