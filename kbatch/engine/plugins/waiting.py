"""How many pods of each class wait for a node: kept from cycle to cycle, and brought up to date from what changed."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final, TypeAlias

from kbatch.engine.plugins.terms import Who, namespace_labels
from kbatch.model.cluster import ClusterModel
from kbatch.model.nodes import NodeTable
from kbatch.model.tasks import TaskClass, counted

_KEY: Final = "waiting"

_Counts: TypeAlias = dict[TaskClass, int]


class Waiting:
    """The waiting pods of all groups by class, and under each of their labels; under None all of them."""

    def __init__(self, model: ClusterModel) -> None:
        self._changes = model.changes
        self._position: int | None = None
        self._of_job: dict[str, _Counts] = {}
        self._by_label: dict[tuple[str, str] | None, _Counts] = {None: {}}
        self._namespace_labels = partial(namespace_labels, model)
        self._model = model

    def of(self, who: Who) -> int:
        """How many of the pods that wait for a node are meant."""
        self._catch_up()
        near = self._by_label.get(who.anchor, {})
        return sum(count for cls, count in near.items() if who.match(cls, self._namespace_labels))

    def _catch_up(self) -> None:
        live = self._model.live
        changed: Iterable[str] | None = None
        if self._position is not None:
            changed = self._changes.since(self._position)
        self._position = self._changes.position
        for key in dict.fromkeys(changed) if changed is not None else (self._of_job.keys() | live.keys()):
            job = live.get(key)
            now = counted(job.waiting) if job is not None else {}
            was = self._of_job.pop(key, {})
            if now:
                self._of_job[key] = now
            for cls in {**was, **now}:
                amount = now.get(cls, 0) - was.get(cls, 0)
                if amount:
                    self._add(cls, amount)

    def _add(self, cls: TaskClass, amount: int) -> None:
        for label in (None, *cls.labels.items()):
            counts = self._by_label.setdefault(label, {})
            count = counts.get(cls, 0) + amount
            if count:
                counts[cls] = count
            else:
                del counts[cls]
                if not counts and label is not None:
                    del self._by_label[label]


def waiting_of(model: ClusterModel, table: NodeTable) -> Waiting:
    """The pods that wait, as the model has them now."""
    found: Waiting | None = table.static_cache.get(_KEY)
    if found is None:
        found = table.static_cache[_KEY] = Waiting(model)
    return found
