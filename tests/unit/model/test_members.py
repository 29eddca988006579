"""Which member pods should exist."""

from __future__ import annotations

from typing import Any

import pytest

from kbatch.api.objects import PodGroupSpec, SubGroup
from kbatch.model.makers import Size, sizes
from kbatch.model.members import MOST_WAITING, Plan, State, plan
from kbatch.model.phase import Phase

WAITING, PLACED, SUCCEEDED, FAILED, LEAVING = State
TEMPLATE: dict[str, Any] = {"spec": {}}


def spec(*roles: SubGroup, minimum: int = 1) -> PodGroupSpec:
    return PodGroupSpec(min_member=minimum, sub_groups=roles)


def role(name: str = "w", least: int = 0, most: int | None = None, *, template: bool = True) -> SubGroup:
    return SubGroup(name=name, min_member=least, max_member=most, template=TEMPLATE if template else None)


def made(*states: State, of: str = "w") -> dict[str, State]:
    return {f"g-{of}-{index}": state for index, state in enumerate(states)}


ELASTIC = spec(role(least=2, most=8))


def test_sizes_leave_out_roles_that_others_make() -> None:
    found = sizes(spec(role("a", 2), role("b", 1, 5), role("c", 3, template=False)))
    assert found == (Size("a", 2, 2), Size("b", 1, 5))


def test_the_first_roles_with_room_make_up_what_the_groups_minimum_lacks() -> None:
    found = sizes(spec(role("a", 1), role("b", 0, 2), role("c", 0, 9), minimum=6))
    assert found == (Size("a", 1, 1), Size("b", 2, 2), Size("c", 3, 9))


def test_nothing_exists_while_the_group_waits() -> None:
    assert plan("g", ELASTIC, {}, Phase.PENDING) == Plan()
    assert plan("g", ELASTIC, made(WAITING, WAITING), Phase.PENDING) == Plan(remove=("g-w-0", "g-w-1"))


def test_the_minimum_is_made_once_the_group_is_in_queue_and_nothing_above_it() -> None:
    several = spec(role("ps", 1), role("w", 2, 8))
    assert plan("g", several, {}, Phase.IN_QUEUE) == Plan(create=(("ps", 0), ("w", 0), ("w", 1)))
    assert plan("g", ELASTIC, made(PLACED), Phase.IN_QUEUE).create == (("w", 1),)
    assert plan("g", ELASTIC, made(PLACED, WAITING), Phase.IN_QUEUE) == Plan()


def test_a_lost_member_comes_back_under_its_number_when_that_is_free() -> None:
    assert plan("g", ELASTIC, {"g-w-1": PLACED}, Phase.UNKNOWN).create == (("w", 0),)
    assert plan("g", ELASTIC, made(LEAVING, PLACED), Phase.UNKNOWN) == Plan()


@pytest.mark.parametrize(
    ("standing", "create"),
    [
        (made(PLACED, PLACED), (2,)),
        (made(PLACED, PLACED, WAITING), ()),
        (made(PLACED, PLACED, PLACED), (3,)),
        ({**made(PLACED, PLACED), "g-w-3": PLACED}, (2,)),
        (made(*[PLACED] * 8), ()),
    ],
)
def test_a_running_group_grows_as_long_as_its_last_pods_found_room(
    standing: dict[str, State], create: tuple[int, ...]
) -> None:
    assert plan("g", ELASTIC, standing, Phase.RUNNING).create == tuple(("w", index) for index in create)


@pytest.mark.parametrize(("most", "wave"), [(9, 1), (16, 1), (17, 2), (72, 8), (1000, MOST_WAITING)])
def test_an_eighth_of_what_may_be_added_waits_at_one_time_within_bounds(most: int, wave: int) -> None:
    some = spec(role(least=8, most=most))
    assert len(plan("g", some, made(*[PLACED] * 8), Phase.RUNNING).create) == wave
    waiting = made(*[PLACED] * 8, WAITING)
    assert len(plan("g", some, waiting, Phase.RUNNING).create) == wave - 1


def test_no_more_are_made_while_a_wave_waits() -> None:
    large = spec(role(least=8, most=1000))
    waiting = made(*[PLACED] * 500, *[WAITING] * MOST_WAITING)
    assert plan("g", large, waiting, Phase.RUNNING) == Plan()


def test_a_role_that_rests_does_not_grow_but_keeps_its_minimum() -> None:
    assert plan("g", ELASTIC, made(PLACED, PLACED), Phase.RUNNING, resting={"w"}) == Plan()
    assert plan("g", ELASTIC, {"g-w-1": PLACED, "g-w-2": PLACED}, Phase.RUNNING, resting={"w"}).create == (("w", 0),)


def test_a_role_whose_work_ends_takes_back_who_waits() -> None:
    standing = made(SUCCEEDED, PLACED, PLACED, WAITING)
    assert plan("g", ELASTIC, standing, Phase.RUNNING) == Plan(remove=("g-w-3",))
    assert plan("g", ELASTIC, made(SUCCEEDED, SUCCEEDED), Phase.COMPLETED) == Plan()


def test_a_failed_member_is_made_again_when_it_is_due_and_retries_are_left() -> None:
    standing = made(PLACED, FAILED)
    assert plan("g", ELASTIC, standing, Phase.UNKNOWN, retries=1) == Plan()
    assert plan("g", ELASTIC, standing, Phase.UNKNOWN, retries=0, due=["g-w-1"]) == Plan()
    found = plan("g", ELASTIC, standing, Phase.UNKNOWN, retries=1, due=["g-w-1"])
    assert found == Plan(remove=("g-w-1",), retried=1)


def test_retries_are_not_overdrawn_by_members_that_fail_together() -> None:
    standing = made(FAILED, FAILED)
    found = plan("g", ELASTIC, standing, Phase.IN_QUEUE, retries=1, due=list(standing))
    assert (found.remove, found.retried) == (("g-w-0",), 1)


def test_a_member_that_others_ended_costs_no_retry() -> None:
    found = plan("g", ELASTIC, made(FAILED, PLACED), Phase.RUNNING, retries=0, disrupted=["g-w-0"], resting={"w"})
    assert found == Plan(remove=("g-w-0",), retried=0)


def test_a_group_that_failed_lets_go_of_what_is_left_and_keeps_what_can_be_read() -> None:
    standing = made(PLACED, WAITING, FAILED, SUCCEEDED)
    assert plan("g", ELASTIC, standing, Phase.FAILED) == Plan(remove=("g-w-0", "g-w-1"))


def test_who_waits_beyond_a_maximum_that_was_lowered_is_taken_back_and_who_runs_stays() -> None:
    standing = made(PLACED, PLACED, PLACED, WAITING)
    assert plan("g", spec(role(least=2, most=2)), standing, Phase.RUNNING) == Plan(remove=("g-w-3",))


def test_what_was_planned_and_done_leaves_nothing_to_do() -> None:
    found = plan("g", ELASTIC, {}, Phase.IN_QUEUE)
    after = {f"g-{name}-{index}": WAITING for name, index in found.create}
    assert plan("g", ELASTIC, after, Phase.IN_QUEUE) == Plan()


def test_a_maximum_that_is_far_away_costs_nothing_and_names_do_not_run_into_one_another() -> None:
    far = spec(role("w", 1, 1_000_000), role("w-1", 1, 1_000_000))
    standing = {"g-w-0": PLACED, "g-w-1-0": PLACED, "g-w-1": PLACED, "g-w-01x": WAITING}
    found = plan("g", far, standing, Phase.RUNNING)
    of_each = [("w", 2 + at) for at in range(MOST_WAITING)], [("w-1", 1 + at) for at in range(MOST_WAITING)]
    assert found.create == (*of_each[0], *of_each[1])
    assert found.remove == ("g-w-01x",)


def test_many_are_made_in_parts() -> None:
    assert plan("g", spec(role(least=9)), {}, Phase.IN_QUEUE, at_most=4).create == tuple(("w", n) for n in range(4))


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.IN_QUEUE, Phase.RUNNING, Phase.UNKNOWN])
def test_a_suspended_group_takes_back_what_was_made_and_makes_nothing(phase: Phase) -> None:
    held = spec(role(least=4))
    held.suspend = True
    found = plan("g", held, made(WAITING, PLACED, SUCCEEDED, FAILED), phase, retries=1, due=["g-w-3"])
    assert found == Plan(remove=("g-w-0", "g-w-1"))


def test_of_a_suspended_group_that_is_over_nothing_else_is_taken_back() -> None:
    held = spec(role(least=1))
    held.suspend = True
    assert plan("g", held, made(SUCCEEDED, WAITING), Phase.COMPLETED) == Plan(remove=("g-w-1",))
