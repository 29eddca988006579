"""Members that have ended well, as ranges; and what a group whose pods are gone still counts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbatch.api.objects import FinishedRole, PodGroup, SubGroup
from kbatch.model.events import Upsert
from kbatch.model.finished import MOST_CHARACTERS, NONE, Ranges, parse, without_pods
from kbatch.model.members import State, plan
from kbatch.model.phase import Phase
from kbatch.model.quota import Ask
from tests.unit.engine.worlds import group, node, pod, queue, world

TEMPLATE = {"spec": {"containers": [{"name": "m", "resources": {"requests": {"cpu": "1"}}}]}}


@given(st.lists(st.sets(st.integers(0, 40)), max_size=4))
def test_ranges_are_what_was_put_in_whatever_the_order(steps: list[set[int]]) -> None:
    ranges, all_ = NONE, set[int]()
    for numbers in steps:
        ranges, all_ = ranges.plus(numbers), all_ | numbers
        assert list(ranges) == sorted(all_)
        assert len(ranges) == len(all_)
        assert [number for number in range(42) if number in ranges] == sorted(all_)
        assert ranges.below(20) == len([number for number in all_ if number < 20])
        assert parse(ranges.text()) == ranges


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("", []), ("3", [3]), ("0-2,3,7", [0, 1, 2, 3, 7]), ("5-1,x,-4,2-", [2]), ("2,0-2", [0, 1, 2])],
)
def test_what_cannot_be_read_says_nothing(text: str, numbers: list[int]) -> None:
    assert list(parse(text)) == numbers


@pytest.mark.parametrize("long", ["9" * 10, "9" * 5000])
def test_a_number_too_long_to_be_a_members_says_nothing(long: str) -> None:
    """Python refuses to read one of more than 4300 digits."""
    assert list(parse(f"{long},{long}-5,1-{long},{long}-{long},7")) == [7]


def test_a_status_keeps_no_more_than_it_can_hold() -> None:
    every_other = Ranges(tuple((number, number) for number in range(0, 100_000, 2)))
    kept = parse(every_other.text())
    assert len(every_other.text()) <= MOST_CHARACTERS
    assert list(kept) == list(every_other)[: len(kept)]


def test_of_those_that_ended_well_the_ones_without_pods_are_counted() -> None:
    finished = {"w": parse("0-4"), "v": parse("1")}
    assert without_pods(finished, "g", [("w", "g-w-0"), ("w", "g-w-9"), ("w", "other"), ("v", "g-v-1")]) == {"w": 4}


def test_members_that_ended_well_are_not_made_again() -> None:
    of = group("g", 4, roles={"w": 4}).spec
    of.sub_groups = (SubGroup(name="w", min_member=4, max_member=9, template=TEMPLATE),)
    made = {"g-w-0": State.PLACED, "g-w-2": State.SUCCEEDED}
    assert plan("g", of, made, Phase.RUNNING, finished={"w": parse("1-2")}).create == (("w", 3),)
    assert plan("g", of, {}, Phase.RUNNING, finished={"w": parse("0-3")}).create == (), "nor does it grow any more"


def lived(indexes: str, **spec: Any) -> PodGroup:
    found = group("g", 4, roles={"w": 4}, **spec)
    found.spec.sub_groups = (SubGroup(name="w", min_member=4, template=TEMPLATE),)
    found.status.finished = (FinishedRole(name="w", indexes=indexes),)
    return found


def test_a_group_asks_for_nothing_in_the_place_of_members_that_have_ended_well() -> None:
    """Two have, of which one still has its pod; one runs, so one is still to be made."""
    done = pod("g-w-1", of="g", role="w", on="n1")
    done.status.phase = "Succeeded"
    for stated in (None, {"cpu": "4"}):
        model = world(queue(), node("n1", "9"), lived("0-1", min_resources=stated), done)
        model.apply(Upsert(pod("g-w-2", of="g", role="w", on="n1")))
        job = model.jobs["ns/g"]
        assert (job.succeeded, job.succeeded_in("w"), job.holding, job.gone) == (2, 2, 1, {"w": 1})
        assert job.placed_by_role() == {"w": 3}
        assert [each.count for each in job.to_come] == [1]
        assert job.outstanding == {"cpu": 1000}
        assert model.queues["default"].request == {"cpu": 2000}
        assert model.quota_ask(job) == Ask({"cpu": 1000}, {}, 1)
        assert (model.demand(job).missing, model.demand(job).short) == (1, 0)
        model.apply(Upsert(pod("g-w-3", of="g", role="w", on="n1")))
        assert model.jobs["ns/g"].whole()
        model.apply(Upsert(lived("0-3", min_resources=stated)))
        assert model.jobs["ns/g"].succeeded == 4
