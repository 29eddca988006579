"""Recorded members that came only after their group's entry into its queue: they come as long after it again."""

from __future__ import annotations

from collections import defaultdict

from msgspec.structs import replace

from kbatch.simulator.manifests import Declared
from kbatch.simulator.store import Store
from kbatch.simulator.timeline import Arrival, Rested


class LateMembers:
    """Pods of the input that wait for their groups, and members of templates that are made with a delay."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[str, list[Declared]] = defaultdict(list)
        """By group those that come after its next entry into its queue."""
        self._called: dict[str, dict[str, Declared]] = {}
        """By group, then by their keys, those that come, or came, after its last entry."""
        self._made_at: dict[str, int] = {}
        """By group when its templates' members may be made, since its last entry."""

    def wait(self, declared: Declared) -> None:
        """The pod comes after its group's entry into its queue."""
        self._waiting[declared.awaits].append(declared)

    def call(self, group: str, now: int) -> None:
        """The group is in its queue, or further."""
        delay = self._store.recorded.delays.get(group)
        if delay and group not in self._made_at:
            self._made_at[group] = now + delay
            self._store.timeline.add(now + delay, Rested(group))
        for declared in self._waiting.pop(group, ()):
            self._called.setdefault(group, {})[_key(declared)] = declared
            self._store.timeline.add(now + declared.arrival, Arrival(declared))

    def delayed(self, group: str, now: int) -> bool:
        """Whether it is too early to make members for the group."""
        return self._made_at.get(group, now) > now

    def send_back(self, group: str) -> None:
        """The group waits for its turn again: so do its late pods without a node."""
        self._made_at.pop(group, None)
        for key, declared in self._called.pop(group, {}).items():
            record = self._store.pods.get(key)
            if record is None or record.pod.spec.scheduling_gates:
                self._waiting[group].append(declared)
            elif record.here and not record.pod.spec.node_name:
                self._store.withdraw(record)
                self._waiting[group].append(declared)

    def comes(self, declared: Declared, now: int) -> bool:
        """Whether a pod that was called comes now: its group was not sent back, and it would not be gone by now. One
        that is there already, with a gate, loses it.
        """
        key, called = _key(declared), self._called.get(declared.awaits, {})
        record = self._store.pods.get(key)
        if key not in called or (declared.departure is not None and now >= declared.departure):
            return False
        if record is not None and record.pod.spec.scheduling_gates:
            del called[key]
            record.pod = replace(record.pod, spec=replace(record.pod.spec, scheduling_gates=None))
            self._store.tell(record)
        return record is None


def _key(declared: Declared) -> str:
    return f"{declared.obj.metadata.namespace}/{declared.obj.metadata.name}"
