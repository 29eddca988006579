"""Where counting says whether a group would fit but for what others are nominated to, a trial says the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from kbatch.api.reasons import Reason
from kbatch.engine.decisions import Turn
from kbatch.engine.diagnosis.shortages import Shortages
from kbatch.engine.state.jobs import JobState
from tests.property.test_engine import relaxed
from tests.unit.engine.worlds import Simulation, group, members, node, pod, policy, priority_class, queue, world

BY = policy("""
actions: "allocate, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: drf}, {name: predicates}, {name: proportion}]
""")
ROLES = {"m": 1, "w": 1}

_RESERVED = Shortages._reserved


def _full(cpus: list[int], taker: tuple[int, int], others: list[tuple[int, int, bool]]) -> Simulation:
    """Nodes on each of which a pod of a group of low priority leaves one CPU free; a group of high priority, of so many
    pods that ask for so much, and others of low priority, some with roles, that come after it.
    """
    objects: list[object] = [priority_class("low", 1), priority_class("high", 9), queue()]
    for at, cpu in enumerate(cpus):
        objects += [node(f"n{at}", str(cpu)), group(f"g{at}", priority_class_name="low")]
        objects.append(pod(f"g{at}", str(cpu - 1), of=f"g{at}", on=f"n{at}"))
    objects += [group("t", taker[0], at=1, priority_class_name="high"), *members("t", taker[0], str(taker[1]))]
    for at, (count, cpu, roles) in enumerate(others):
        name = f"o{at}"
        objects.append(group(name, count, at=2 + at, roles=ROLES if roles else None, priority_class_name="low"))
        if roles:
            objects += [pod(f"{name}-{role}", str(cpu), of=name, role=role) for role in ROLES]
        else:
            objects += members(name, count, str(cpu))
    return Simulation(world(*objects), BY)


def _said(sim: Simulation) -> Counter[tuple[bool, bool | None]]:
    """How often it was a trial's answer, and what counting said; the cycle in which the victims go, and the next."""
    said: Counter[tuple[bool, bool | None]] = Counter()

    def as_tried(shortages: Shortages, job: JobState) -> Generator[Turn, None, Reason | None]:
        if shortages._rows:
            counted = shortages._without.fits(job)
            tried = yield from shortages._tried_without(job)
            assert counted in {None, tried}
            said[tried, counted] += 1
        return (yield from _RESERVED(shortages, job))

    with mock.patch.object(Shortages, "_reserved", as_tried):
        sim.settle()
        sim.tick()
        sim.settle()
    return said


@relaxed
@given(
    st.lists(st.integers(2, 5), min_size=1, max_size=4),
    st.tuples(st.integers(1, 3), st.integers(2, 4)),
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 2), st.booleans()), min_size=1, max_size=3),
)
def test_counted_as_tried(cpus: list[int], taker: tuple[int, int], others: list[tuple[int, int, bool]]) -> None:
    _said(_full(cpus, taker, others))


def test_both_answers_come_by_counting() -> None:
    """The taker waits for n0, of which one CPU is free already: the first would have that, and the second wants two."""
    said = _said(_full([3], (1, 3), [(1, 1, False), (2, 1, False)]))
    assert said[True, True]
    assert said[False, False]
