"""What the webhook knows of the cluster: quotas, the groups of each namespace and, to guard reservations, pods.

It is fed and read in one event loop.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Iterable

from kbatch.api.names import DEFAULT_SCHEDULER_NAME, GROUP_NAME_ANNOTATION
from kbatch.api.objects import AnyObject, Job, Pod, PodGroup, ResourceQuota
from kbatch.kube.informer import Batch
from kbatch.kube.kinds import key_of, split_key
from kbatch.model.events import Event, Upsert
from kbatch.model.makers import MakerIndex
from kbatch.model.minresources import ask_of
from kbatch.model.phase import OVER
from kbatch.model.promised import Groups, Sums, number_of, version_of
from kbatch.model.quota import Ask, ask_of_pod
from kbatch.resources import QuantityError
from webhooks.lapsed import Lapsed

_log = logging.getLogger(__name__)


class ClusterView:
    """Everything, by namespace; of Jobs those whose pods `scheduler_name` schedules. `receive` is a feed's receiver.

    `pods_later`: pods are listed once `wants_pods` is set, and not known before.
    """

    def __init__(
        self,
        scheduler_name: str = DEFAULT_SCHEDULER_NAME,
        clock: Callable[[], float] = time.monotonic,
        *,
        pods_later: bool = False,
    ) -> None:
        self.wants_pods = asyncio.Event()
        """Set, for good, once a namespace with a quota has a PodGroup: it is of no use to know pods before that."""
        self.knows_pods = not pods_later
        """Whether all pods were listed; until then nobody can say what of a promise is left."""
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
        self._used: dict[str, Sums] = {}  # by the group's key: its pods that have not failed

    def receive(self, batch: Batch) -> None:
        """Take what an informer saw."""
        for event in batch.events:
            self._apply(event)
        if batch.listed is not None:
            kind, version = batch.listed
            if kind is PodGroup:
                self.version = number_of(version)
            elif kind is Pod:
                self.knows_pods = True

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
        self._want_pods(namespace)
        self._leave_queue(key)
        self._lapse(group)
        if group.status.phase not in OVER:
            self._queues.setdefault(group.spec.queue, {})[key] = group.status.phase
            self._queue_of[key] = group.spec.queue
        if kept is not None and kept.enqueued:
            self.enqueued.add(key)
        else:
            self.enqueued.discard(key)

    def _want_pods(self, namespace: str) -> None:
        if namespace in self.quotas and namespace in self.groups and self.groups[namespace].live:
            self.wants_pods.set()

    def _lapse(self, group: PodGroup) -> None:
        namespace, name = group.metadata.namespace, group.metadata.name
        self.lapsed.lives(namespace, name)
        if group.status.phase not in OVER and (namespace, name) not in self.lapsed:
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
        if not name or pod.status.phase == "Failed":
            return  # one that has succeeded has had its part, and is not made again
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
        self._want_pods(namespace)

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
