"""Which pods of a group with templates should exist: pure, from its spec, its phase, and those that exist.

A role's members are numbered from 0. The first of them, as many as the group needs (its *base*), exist from the moment
the group is in queue; those above, up to maxMember, are made while there is room for them. Whether there is room only
the scheduler knows, so a role that may grow has a few members waiting, and gets more when these found nodes. A member
that is gone is made again under its number; one that failed too, as long as the group has retries left.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from itertools import islice
from types import MappingProxyType
from typing import Final

from kbatch.api.objects import PodGroupSpec
from kbatch.model.finished import NONE, Ranges
from kbatch.model.makers import sizes
from kbatch.model.peers import member_name
from kbatch.model.phase import Phase

WAVE: Final = 8
MOST_WAITING: Final = 16
"""Of the members above the base of a role the eighth part waits for room at one time, from 1 to so many. So roles and
groups reach their maximum in as many waves, whatever their size, and the scheduler can let them grow alike.
"""
REST_SECONDS: Final = 60
"""For so long a role does not grow after others have taken a member from it."""


NOTHING_FINISHED: Final[Mapping[str, Ranges]] = MappingProxyType({})


class State(Enum):
    """Where a member is."""

    WAITING = auto()
    PLACED = auto()
    SUCCEEDED = auto()
    FAILED = auto()
    LEAVING = auto()


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done: members to make, by role and number; names of pods to delete; of these `retried` failed."""

    create: tuple[tuple[str, int], ...] = ()
    remove: tuple[str, ...] = ()
    retried: int = 0


def plan(
    group: str,
    spec: PodGroupSpec,
    made: Mapping[str, State],
    phase: Phase,
    *,
    retries: int = 0,
    due: Collection[str] = (),
    disrupted: Collection[str] = (),
    resting: Collection[str] = (),
    finished: Mapping[str, Ranges] = NOTHING_FINISHED,
    at_most: int = 1_000_000,
) -> Plan:
    """What is to be done about the members of a group.

    Args:
        group: its name.
        spec: what it asks for.
        made: the pods made for it that exist, by name.
        phase: its phase.
        retries: how many failed members may still be made again.
        due: names of failed members that have waited long enough to be made again.
        disrupted: names of failed members that others ended; they cost no retry.
        resting: roles that do not grow for now.
        finished: by role the members that have ended well, whether or not their pods still exist: never made again.
        at_most: so many are made; the others when it is asked again.
    """
    if phase is Phase.PENDING and not spec.suspend:
        return Plan(remove=_those(made, State.WAITING))
    if phase is Phase.FAILED:
        return Plan(remove=_those(made, State.WAITING, State.PLACED))
    if phase is Phase.COMPLETED:
        return Plan(remove=_those(made, State.WAITING))
    if spec.suspend:
        return Plan(remove=_those(made, State.WAITING, State.PLACED))
    create: list[tuple[str, int]] = []
    remove: list[str] = []
    known: set[str] = set()
    for size in sizes(spec):
        mine = _by_number(made, member_name(group, size.role, 0)[:-1], size.most)
        known |= {name for name, _ in mine.values()}
        ended = finished.get(size.role, NONE)
        if sum(index < size.base and index not in ended for index in mine) + ended.below(size.base) < size.base:
            missing = (index for index in range(size.base) if index not in mine and index not in ended)
            create += [(size.role, index) for index in islice(missing, at_most)]
        waiting = [name for index, (name, state) in mine.items() if index >= size.base and state is State.WAITING]
        if ended.pairs or any(state is State.SUCCEEDED for _, state in mine.values()):
            remove += sorted(waiting)  # its work comes to an end: whoever starts now would only hold that up
        elif phase is Phase.RUNNING and size.role not in resting:
            room = min(MOST_WAITING, -(-(size.most - size.base) // WAVE)) - len(waiting)
            free = (index for index in range(size.base, size.most) if index not in mine and index not in ended)
            create += [(size.role, index) for index in islice(free, max(0, room))]
    remove += sorted(name for name, state in made.items() if name not in known and state is State.WAITING)
    failed = [name for name, state in made.items() if state is State.FAILED and name in known]
    free_again = [name for name in failed if name in disrupted]
    again = sorted(name for name in failed if name in due and name not in disrupted)[: max(0, retries)]
    return Plan(tuple(create[:at_most]), (*remove, *free_again, *again), len(again))


def _by_number(made: Mapping[str, State], prefix: str, most: int) -> dict[int, tuple[str, State]]:
    """The members of one role. The cost follows those that exist: a maximum may be far away."""
    found: dict[int, tuple[str, State]] = {}
    for name, state in made.items():
        number = name[len(prefix) :]
        if name.startswith(prefix) and number.isdecimal() and len(number) < 10 and int(number) < most:
            found[int(number)] = name, state
    return found


def _those(made: Mapping[str, State], *states: State) -> tuple[str, ...]:
    return tuple(name for name, state in made.items() if state in states)
