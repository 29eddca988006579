"""A state: what the API server holds and what the scheduler's process knows besides; and its form up to symmetry.

Times are seconds since the start. Two states are the same if they differ only in the names of nodes, queues, groups
and pods that were made alike, and in when all of it happened.
"""

from __future__ import annotations

import hashlib
import itertools
import marshal
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from kbatch.api.conditions import ENQUEUED, SCHEDULED, TRUE
from kbatch.api.objects import AnyObject, Condition, Node, Pod, PodGroup, PodStatus, timestamp_us
from kbatch.engine import CycleState
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Upsert
from kbatch.times import SECOND
from tests.explore.world import NAMESPACE, World, slot
from tests.unit.engine.worlds import EPOCH, stamp

_OLD: Final = 700
"""An age of more seconds than this, later than everything that has a time in these worlds, counts as this."""
_ATTEMPTS: Final = 4
"""So many attempts and more count alike."""


class PodState(NamedTuple):
    """A pod. `leaves`: when it is gone, None while it is not being deleted. `started`: when it came onto its node."""

    made: int
    node: str = ""
    nominated: str = ""
    leaves: int | None = None
    started: int | None = None
    ended: bool = False


class GroupState(NamedTuple):
    """A PodGroup.

    Attributes:
        unwritten: conditions that the process goes by and writes once binds that are under way are confirmed.
        was_whole: its minimum held nodes at some time; nothing but the checks knows that.
    """

    made: int
    conditions: tuple[Condition, ...] = ()
    unwritten: tuple[Condition, ...] = ()
    attempts: int = 0
    was_whole: bool = False


class State(NamedTuple):
    """All that a cycle is decided by.

    Attributes:
        nodes: the places of the nodes that are there.
        groups: by place; None: not there. gone: the places of groups that were deleted.
        assumed: binds on their way, pod and node. evicting: evictions on their way.
        refused_evictions: pod and until when. refused_binds: pod, node and until when.
        carried: what the cycle before left.
    """

    now: int
    nodes: tuple[int, ...]
    groups: tuple[GroupState | None, ...]
    gone: tuple[int, ...] = ()
    pods: tuple[tuple[str, PodState], ...] = ()
    assumed: tuple[tuple[str, str], ...] = ()
    evicting: tuple[str, ...] = ()
    refused_evictions: tuple[tuple[str, int], ...] = ()
    refused_binds: tuple[tuple[str, str, int], ...] = ()
    carried: CycleState = CycleState()

    def with_pods(self, pods: dict[str, PodState]) -> State:
        """The state with these pods instead; what was known of pods that are gone is forgotten."""
        return self._replace(
            pods=tuple(sorted(pods.items())),
            assumed=tuple(one for one in self.assumed if one[0] in pods and not pods[one[0]].node),
            evicting=tuple(one for one in self.evicting if one in pods and pods[one].leaves is None),
            refused_evictions=tuple(one for one in self.refused_evictions if one[0] in pods),
            refused_binds=tuple(one for one in self.refused_binds if one[0] in pods and not pods[one[0]].node),
        )

    def forgotten(self) -> State:
        """The state for a process that has just started."""
        groups = tuple(one and one._replace(unwritten=()) for one in self.groups)
        return self._replace(
            groups=groups, assumed=(), evicting=(), refused_evictions=(), refused_binds=(), carried=CycleState()
        )


class Objects:
    """The objects of a world's states, each made once."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._pods: dict[tuple[str, PodState], Pod] = {}
        self._groups: dict[tuple[int, GroupState], PodGroup] = {}
        self._nodes = [world.node(place) for place in range(len(world.nodes))]
        self._static = world.static()

    def pod(self, name: str, one: PodState) -> Pod:
        """A pod as the API server has it."""
        found = self._pods.get((name, one))
        if found is None:
            made = self.world.pod(name, one.made)
            assert isinstance(made, Pod)
            made.spec.node_name = one.node
            phase = "Succeeded" if one.ended else "Running" if one.node else "Pending"
            made.status = PodStatus(
                phase=phase,
                nominated_node_name=one.nominated,
                start_time=None if one.started is None else stamp(one.started),
            )
            if one.leaves is not None:
                made.metadata.deletion_timestamp = stamp(one.leaves)
            found = self._pods[name, one] = made
            if len(self._pods) > 20_000:
                self._pods.clear()
        return found

    def group(self, place: int, one: GroupState) -> PodGroup:
        """A PodGroup as the process knows it: as the API server has it, but for what is not written yet."""
        found = self._groups.get((place, one))
        if found is None:
            found = self.world.group(place, one.made)
            found.status.conditions = one.unwritten or one.conditions
            found.status.scheduling_attempts = one.attempts
            self._groups[place, one] = found
            if len(self._groups) > 20_000:
                self._groups.clear()
        return found

    def all(self, state: State) -> Iterator[AnyObject]:
        """Every object of a state."""
        yield from self._static
        yield from self.world.used(used(self.world, state))
        for place in state.nodes:
            yield self._nodes[place]
        for place, one in enumerate(state.groups):
            if one is not None:
                yield self.group(place, one)
        for name, each in state.pods:
            yield self.pod(name, each)

    def model(self, state: State) -> ClusterModel:
        """The model of a process that knows this state."""
        model = ClusterModel()
        for obj in self.all(state):
            model.apply(Upsert(obj))
        self._mark(model, state)
        return model

    def move(self, model: ClusterModel, before: State, after: State) -> None:
        """Tell a model that knows one state what makes another of it."""
        for place in set(before.nodes) - set(after.nodes):
            model.apply(Delete(Node, "", f"n{place}"))
        for place in set(after.nodes) - set(before.nodes):
            model.apply(Upsert(self._nodes[place]))
        for place, (old, new) in enumerate(zip(before.groups, after.groups, strict=True)):
            if new is None and old is not None:
                model.apply(Delete(PodGroup, NAMESPACE, f"g{place}"))
            elif new is not None and new != old:
                model.apply(Upsert(self.group(place, new)))
        cores = used(self.world, after)
        if cores != used(self.world, before):
            for quota in self.world.used(cores):
                model.apply(Upsert(quota))
        was, now = dict(before.pods), dict(after.pods)
        for name in was.keys() - now.keys():
            model.apply(Delete(Pod, NAMESPACE, name))
        for name, one in now.items():
            if was.get(name) != one:
                model.apply(Upsert(self.pod(name, one)))
        for name, _ in set(before.assumed) - set(after.assumed):
            model.forget(_key(name), _uid(name))
        for name in set(before.evicting) - set(after.evicting):
            model.not_evicting(_key(name), _uid(name))
        self._mark(model, after)

    def _mark(self, model: ClusterModel, state: State) -> None:
        for name, where in state.assumed:
            model.assume(_key(name), _uid(name), where)
        for name in state.evicting:
            model.evicting(_key(name), _uid(name))
        for name, until in state.refused_evictions:
            model.refuse_eviction(_key(name), _uid(name), EPOCH + until * SECOND)
        for name, where, until in state.refused_binds:
            model.refuse_bind(_key(name), _uid(name), where, EPOCH + until * SECOND)


def used(world: World, state: State) -> int:
    """How many cores the namespace's pods use of a quota."""
    return sum(world.groups[slot(name)[0]].cpu for name, one in state.pods if not one.ended)


def enqueued(group: GroupState) -> bool:
    """Whether it was written that the group is in queue."""
    return any(one.type == ENQUEUED and one.status == TRUE for one in group.conditions)


def _key(name: str) -> str:
    return f"{NAMESPACE}/{name}"


def _uid(name: str) -> str:
    return f"u-{name}"


# --- up to symmetry ---------------------------------------------------------------------------------------------------


def digest(world: World, state: State) -> int:
    """A number of 64 bits that states have in common exactly if they are the same up to symmetry."""
    return int.from_bytes(hashlib.blake2b(marshal.dumps(canonical(world, state), 2), digest_size=8).digest(), "big")


def canonical(world: World, state: State) -> tuple[Any, ...]:
    """The form that states which are the same up to symmetry have in common: the least over all orders of its nodes."""
    pods = _pods(world, state)
    groups = [_group(world, state, place) for place in range(len(world.groups))]
    return min(_form(world, state, pods, groups, names) for names in _orders(world, state, pods))


def _orders(world: World, state: State, pods: list[tuple[Any, ...]]) -> Iterable[dict[str, int]]:
    """The numbers that the nodes may be given: by what is on them; where that is alike, in any order."""
    marks = []
    for place, cores in enumerate(world.nodes):
        name = f"n{place}"
        on = sorted(
            (world.groups[group].queue, one[1:], tuple(at == name for at in nodes))
            for group, one, nodes in pods
            if name in nodes
        )
        marks.append((cores, place in state.nodes, repr(on), place))
    marks.sort()
    runs = [[one[3] for one in run] for _, run in itertools.groupby(marks, key=lambda mark: mark[:3])]
    for order in itertools.product(*(itertools.permutations(run) for run in runs)):
        yield {f"n{place}": number for number, place in enumerate(itertools.chain(*order))} | {"": -1}


def _form(
    world: World,
    state: State,
    pods: list[tuple[Any, ...]],
    groups: list[tuple[Any, ...]],
    names: dict[str, int],
) -> tuple[Any, ...]:
    members: list[list[Any]] = [[] for _ in groups]
    for place, one, nodes in pods:
        members[place].append(
            (one, tuple(sorted((names[where], number) for number, where in enumerate(nodes) if where)))
        )
    queues: list[list[Any]] = [[] for _ in world.queues]
    for place, group in enumerate(groups):
        queues[world.groups[place].queue].append((group, tuple(sorted(members[place]))))
    there = tuple(sorted((names[f"n{place}"], cores, place in state.nodes) for place, cores in enumerate(world.nodes)))
    return there, tuple(
        sorted(
            ((one.weight, one.capability, one.reclaimable), tuple(sorted(queue)))
            for one, queue in zip(world.queues, queues, strict=True)
        )
    )


def _pods(world: World, state: State) -> list[tuple[Any, ...]]:
    """Of each pod its group's place, what it is but for the names of nodes, and these."""
    assumed, evicting = dict(state.assumed), set(state.evicting)
    refused = dict(state.refused_evictions)
    gathered = dict(state.carried.gathered.places) if state.carried.gathered is not None else {}
    planned = {pod: where for one in state.carried.planned for pod, where in one.places}
    found = []
    for name, one in state.pods:
        place, index = slot(name)
        on = [where for pod, where, _ in state.refused_binds if pod == name]
        own = (
            world.groups[place].role(index),
            _age(state, one.made),
            _ahead(state, one.leaves),
            _age(state, one.started),
            one.ended,
            name in evicting,
            _ahead(state, refused.get(name)),
            max((_ahead(state, until) for pod, _, until in state.refused_binds if pod == name), default=-1),
            _exact(state, state.carried.begun.get(_key(name))),
        )
        nodes = (
            one.node, one.nominated, assumed.get(name, ""), gathered.get(_key(name), ""), planned.get(_key(name), ""),
            *on,
        )  # fmt: skip
        found.append((place, own, nodes))
    return found


def _group(world: World, state: State, place: int) -> tuple[Any, ...]:
    """A group's own part."""
    spec, one = world.groups[place], state.groups[place]
    kind = (
        spec.minimum, spec.pods, spec.cpu, spec.priority, spec.disruption, spec.promises, spec.roles, spec.timeout,
        -1 if spec.lost is None else spec.lost, spec.most, spec.seconds,
    )  # fmt: skip
    if one is None:
        return (kind, place in state.gone)
    key, carried = _key(f"g{place}"), state.carried
    clock = carried.clocks.get(key)
    failing = carried.failing.get(key)
    return (
        kind,
        _age(state, one.made),
        sum(
            other is not None and (other.made, number) < (one.made, place) for number, other in enumerate(state.groups)
        ),
        min(one.attempts, _ATTEMPTS),
        one.was_whole,
        tuple((each.type, each.status, each.reason, _since(state, each)) for each in one.conditions),
        tuple((each.type, each.status, each.reason, _since(state, each)) for each in one.unwritten),
        () if clock is None else (_exact(state, clock.since), clock.paused, _exact(state, clock.stopped)),
        () if failing is None else (failing.error, failing.phase, failing.times),
        key in carried.binding,
        _exact(state, carried.broken.get(key)),
        carried.gathered is not None and carried.gathered.job == key,
        repr(sorted(carried.plugins.items())) if carried.plugins else "",
        _plan(state, key),
    )


def _plan(state: State, key: str) -> tuple[Any, ...]:
    """The start that a group was promised: after which others, and when."""
    for number, one in enumerate(state.carried.planned):
        if one.job == key:
            at = -1 if one.at is None else one.at - EPOCH - state.now * SECOND
            return number, at, one.charge, state.carried.free, state.carried.offered
    return ()


def _age(state: State, at: int | None) -> int:
    return -1 if at is None else min(state.now - at, _OLD)


def _ahead(state: State, at: int | None) -> int:
    return -1 if at is None else max(0, at - state.now)


def _exact(state: State, at: int | None) -> int:
    return -1 if at is None else min(EPOCH + state.now * SECOND - at, _OLD * SECOND)


def _since(state: State, one: Condition) -> int:
    return _exact(state, timestamp_us(one.last_transition_time)) if one.type in {ENQUEUED, SCHEDULED} else 0
