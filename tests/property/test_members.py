"""Member pods, whatever happens to them: the plan never makes what exists, and comes to an end."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kbatch.api.objects import PodGroupSpec, SubGroup
from kbatch.model.makers import sizes
from kbatch.model.members import Plan, State, plan
from kbatch.model.peers import member_name
from kbatch.model.phase import Phase

ROLES = ("w", "w-1", "ps")


@st.composite
def specs(draw: st.DrawFn) -> PodGroupSpec:
    roles = []
    for name in draw(st.lists(st.sampled_from(ROLES), min_size=1, unique=True)):
        least = draw(st.integers(0, 4))
        most = draw(st.none() | st.integers(max(least, 1), 9))
        template: dict[str, Any] | None = draw(st.sampled_from([{"spec": {}}, {"spec": {}}, None]))
        roles.append(SubGroup(name=name, min_member=least, max_member=most, template=template))
    return PodGroupSpec(min_member=draw(st.integers(1, 12)), sub_groups=tuple(roles))


standing = st.dictionaries(
    st.builds(lambda role, index: member_name("g", role, index), st.sampled_from(ROLES), st.integers(0, 11)),
    st.sampled_from(State),
    max_size=12,
)
phases = st.sampled_from(Phase)


def carried_out(made: dict[str, State], done: Plan) -> dict[str, State]:
    """The pods once everything planned has happened: new ones wait, deleted ones are gone."""
    left = {name: state for name, state in made.items() if name not in done.remove}
    return {**left, **{member_name("g", role, index): State.WAITING for role, index in done.create}}


@given(specs(), standing, phases, st.integers(0, 3), st.booleans())
def test_a_plan_makes_only_what_is_missing_within_the_roles_bounds(
    spec: PodGroupSpec, made: dict[str, State], phase: Phase, retries: int, due: bool
) -> None:
    failed = [name for name, state in made.items() if state is State.FAILED]
    found = plan("g", spec, made, phase, retries=retries, due=failed if due else ())
    names = [member_name("g", role, index) for role, index in found.create]
    bounds = {size.role: size for size in sizes(spec)}
    assert len(names) == len(set(names))
    assert not set(names) & made.keys()
    assert set(found.remove) <= made.keys()
    assert len(found.remove) == len(set(found.remove))
    assert all(index < bounds[role].most for role, index in found.create)
    assert found.retried <= retries
    assert not any(made[name] in {State.SUCCEEDED, State.LEAVING} for name in found.remove)
    if phase not in {Phase.IN_QUEUE, Phase.RUNNING, Phase.UNKNOWN}:
        assert not found.create
    if phase is not Phase.RUNNING:
        assert all(index < bounds[role].base for role, index in found.create)
    if phase is not Phase.FAILED:
        assert not any(made[name] is State.PLACED for name in found.remove)


@given(specs(), standing, phases, st.integers(1, 5))
def test_carried_out_it_comes_to_an_end_and_the_minimum_exists(
    spec: PodGroupSpec, made: dict[str, State], phase: Phase, at_most: int
) -> None:
    """With a static phase, pods that leave gone in the end, and pods that find no room."""
    made = {name: state for name, state in made.items() if state is not State.LEAVING}
    for _ in range(200):
        found = plan("g", spec, made, phase, at_most=at_most)
        if found == Plan():
            break
        made = carried_out(made, found)
    else:
        raise AssertionError("it never ends")
    if phase in {Phase.IN_QUEUE, Phase.RUNNING, Phase.UNKNOWN}:
        for size in sizes(spec):
            assert all(member_name("g", size.role, index) in made for index in range(size.base))
    if phase is Phase.PENDING:
        assert State.WAITING not in made.values()


@given(specs(), standing)
def test_with_room_for_all_a_running_group_grows_to_its_maximum(spec: PodGroupSpec, made: dict[str, State]) -> None:
    made = {name: State.PLACED for name, state in made.items() if state is State.PLACED}
    for _ in range(200):
        found = plan("g", spec, made, Phase.RUNNING)
        if found == Plan():
            break
        made = dict.fromkeys(carried_out(made, found), State.PLACED)
    for size in sizes(spec):
        assert all(member_name("g", size.role, index) in made for index in range(size.most))
