"""The objects of a simulated cluster, as its API server has them and its kubelets run them.

Every change goes through here, and is told to the `ClusterModel` as the event that a watch would bring.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from kbatch.api.objects import AnyObject, Condition, Pod, PodGroup, timestamp_us
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Upsert
from kbatch.simulator import pods as changes
from kbatch.simulator.errors import Fault, InputError
from kbatch.simulator.manifests import Declared
from kbatch.simulator.names import DEFAULT_TERMINATION, DURATION, FAILS_PODS, START, TERMINATION
from kbatch.simulator.pods import Owner, owner_of
from kbatch.simulator.recorded import How, Recorded
from kbatch.simulator.records import PodRecord, creation_stamps
from kbatch.simulator.timeline import Fail, Finish, Gone, Timeline
from kbatch.simulator.times import seconds
from kbatch.times import SECOND

_ENDINGS: Final[dict[How, type[Finish | Fail | Gone]]] = {How.SUCCEEDED: Finish, How.FAILED: Fail, How.DELETED: Gone}


class Store:
    """All objects, and the model of them that the engine decides on.

    Attributes:
        recorded: what a log tells besides the objects.
        model: fed with every change.
        timeline: what is still to happen by itself.
        pods: all pods that exist, and the evicted or lost ones that did, by key.
        by_node, by_owner, by_namespace: the pods that exist, by key; by node only while they run there.
        waits: of the pods that were deleted after they had been bound: how long they waited, by the queue that they
            were bound in.
        groups: the PodGroups that exist, by key.
        shadow_conditions: what the engine said of groups that have no object, by their key in the model.
        taken: names of pods (`namespace/name`) that a controller must not use again.
        dirty_groups: where something changed that controllers have not answered yet. dirty_pods: the keys of the pods
            of which the same holds, by namespace.
        warnings: what goes otherwise than the input seems to mean.
        objects: what groups have besides their pods, `kind/name` by the group's key: of those that had their turn.
    """

    def __init__(self, recorded: Recorded) -> None:
        self.recorded = recorded
        self.model = ClusterModel(recorded.scheduler_name, recorded.default_queue)
        self.timeline = Timeline()
        self.pods: dict[str, PodRecord] = {}
        self.by_node: dict[str, dict[str, PodRecord]] = defaultdict(dict)
        self.by_owner: dict[Owner, dict[str, PodRecord]] = defaultdict(dict)
        self.by_namespace: dict[str, dict[str, PodRecord]] = defaultdict(dict)
        self.waits: dict[str, list[int]] = defaultdict(list)
        self.groups: dict[str, PodGroup] = {}
        self.shadow_conditions: dict[str, tuple[Condition, ...]] = {}
        self.taken: set[str] = set()
        self.dirty_groups: set[str] = set()
        self.dirty_pods: dict[str, set[str]] = defaultdict(set)
        self.warnings: list[str] = []
        self.objects: dict[str, tuple[str, ...]] = {}
        self._uids: dict[str, int] = defaultdict(int)

    def create_pod(self, pod: Pod, stamp: str, now: int, declared: Declared | None, base: str = "") -> None:
        """A pod is created, by the input or by a controller."""
        uid = uid_of(pod)
        self._uids[uid] += 1
        pod = changes.created(pod, uid if self._uids[uid] == 1 else f"{uid}.{self._uids[uid]}", stamp)
        admitted = self._admit(pod)
        if admitted is None:
            self._refuse(pod, declared)
            return
        record = PodRecord(admitted, now, owner_of(pod), base or pod.metadata.name)
        self.pods[record.key] = record
        self.taken.add(record.key)
        self.by_namespace[pod.metadata.namespace][record.key] = record
        if record.owner is not None:
            self.by_owner[record.owner][record.key] = record
        node = pod.spec.node_name
        if pod.status.phase not in {"Succeeded", "Failed"}:
            if node:
                since = _runs_since(pod, now) if declared is not None and declared.recorded else now
                record.pod = changes.running(record.pod, node, since)
                self.by_node[node][record.key] = record
                self.run_for(record, now)
            else:
                record.pod = changes.waiting(record.pod)
            if pod.metadata.deletion_timestamp is not None:
                self.terminate(record, now)
        self.tell(record)

    def _admit(self, pod: Pod) -> Pod | None:
        """The pod with its priority looked up; None where it names a class that is not there.

        One that names none, where there is no default either, is left without: an API server would write 0, and so
        bound the priority of its group, which manifests often say of the group alone.
        """
        if pod.spec.priority is not None:
            return pod
        found = self.model.priority_class(pod.spec.priority_class_name)
        if found is None:
            return None if pod.spec.priority_class_name else pod
        return changes.with_priority(pod, found.value, found.preemption_policy)

    def _refuse(self, pod: Pod, declared: Declared | None) -> None:
        name = pod.spec.priority_class_name
        if declared is not None:
            raise InputError([Fault(declared.place, "spec.priorityClassName", f"there is no PriorityClass {name}")])
        owner = owner_of(pod)
        warning = f"{owner.kind if owner else 'Pod'} {pod.metadata.namespace}/{owner.name if owner else ''}: "
        warning += f"its pods are refused, there is no PriorityClass {name}"
        self.warn(warning)

    def warn(self, warning: str) -> None:
        """Note a warning, once."""
        if warning not in self.warnings:
            self.warnings.append(warning)

    def remove(self, key: str, now: int) -> None:
        """A pod is deleted by its user or with its owner, at once."""
        record = self.pods.get(key)
        if record is None or not record.here:
            return
        self.forget(record)
        if record.evicted:
            record.finished = now
            return
        del self.pods[key]
        if record.bound is not None:
            self.waits[record.queue].append(record.bound - record.arrival)

    def forget(self, record: PodRecord) -> None:
        """The pod does not exist any more."""
        meta = record.pod.metadata
        record.here = False
        self.by_namespace[meta.namespace].pop(record.key, None)
        if record.pod.spec.node_name:
            self.by_node[record.pod.spec.node_name].pop(record.key, None)
        if record.owner is not None:
            self.by_owner[record.owner].pop(record.key, None)
        self.model.apply(Delete(Pod, meta.namespace, meta.name))
        self._touched(record)

    def withdraw(self, record: PodRecord) -> None:
        """A pod that never had a node is deleted by its controller; its name is free again."""
        self.forget(record)
        del self.pods[record.key]
        self.taken.discard(record.key)

    def create(self, pods: Sequence[Pod], now: int, base: str = "") -> None:
        """Controllers create pods."""
        for pod, stamp in zip(pods, creation_stamps(now, pods), strict=True):
            self.create_pod(pod, stamp, now, None, base)

    def run_for(self, record: PodRecord, now: int) -> None:
        """The pod runs from now on: it ends after its duration, if it has one, or fails before that on a bad node or at
        its activeDeadlineSeconds. A recorded one ends as it did.
        """
        if self._ends_as_recorded(record, now):
            return
        duration = seconds(record.pod.metadata, DURATION)
        node = self.model.nodes.get(record.pod.spec.node_name)
        fails = seconds(node.node.metadata, FAILS_PODS) if node is not None and node.node is not None else None
        deadline = record.pod.spec.active_deadline_seconds
        if deadline is not None:
            fails = min(deadline * SECOND, fails) if fails is not None else deadline * SECOND
        if fails is not None and (duration is None or fails < duration):
            self.timeline.add(now + fails, Fail(record.key, record.pod.metadata.uid))
        elif duration is not None:
            self.timeline.add(now + duration, Finish(record.key, record.pod.metadata.uid))

    def _ends_as_recorded(self, record: PodRecord, now: int) -> bool:
        """Whether a log tells when the pod ends, or that it runs on; then so it is."""
        key = f"{record.pod.metadata.namespace}/{record.base}"
        if key in self.recorded.ends:
            end = self.recorded.ends[key]
        elif record.group in self.recorded.members:
            end = self.recorded.members[record.group]
        else:
            return False
        if end is not None:
            self.timeline.add(now + end.after, _ENDINGS[end.how](record.key, record.pod.metadata.uid))
        return True

    def terminate(self, record: PodRecord, now: int) -> None:
        """The pod is told to end; it is gone after its termination."""
        grace = seconds(record.pod.metadata, TERMINATION)
        if grace is None:
            key = f"{record.pod.metadata.namespace}/{record.base}"
            grace = self.recorded.terminations.get(key, self.recorded.termination)
        grace = DEFAULT_TERMINATION if grace is None else grace
        record.pod = changes.terminating(record.pod, now + grace, grace)
        self.timeline.add(now + grace, Gone(record.key, record.pod.metadata.uid))

    def tell(self, record: PodRecord) -> None:
        """The pod is another one than before."""
        self.model.apply(Upsert(record.pod))
        self._touched(record)

    def _touched(self, record: PodRecord) -> None:
        self.dirty_pods[record.pod.metadata.namespace].add(record.key)
        if record.group:
            self.dirty_groups.add(record.group)

    def put_group(self, group: PodGroup, *, words: bool = False) -> None:
        """The PodGroup is new, or another one than before. Of another message alone (`words`) neither the model nor a
        controller is told: nothing depends on it.
        """
        key = f"{group.metadata.namespace}/{group.metadata.name}"
        self.groups[key] = group
        if words:
            return
        self.dirty_groups.add(key)
        self.model.apply(Upsert(group))

    def allocated(self) -> dict[str, int]:
        """What all queues hold together, by resource."""
        total: dict[str, int] = {}
        for record in self.model.queues.values():
            for name, amount in record.allocated.items():
                total[name] = total.get(name, 0) + amount
        return total


def _runs_since(pod: Pod, now: int) -> int:
    """Since when a pod says that it runs, in microseconds after the start; `now` where it does not say."""
    since = timestamp_us(pod.status.start_time)
    return now if since is None else since - START


def uid_of(obj: AnyObject) -> str:
    """A uid that equal input makes equal."""
    meta = obj.metadata
    return ".".join(part for part in (type(obj).__name__.lower(), meta.namespace, meta.name) if part)
