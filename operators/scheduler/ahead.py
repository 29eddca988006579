"""What is known of nodes ahead of the model, for the last look before a bind is sent.

A cycle decides on the cluster as it was when it began, and what it decides may wait for seconds. Meanwhile others bind
pods to the same nodes, another scheduler above all: nobody refuses our bind then, and the node has more pods than room.
While a cycle holds the model, and while a crowd of events waits its turn, the model says nothing of that.

So two things are kept here. While the model lags: what will stand on nodes besides what it says. From one look of a
cycle to the next and beyond: the pods that came to nodes although this process did not send them there, strangers. What
a pod asks for is read only of strangers, and sums are made only for nodes on which something changed unexpectedly.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from kbatch.api.objects import Node, Pod
from kbatch.kube.kinds import key_of
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Event, Unreadable, Upsert
from kbatch.model.nodes import read_allocatable
from kbatch.model.requests import as_held, effective_request
from kbatch.model.selectors import host_ports, ports_conflict
from kbatch.model.tasks import Task
from kbatch.resources import PODS, QuantityError, Resources

_ENDED: Final = frozenset({"Succeeded", "Failed"})

MOST_STRANGERS: Final = 10_000
"""On so many nodes strangers are remembered. Their use is counted all the same; only their ports are not looked at."""


class _Coming(NamedTuple):
    """A pod that will count on a node, with its uid and what it needs there."""

    uid: str
    needs: tuple[tuple[str, int], ...]


class _Stranger(NamedTuple):
    """A pod that came to a node by others; `look`: the number of the last look that a cycle had taken by then."""

    look: int
    pod: Pod


class Ahead:
    """Keeps what the `Cache` hears and does before the model knows of it.

    Attributes:
        looks: how many cycles have taken their look so far. Before the first nothing is decided, and nothing kept.
    """

    def __init__(self, model: ClusterModel) -> None:
        self.looks = 0
        self._model = model
        self._coming: dict[str, dict[str, _Coming]] = {}
        """By node and the pod's key."""
        self._where: dict[str, str] = {}
        """By the pod's key the node in `_coming`."""
        self._left: dict[str, str] = {}
        """Uids of pods, by key, that do not count any more where the model has them."""
        self._nodes: dict[str, Node | None] = {}
        """Nodes that came, went or changed."""
        self._closed: set[str] = set()
        """Nodes on which a pod stands that cannot be read."""
        self._touched: set[str] = set()
        """Nodes of which a sum must be made: something is there that no decision knew of."""
        self._strangers: dict[str, dict[str, _Stranger]] = {}
        """By node and the pod's key."""

    # --- what is heard and done ---------------------------------------------------------------------------------------

    def look(self) -> None:
        """A cycle begins, and decides on what the model says now."""
        self.looks += 1
        if len(self._strangers) > MOST_STRANGERS:
            self._strangers.clear()

    def heard(self, events: Iterable[Event], *, lags: bool) -> None:
        """These events arrive. `lags`: the model is told of them later; else at once, after this."""
        if not self.looks:
            return
        for event in events:
            if isinstance(event, Upsert):
                obj = event.obj
                if isinstance(obj, Pod):
                    self._pod(obj, lags)
                elif lags and isinstance(obj, Node):
                    self._node(obj.metadata.name, obj)
            elif event.kind is Pod:
                self._pod_gone(event, lags)
            elif lags and event.kind is Node:
                self._node(event.name, None)

    def assumed(self, key: str, uid: str, node: str) -> None:
        """A bind of this process is under way, of which the model is told later."""
        task = self._model.tasks.get(key)
        if task is None or task.uid != uid or task.node or key in self._where or self._left.get(key) == uid:
            return  # as the model will say, too
        self._come(key, node, _Coming(uid, task.cls.needs))

    def forgot(self, key: str, uid: str) -> None:
        """A bind will not be sent, or has failed; the model is told of it later."""
        node = self._where.get(key)
        if node is not None and self._coming[node][key].uid == uid:
            self._drop(key)
            self._touched.add(node)
            return
        task = self._model.tasks.get(key)
        if task is not None and task.uid == uid and task.assumed:
            self._left[key] = uid
            self._touched.add(task.node)

    def caught_up(self) -> None:
        """The model knows all that was heard and done."""
        for some in (self._coming, self._where, self._left, self._nodes, self._closed, self._touched):
            some.clear()

    # --- what is asked ------------------------------------------------------------------------------------------------

    def node(self, name: str) -> Node | None:
        """The node as it was told of last; None where it is gone."""
        if name in self._nodes:
            return self._nodes[name]
        record = self._model.nodes.get(name)
        return record.node if record is not None else None

    def obstacle(self, task: Task, name: str, look: int) -> str | None:
        """Why a pod has no room any more on the node that it is to be bound to; None where it has.

        Args:
            task: the pod; its bind is under way, and counted.
            name: the node.
            look: the number of the look by which it was decided.
        """
        record = self._model.nodes.get(name)
        if record is None:
            return None
        if record.closed or name in self._closed:
            return "has a pod of which nobody can read what it uses"
        used, allocatable = record.used, record.allocatable
        if name in self._touched:
            used = self.used(name)
            node = self._nodes.get(name)
            if node is not None:
                try:
                    allocatable = read_allocatable(node)
                except QuantityError:
                    return "cannot be read any more"
        for dimension, _ in task.cls.needs:
            if used.get(dimension, 0) > allocatable.get(dimension, 0):
                return f"has no {dimension} left"
        strangers = self._strangers.get(name)
        return self._obstructs(task, strangers, look) if strangers else None

    def used(self, name: str) -> Resources:
        """What will be in use on a node when the model knows all; as exact as the model, but for resizes in place."""
        record = self._model.nodes.get(name)
        found: Resources = dict(record.used) if record is not None else {}
        tasks = self._model.tasks
        for key, coming in self._coming.get(name, {}).items():
            if not _counts(tasks.get(key), name, coming.uid):
                for dimension, amount in coming.needs:
                    found[dimension] = found.get(dimension, 0) + amount
        for key in record.tasks.keys() & self._left.keys() if record is not None else ():
            task = tasks[key]
            if _counts(task, name, self._left[key]):
                for dimension, amount in task.cls.needs:
                    found[dimension] -= amount
        return {dimension: amount for dimension, amount in found.items() if amount}

    # --- inside -------------------------------------------------------------------------------------------------------

    def _pod(self, pod: Pod, lags: bool) -> None:
        meta, node = pod.metadata, pod.spec.node_name
        key = key_of(meta.namespace, meta.name)
        task = self._model.tasks.get(key)
        same = task is None or task.uid == meta.uid
        if pod.status.phase in _ENDED:
            node = ""
            if lags:
                self._left[key] = meta.uid
        elif not node and same:
            return  # it waits, or a bind is under way of which only this process knows
        stands = task.node if task is not None and not task.terminal else ""
        known = same and node == stands
        at = self._where.get(key, "") if self._where else ""
        if known and not at:  # nearly always
            if node and self._left:
                self._left.pop(key, None)  # it was given up, and bound all the same
            return
        if at:
            if at == node and self._coming[at][key].uid == meta.uid:
                return  # as it was to be
            self._drop(key)
            self._forget_stranger(key, at)
        if stands and not known:
            self._forget_stranger(key, stands)
            if lags and task is not None:
                self._left[key] = task.uid
        if node and not known:
            self._strangers.setdefault(node, {})[key] = _Stranger(self.looks, pod)
            if lags:
                self._touched.add(node)
                try:
                    request = effective_request(as_held(pod))
                except QuantityError:
                    self._closed.add(node)
                    return
                needs = [(name, amount) for name, amount in request.items() if amount > 0]
                self._come(key, node, _Coming(meta.uid, (*needs, (PODS, 1))))

    def _pod_gone(self, event: Delete | Unreadable, lags: bool) -> None:
        key = key_of(event.namespace, event.name)
        task = self._model.tasks.get(key)
        node = task.node if task is not None else ""
        if lags:
            if task is not None:
                self._left[key] = task.uid
            at = self._drop(key)
            self._forget_stranger(key, at)
            if isinstance(event, Unreadable) and (event.node_name or at or node):
                self._closed.add(event.node_name or at or node)
        self._forget_stranger(key, node)

    def _node(self, name: str, node: Node | None) -> None:
        self._nodes[name] = node
        self._touched.add(name)

    def _come(self, key: str, node: str, coming: _Coming) -> None:
        there = self._coming.get(node)
        if there is None:
            there = self._coming[node] = {}
        there[key] = coming
        self._where[key] = node

    def _drop(self, key: str) -> str:
        """It does not come; the node that it was to come to, or an empty text."""
        node = self._where.pop(key, "")
        if node:
            del self._coming[node][key]
        return node

    def _forget_stranger(self, key: str, node: str) -> None:
        there = self._strangers.get(node)
        if there is not None:
            there.pop(key, None)
            if not there:
                del self._strangers[node]

    def _obstructs(self, task: Task, strangers: dict[str, _Stranger], look: int) -> str | None:
        """What one of those who came since has taken besides room: a host port, or the node's being for one group."""
        ports = host_ports(task.cls.spec)
        tasks, members = self._model.tasks, self._model.members
        mine = members.get(task.job)
        for key, stranger in strangers.items():
            if stranger.look < look or key == task.key:
                continue
            if ports and ports_conflict(ports, host_ports(stranger.pod.spec)):
                return f"has a host port taken by {key}"
            other = tasks.get(key)
            theirs = members.get(other.job) if other is not None and other.job != task.job else None
            if other is None or theirs is None or mine is None:
                continue
            if mine.exclusive(task.role) or theirs.exclusive(other.role):
                return f"has {key}, and one of the two is to stand alone"
        return None


def _counts(task: Task | None, node: str, uid: str) -> bool:
    """Whether the model counts this very pod there."""
    return task is not None and task.uid == uid and task.node == node and not task.terminal
