"""The simulator's input, made of a log: what came comes again, when it came, and runs as long as it ran.

Not all of it at the recorded instants: pods that came only after their group had entered its queue come as long after
it again, those that came in the place of evicted ones only where somebody is evicted, and a group that ran does not go
before it has run. What a policy caused is left to the policy.
"""

from __future__ import annotations

import dataclasses
import re
import statistics
from collections.abc import Iterator
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from kbatch.api.objects import (
    AnyObject,
    Job,
    Node,
    Pod,
    PodGroup,
    PodGroupStatus,
    PodStatus,
    ReplicaSet,
    timestamp_us,
)
from kbatch.closed_loop.history import History, Key, Life, made_by_group
from kbatch.simulator.errors import Place
from kbatch.simulator.manifests import Declared, Manifests
from kbatch.simulator.members import has_templates
from kbatch.simulator.names import PREFIX, START, timestamp
from kbatch.simulator.pods import group_of, owner_of
from kbatch.simulator.recorded import End, How, Recorded
from kbatch.times import SECOND

_PLACE: Final = Place("the log")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_LEAVES: Final = 60 * SECOND
"""After its group is deleted, a pod that goes with it is gone in that time."""
_HOW: Final = {"Succeeded": How.SUCCEEDED, "Failed": How.FAILED}
_Object = TypeVar("_Object", bound=AnyObject)


def world_of(history: History) -> Manifests:
    """The input of a simulation that starts with the first cycle of the log."""
    making = _Making(history)
    declared = [*making.stays(), *making.pods()]
    objects = tuple(dataclasses.replace(each, order=order, recorded=True) for order, each in enumerate(declared))
    pods = sum(isinstance(each.obj, Pod) and not each.obj.spec.node_name for each in objects)
    return Manifests(objects, pods=pods, recorded=making.recorded())


class _Making:
    def __init__(self, history: History) -> None:
        self._history = history
        self._shift = START - history.begin
        stays = [stay.versions[0][1] for stay in history.stays]
        self._nodes = {obj.metadata.name for obj in stays if isinstance(obj, Node)}
        self._ours = [life for life in history.lives if life.pod.spec.scheduler_name == history.scheduler_name]
        bound = [life.pod for life in self._ours if life.bound is not None]
        self._ran = {("PodGroup", group_of(pod)) for pod in bound}
        for pod in bound:
            owner = owner_of(pod)
            if owner is not None:
                self._ran.add((owner.kind, f"{owner.namespace}/{owner.name}"))
        self._templated = {_name(obj) for obj in stays if isinstance(obj, PodGroup) and has_templates(obj)}
        deleted = {
            _name(stay.versions[0][1]): stay.gone
            for stay in history.stays
            if stay.gone is not None and isinstance(stay.versions[0][1], PodGroup)
        }
        outlived = {
            group
            for life in self._ours
            if (group := group_of(life.pod)) in deleted
            and life.bound is not None
            and (life.ended is None or life.ended > deleted[group] + _LEAVES)
        }
        self._ran -= {("PodGroup", group) for group in outlived}  # goes as it went, and leaves its pods behind
        self._deleted = deleted.keys() - outlived
        after_leaving = {id(life.successor) for life in self._ours if life.leaving and life.successor is not None}
        self._heads = [life for life in self._ours if not life.replaces or id(life) in after_leaving]

    # --- other objects ------------------------------------------------------------------------------------------------

    def stays(self) -> Iterator[Declared]:
        """Everything but pods, with its changes."""
        latest = {_key(stay.versions[0][1]): stay for stay in self._history.stays}
        for stay in self._history.stays:
            first = stay.versions[0][1]
            kept = (type(first).__name__, _name(first)) in self._ran and latest[_key(first)] is stay
            departure = None if stay.gone is None or (kept and _works(first)) else stay.gone - self._history.begin
            for at, (since, obj) in enumerate(stay.versions):
                made = self._translated(obj)
                if isinstance(made, PodGroup) and since > self._history.begin:
                    made = replace(made, status=PodGroupStatus())
                last = at == len(stay.versions) - 1
                yield Declared(made, _PLACE, since - self._history.begin, departure if last else None)

    # --- pods ---------------------------------------------------------------------------------------------------------

    def pods(self) -> Iterator[Declared]:
        """All pods that nobody makes in the simulation."""
        begin = self._history.begin
        ours = {id(life) for life in self._ours}
        for life in self._history.lives:
            if id(life) not in ours and life.bound is not None and life.node in self._nodes:
                departure = None if life.ended is None else life.ended - begin
                yield Declared(self._pod(life, life.node), _PLACE, life.bound - begin, departure)
        for life in self._heads:
            if life.ran:
                if life.node in self._nodes:
                    yield Declared(self._pod(life, life.node), _PLACE)
                continue
            if made_by_group(life.pod) and group_of(life.pod) in self._templated and not life.standing:
                continue
            group = group_of(life.pod)
            ended = life.bound is None and life.successor is None and life.ended is not None
            departure = life.ended - begin if ended and life.ended is not None else None
            pod = self._pod(life)
            if life.ungated is not None:
                yield Declared(pod, _PLACE, life.came - begin, departure)
                pod = replace(pod, spec=replace(pod.spec, scheduling_gates=None))
                yield self._late(pod, group, life.ungated, life.entered, departure)
            else:
                yield self._late(pod, group, life.came, life.entered, departure)

    def _late(self, pod: Pod, group: str, at: int, entered: int | None, departure: int | None) -> Declared:
        """A pod that comes, or loses its gate, at that instant, or as long after its group's entry into its queue."""
        if entered is None or not group:
            return Declared(pod, _PLACE, at - self._history.begin, departure)
        return Declared(pod, _PLACE, at - entered, departure, awaits=group)

    def _pod(self, life: Life, node: str = "") -> Pod:
        pod = self._translated(life.pod)
        status = pod.status if node else PodStatus(nominated_node_name=pod.status.nominated_node_name)
        meta = pod.metadata
        if life.leaving and life.standing:
            meta = replace(meta, deletion_timestamp=meta.deletion_timestamp or timestamp(0))
        else:
            meta = replace(meta, deletion_timestamp=None, deletion_grace_period_seconds=None)
        return replace(pod, metadata=meta, spec=replace(pod.spec, node_name=node), status=status)

    def _translated(self, obj: _Object) -> _Object:
        """The object with its times as far from the simulation's start as they are from the log's, and without the
        simulation's own annotations (a log may be of a simulated run).
        """
        found: _Object = msgspec.convert(self._value(msgspec.to_builtins(obj)), type(obj))
        return found

    def _value(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._value(one) for name, one in value.items() if not str(name).startswith(PREFIX)}
        if isinstance(value, list | tuple):
            return [self._value(one) for one in value]
        if isinstance(value, str) and _TIME.fullmatch(value):
            try:
                instant = timestamp_us(value)
            except msgspec.ValidationError:
                return value
            return value if instant is None else timestamp(instant + self._shift - START)
        return value

    # --- what no object says ------------------------------------------------------------------------------------------

    def recorded(self) -> Recorded:
        """How long pods ran and took to leave, and when late ones came."""
        ends: dict[str, End | None] = {}
        delays: dict[str, int] = {}
        lengths: dict[str, list[int]] = {}
        for life in self._heads:
            key, group = _name(life.pod), group_of(life.pod)
            ends[key] = end = self._end(life.last)
            if made_by_group(life.pod) and group in self._templated:
                if life.entered is not None:
                    delay = life.came - life.entered
                    delays[group] = min(delay, delays.get(group, delay))
                if end is not None and end.how is How.SUCCEEDED:
                    lengths.setdefault(group, []).append(end.after)
        terminations, usual = self._terminations()
        return Recorded(
            self._history.scheduler_name,
            self._history.default_queue,
            ends,
            {group: End(round(statistics.median(those)), How.SUCCEEDED) for group, those in lengths.items()},
            delays,
            terminations,
            usual,
        )

    def _terminations(self) -> tuple[dict[str, int], int | None]:
        """How long pods took to leave, by name; and how long those do that are not known."""
        found: dict[str, int] = {}
        lengths: list[int] = []
        for life in self._history.lives:
            key = _name(life.pod)
            left = life.ended if life.gone is None else life.gone
            if life.leaving:
                found[key] = (self._history.end + SECOND if left is None else left) - self._history.begin
            elif life.evicted is not None and left is not None:
                found[key] = left - life.evicted
                lengths.append(found[key])
        return found, round(statistics.median(lengths)) if lengths else None

    def _end(self, life: Life) -> End | None:
        """The end of a pod, counted from its bind, that nobody else brought about."""
        if life.bound is None or life.ended is None or life.evicted is not None or life.lost or life.leaving:
            return None
        how = _HOW.get(life.phase, How.DELETED)
        if how is How.DELETED and group_of(life.pod) in self._deleted:
            how = How.SUCCEEDED  # it went with its group, which does not go in the simulation
        return End(life.ended - life.bound, how)


def _works(obj: AnyObject) -> bool:
    """Whether it is work, which lasts as long as it runs."""
    return isinstance(obj, PodGroup | Job | ReplicaSet)


def _name(obj: AnyObject) -> str:
    return f"{obj.metadata.namespace}/{obj.metadata.name}"


def _key(obj: AnyObject) -> Key:
    return type(obj), obj.metadata.namespace, obj.metadata.name
