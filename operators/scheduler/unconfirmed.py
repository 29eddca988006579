"""Groups of which binds or evictions are under way, and which of them are worth a look.

That is, those that something was heard of: there may be thousands of them, and a watch confirms some hundred pods a
second, mostly of few groups at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from kbatch.api.objects import Pod, PodGroup
from kbatch.engine import Verdict
from kbatch.kube.kinds import key_of
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Event, Upsert
from operators.scheduler.status_diff import Wanted

WHOLE_SECONDS: Final = 0.5
"""All of them are looked at so often: what changed may be nothing that a watch tells, such as that binds fail."""

WHOLE_SHARE: Final = 20
"""But where there are thousands, not sooner than so many times what the last such look took."""


class Held(NamedTuple):
    """What is true of a group once that is confirmed, and the verdict that says so."""

    wanted: Wanted
    verdict: Verdict


class Unconfirmed:
    """Holds one status of each group."""

    def __init__(self, model: ClusterModel) -> None:
        self._model = model
        self._groups: dict[str, Held] = {}
        self._leaving: dict[str, None] = {}
        """Those of which pods are being evicted: few, and that it was given up is nothing that a watch tells."""
        self._touched: dict[str, None] = {}
        """Those of which something was heard since the last look, in that order."""
        self._whole_at = 0.0
        self._whole_began: float | None = None

    def __len__(self) -> int:
        return len(self._groups)

    def __contains__(self, key: str) -> bool:
        return key in self._groups

    def put(self, key: str, wanted: Wanted, verdict: Verdict) -> None:
        """This is true of a group when what is under way is confirmed."""
        self._groups[key] = Held(wanted, verdict)
        self._touched[key] = None
        if not verdict.scheduled:
            self._leaving[key] = None

    def discard(self, key: str) -> None:
        """Nothing of it is waited for any more."""
        self._groups.pop(key, None)
        self._leaving.pop(key, None)
        self._touched.pop(key, None)

    def heard(self, events: Iterable[Event]) -> None:
        """The model knows of these events."""
        if not self._groups:
            return
        tasks, groups = self._model.tasks, self._groups
        for event in events:
            if not isinstance(event, Upsert):
                continue
            meta = event.obj.metadata
            key = key_of(meta.namespace, meta.name)
            if isinstance(event.obj, Pod):
                task = tasks.get(key)
                key = task.job if task is not None else ""
            elif not isinstance(event.obj, PodGroup):
                continue
            if key in groups:
                self._touched[key] = None

    def due(self, now: float, *, whole: bool = False) -> list[tuple[str, Held]]:
        """Those to be looked at now, at a time of a monotonic clock; `whole`: all of them."""
        if whole or now >= self._whole_at:
            self._whole_began = now
            keys: Collection[str] = self._groups
        else:
            keys = {**self._leaving, **self._touched}
        self._touched = {}
        return [(key, self._groups[key]) for key in keys]

    def looked(self, now: float) -> None:
        """That look is over."""
        if self._whole_began is not None:
            self._whole_at = now + max(WHOLE_SECONDS, WHOLE_SHARE * (now - self._whole_began))
            self._whole_began = None
