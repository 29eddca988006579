"""What the webhook knows of the cluster: quotas, the groups of each namespace and, to guard reservations, pods.

It is fed and read in one event loop.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kbatch.api import conditions
from kbatch.api.names import DEFAULT_SCHEDULER_NAME, GROUP_NAME_ANNOTATION
from kbatch.api.objects import AnyObject, Job, Pod, PodGroup, PodGroupSpec, ResourceQuota
from kbatch.kube.informer import Batch
from kbatch.kube.kinds import key_of, split_key
from kbatch.model.events import Event, Upsert
from kbatch.model.makers import NO_MAKERS, Maker, MakerIndex
from kbatch.model.minresources import ask_of
from kbatch.model.phase import Phase
from kbatch.model.quota import Ask, Subject, ask_of_pod, charge
from kbatch.resources import QuantityError, Resources, add, subtract
from webhooks.lapsed import Lapsed

_log = logging.getLogger(__name__)

ADMITTED_ANNOTATION: Final = "kbatch.dev/admitted"
"""On a PodGroup admitted under the policy Reject: which entry of the ledger it was admitted by."""

MOST_TOKENS: Final = 8192
"""Tokens that are remembered in a namespace: those of the last half minute at any rate are enough."""

_OVER: Final = frozenset({Phase.COMPLETED.value, Phase.FAILED.value})
_STARTED: Final = frozenset({Phase.RUNNING.value, Phase.UNKNOWN.value})
_NOTHING: Final = Ask({})


class Sums:
    """What some groups ask for in all, by what they look like to scopes."""

    def __init__(self, parts: Mapping[Subject, Ask] | None = None) -> None:
        self._parts = dict(parts or {})

    def copy(self) -> Sums:
        """A copy that can be changed by itself."""
        return Sums(self._parts)

    def add(self, ask: Ask) -> None:
        """One more."""
        have = self._parts.get(ask.subject, _NOTHING)
        self._parts[ask.subject] = Ask(
            _some(add(have.requests, ask.requests)),
            _some(add(have.limits, ask.limits)),
            have.pods + ask.pods,
            ask.subject,
        )

    def add_all(self, others: Sums) -> None:
        """All of some others."""
        for part in others._parts.values():
            self.add(part)

    def remove(self, ask: Ask) -> None:
        """One less, which was added before."""
        have = self._parts.get(ask.subject, _NOTHING)
        left = Ask(
            _some({name: amount - ask.requests.get(name, 0) for name, amount in have.requests.items()}),
            _some({name: amount - ask.limits.get(name, 0) for name, amount in have.limits.items()}),
            have.pods - ask.pods,
            ask.subject,
        )
        if left.pods or left.requests or left.limits:
            self._parts[ask.subject] = left
        else:
            self._parts.pop(ask.subject, None)

    def __bool__(self) -> bool:
        return bool(self._parts)

    def total(self) -> Ask:
        """All of it, whatever it looks like to scopes."""
        parts = self._parts.values()
        return Ask(
            add(*(part.requests for part in parts)),
            add(*(part.limits for part in parts)),
            sum(part.pods for part in parts),
        )

    def charged(self, quota: ResourceQuota) -> Resources:
        """What they are charged to a quota with, by its own names."""
        return add(*(charge(quota, part) for part in self._parts.values()))


@dataclass(frozen=True, slots=True)
class LiveGroup:
    """A PodGroup that is not over.

    Attributes:
        ask: what its minimum asks of quotas, by its spec alone.
        enqueued: it was let in.
        reserving: it was let in, and its minimum does not run yet: what it asks for is kept for it.
        needs: what is kept: `ask`, and what follows from the Jobs that name it.
        spec: of one that needs more than its spec says if a Job names it; else None.
    """

    ask: Ask
    enqueued: bool
    reserving: bool
    needs: Ask
    spec: PodGroupSpec | None = field(default=None, compare=False, repr=False)


class Groups:
    """The live groups of one namespace."""

    def __init__(self, groups: Iterable[PodGroup] = ()) -> None:
        self.live: dict[str, LiveGroup] = {}
        self.sums = Sums()
        self.left: dict[str, Ask] = {}
        """What the groups in queue were promised and do not use yet, by group; groups of which nothing is left are not
        in it."""
        self.promised = Sums()
        """All of that together."""
        self.seen: dict[str, int] = {}
        """The tokens that were seen, each with the first version of it; also of groups that are over or gone since."""
        for group in groups:
            self.put(group)

    def put(self, group: PodGroup, makers: Mapping[str, Maker] = NO_MAKERS) -> LiveGroup | None:
        """Take a group as it is now, and the Jobs that name it; what is kept of it, None if it is over."""
        name = group.metadata.name
        self.drop(name)
        version = version_of(group)
        token = (group.metadata.annotations or {}).get(ADMITTED_ANNOTATION, "")
        if token:
            self.seen.setdefault(token, version)
            if len(self.seen) > MOST_TOKENS:
                del self.seen[next(iter(self.seen))]
        if group.status.phase in _OVER:
            return None
        try:
            ask = ask_of(group.spec)
        except QuantityError:
            return None  # nothing can be reserved for it either
        enqueued = _enqueued(group)
        reserving = enqueued and group.status.phase not in _STARTED
        spec = None if any(role.template for role in group.spec.sub_groups or ()) else group.spec
        self.live[name] = found = LiveGroup(ask, enqueued, reserving, _needs(ask, spec, makers), spec)
        self.sums.add(ask)
        return found

    def made_by(self, name: str, makers: Mapping[str, Maker]) -> None:
        """The Jobs that name a group are these from now on."""
        group = self.live.get(name)
        if group is not None and group.spec is not None:
            self.live[name] = dataclasses.replace(group, needs=_needs(group.ask, group.spec, makers))

    def drop(self, name: str) -> None:
        """Forget a group."""
        before = self.live.pop(name, None)
        if before is not None:
            self.sums.remove(before.ask)
        self._keep(name, None)

    def use(self, name: str, used: Ask | None) -> None:
        """Bring up to date what is left of what a group was promised; `used` is what its pods use."""
        group = self.live.get(name)
        if group is None or not group.reserving:
            self._keep(name, None)
        elif used is None:
            self._keep(name, group.needs)
        else:
            needs = group.needs
            left = Ask(
                subtract(needs.requests, used.requests),
                subtract(needs.limits, used.limits),
                max(0, needs.pods - used.pods),
                needs.subject,
            )
            self._keep(name, left if left.pods or any(left.requests.values()) or any(left.limits.values()) else None)

    def _keep(self, name: str, left: Ask | None) -> None:
        before = self.left.pop(name, None)
        if before is not None:
            self.promised.remove(before)
        if left is not None:
            self.left[name] = left
            self.promised.add(left)


class World:
    """Everything, by namespace; of Jobs those whose pods `scheduler_name` schedules. `receive` is a feed's receiver."""

    def __init__(
        self, scheduler_name: str = DEFAULT_SCHEDULER_NAME, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._makers = MakerIndex(scheduler_name)
        self.quotas: dict[str, tuple[ResourceQuota, ...]] = {}
        self.guarded: dict[str, int] = {}
        """The namespaces with quotas, each with a number that is new whenever it comes to have some."""
        self.groups: dict[str, Groups] = {}
        self.enqueued: set[str] = set()
        """The groups that were let in, as `namespace/name`."""
        self.lapsed = Lapsed(clock)
        self.version = 0
        """What was seen of PodGroups is at least as new as this: the newest of them, or the last list."""
        self._numbers = itertools.count(1)
        self._queues: dict[str, dict[str, str]] = {}  # by queue: the phases of its groups that are not over, by key
        self._queue_of: dict[str, str] = {}
        self._pods: dict[str, tuple[str, Ask]] = {}
        self._used: dict[str, Sums] = {}  # by the group's key: its pods that have not ended

    def receive(self, batch: Batch) -> None:
        """Take what an informer saw."""
        for event in batch.events:
            self._apply(event)
        if batch.listed is not None:
            kind, version = batch.listed
            if kind is PodGroup:
                self.version = number_of(version)

    def phases_in(self, queue: str) -> list[str]:
        """The phases of the groups that name this queue and are not over; empty for one without a status."""
        return list(self._queues.get(queue, {}).values())

    def _apply(self, event: Event) -> None:
        if isinstance(event, Upsert):
            match event.obj:
                case PodGroup():
                    self._group(event.obj)
                case Pod():
                    self._pod(event.obj)
                case ResourceQuota():
                    self._quota(event.obj)
                case Job(metadata=metadata):
                    self._made_by(self._makers.upsert(event.obj, key_of(metadata.namespace, metadata.name)))
                case _:
                    pass
        else:
            self._gone(event.kind, event.namespace, event.name)

    def _group(self, group: PodGroup) -> None:
        namespace, name = group.metadata.namespace, group.metadata.name
        key = key_of(namespace, name)
        kept = self.groups.setdefault(namespace, Groups()).put(group, self._makers.of(key))
        self.version = max(self.version, version_of(group))
        self._use(key)
        self._leave_queue(key)
        self._lapse(group)
        if group.status.phase not in _OVER:
            self._queues.setdefault(group.spec.queue, {})[key] = group.status.phase
            self._queue_of[key] = group.spec.queue
        if kept is not None and kept.enqueued:
            self.enqueued.add(key)
        else:
            self.enqueued.discard(key)

    def _lapse(self, group: PodGroup) -> None:
        namespace, name = group.metadata.namespace, group.metadata.name
        self.lapsed.lives(namespace, name)
        if group.status.phase not in _OVER and (namespace, name) not in self.lapsed:
            return
        try:
            self.lapsed.put(namespace, name, ask_of(group.spec))
        except QuantityError:
            self.lapsed.drop(namespace, name)

    def _made_by(self, keys: Iterable[str]) -> None:
        """The Jobs that name these groups have changed."""
        for key in keys:
            namespace, name = split_key(key)
            if namespace in self.groups:
                self.groups[namespace].made_by(name, self._makers.of(key))
                self._use(key)

    def _leave_queue(self, key: str) -> None:
        queue = self._queue_of.pop(key, None)
        if queue is not None:
            members = self._queues[queue]
            del members[key]
            if not members:
                del self._queues[queue]

    def _pod(self, pod: Pod) -> None:
        key = key_of(pod.metadata.namespace, pod.metadata.name)
        self._forget_pod(key)
        name = (pod.metadata.annotations or {}).get(GROUP_NAME_ANNOTATION, "")
        if not name or pod.status.phase in {"Succeeded", "Failed"}:
            return
        try:
            ask = ask_of_pod(pod)
        except QuantityError:
            return
        group = key_of(pod.metadata.namespace, name)
        self._pods[key] = (group, ask)
        self._used.setdefault(group, Sums()).add(ask)
        self._use(group)

    def _forget_pod(self, key: str) -> None:
        before = self._pods.pop(key, None)
        if before is not None:
            group, ask = before
            sums = self._used[group]
            sums.remove(ask)
            if not sums:
                del self._used[group]
            self._use(group)

    def _use(self, key: str) -> None:
        namespace, name = split_key(key)
        groups = self.groups.get(namespace)
        if groups is not None:
            used = self._used.get(key)
            groups.use(name, None if used is None else used.total())

    def _quota(self, quota: ResourceQuota) -> None:
        namespace = quota.metadata.namespace
        if namespace not in self.guarded:
            self.guarded[namespace] = next(self._numbers)
        others = [one for one in self.quotas.get(namespace, ()) if one.metadata.name != quota.metadata.name]
        self.quotas[namespace] = tuple(sorted([*others, quota], key=lambda one: one.metadata.name))

    def _gone(self, kind: type[AnyObject], namespace: str, name: str) -> None:
        if kind is PodGroup:
            groups = self.groups.get(namespace)
            if groups is not None:
                groups.drop(name)
                self._drop_if_empty(namespace, groups)
            self.enqueued.discard(key_of(namespace, name))
            self._leave_queue(key_of(namespace, name))
            self.lapsed.drop(namespace, name)
        elif kind is Pod:
            self._forget_pod(key_of(namespace, name))
        elif kind is Job:
            self._made_by(self._makers.remove(key_of(namespace, name)))
        elif kind is ResourceQuota:
            left = tuple(one for one in self.quotas.get(namespace, ()) if one.metadata.name != name)
            if left:
                self.quotas[namespace] = left
            else:
                self.quotas.pop(namespace, None)
                self.guarded.pop(namespace, None)
                if namespace in self.groups:
                    self._drop_if_empty(namespace, self.groups[namespace])

    def _drop_if_empty(self, namespace: str, groups: Groups) -> None:
        """Forget a namespace without groups; the tokens that were seen there matter while it has quotas.

        Should quotas come again, what is in the ledger of such a token runs out by itself.
        """
        if not groups.live and not (groups.seen and namespace in self.guarded):
            del self.groups[namespace]


def _needs(ask: Ask, spec: PodGroupSpec | None, makers: Mapping[str, Maker]) -> Ask:
    if not makers or spec is None:
        return ask
    try:
        return ask_of(spec, makers)
    except QuantityError:
        return ask


def _some(amounts: Resources) -> Resources:
    """Without dimensions of which there is nothing: groups name what they like, and no name would ever go."""
    return {name: amount for name, amount in amounts.items() if amount}


def version_of(group: PodGroup) -> int:
    """The resourceVersion as the number that it is; 0 where there is none."""
    return number_of(group.metadata.resource_version)


def number_of(version: str) -> int:
    """A resourceVersion as the number that it is; 0 where it is none."""
    return int(version) if version.isdecimal() else 0


def _enqueued(group: PodGroup) -> bool:
    return group.status.phase in _STARTED or conditions.let_in(group.status.conditions)
