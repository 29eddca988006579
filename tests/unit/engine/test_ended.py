"""Groups that ended before anybody could say that they were scheduled."""

import msgspec
import pytest

from kbatch.api.configuration import DEFAULT
from kbatch.api.objects import Condition, Pod, PodGroupStatus
from kbatch.engine import build_policy
from kbatch.model.events import Upsert
from tests.unit.engine.worlds import group, members, node, policy, queue, run, world


def ended(one: Pod) -> Pod:
    return msgspec.structs.replace(one, status=msgspec.structs.replace(one.status, phase="Succeeded"))


@pytest.mark.parametrize("enqueue", [False, True])
@pytest.mark.parametrize("completed", [False, True])
def test_a_gang_that_ran_and_ended_while_nobody_led_is_said_to_have_been_scheduled(
    enqueue: bool, completed: bool
) -> None:
    said = group("g", 3)
    conditions = [Condition(type="Scheduled", status="False", reason="NotEnoughResources")]
    if completed:
        conditions.append(Condition(type="Completed", status="True", reason="Completed"))
    said = msgspec.structs.replace(said, status=PodGroupStatus(conditions=tuple(conditions)))
    model = world(queue(), node("n1"), said, [ended(one) for one in members("g", 3, on="n1")])
    by = build_policy(DEFAULT) if enqueue else policy()
    verdict = run(model, by).verdicts["ns/g"]
    assert verdict.scheduled
    assert verdict.enqueued
    assert verdict.reason is None

    true = tuple(Condition(type=kind, status="True", reason=kind) for kind in ("Enqueued", "Scheduled"))
    model.apply(Upsert(msgspec.structs.replace(said, status=PodGroupStatus(conditions=true))))
    assert "ns/g" not in model.live, "and then there is nothing left to say"
    model.validate()
