"""Which namespaces may use which Queues, as a table for the API server's own policies.

A policy that has each Queue as a parameter is asked once for each, and fails while the API server has not found the
kind again after a start. So what the Queues say stands in one ConfigMap besides: an entry for each Queue that is not
for all, a line for each thing that its selector asks of a namespace's labels. The policies' expressions read just this
(charts/kbatch/templates/queue/admission.yaml); who makes the ConfigMap is the chart. A Queue that cannot be read any
more keeps the entry that it had, and is for nobody where none is known.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Mapping
from typing import Final

from kbatch.api.names import NAMESPACE_NAME_LABEL
from kbatch.api.objects import LabelSelector, LabelSelectorRequirement, Queue
from kbatch.kube.backoff import Backoff
from kbatch.kube.client import Api
from kbatch.kube.errors import KubeError
from kbatch.kube.informer import Batch
from kbatch.kube.kinds import CONFIGMAPS
from kbatch.kube.writes import as_dict, merge_patch
from kbatch.metrics import ReconcileMetrics
from kbatch.model.events import Delete, Unreadable, Upsert
from operators.queue import FIELD_MANAGER

_log = logging.getLogger(__name__)

MOST_BYTES: Final = 900 * 1024
"""Of the whole table; a ConfigMap holds 1 MiB. Queues beyond are not in it: the scheduler alone keeps them."""
GAP_SECONDS: Final = 0.2
"""Between two writes."""
LOOK_SECONDS: Final = 30.0
"""After so long a table that nothing changed is compared with what stands, which somebody may have edited."""

NOBODY: Final = f"{NAMESPACE_NAME_LABEL} DoesNotExist"
"""What no namespace fulfils, as each has that label."""
_FOR_NOBODY: Final = LabelSelector(
    match_expressions=(LabelSelectorRequirement(key=NAMESPACE_NAME_LABEL, operator="DoesNotExist"),)
)
_KEY: Final = re.compile(r"[A-Za-z0-9._/-]+", re.ASCII).fullmatch
_VALUE: Final = re.compile(r"[A-Za-z0-9._-]*", re.ASCII).fullmatch
"""What can stand in labels. Nothing else is in any namespace's, and it would not fit into a line."""


def entry(selector: LabelSelector | None) -> str:
    """What a selector asks for: lines of `KEY OPERATOR VALUE,VALUE`, all of which must hold; empty if it takes all."""
    if selector is None:
        return ""
    terms: list[tuple[str, str, tuple[str, ...]]]
    terms = [(key, "In", (value,)) for key, value in sorted((selector.match_labels or {}).items())]
    terms += [(one.key, one.operator, one.values or ()) for one in selector.match_expressions or ()]
    lines = [_line(*term) for term in terms]
    return NOBODY if NOBODY in lines else "\n".join(line for line in lines if line)


def _line(key: str, operator: str, values: Iterable[str]) -> str:
    """One thing that is asked for; empty where it holds of any namespace."""
    can_be = _KEY(key) is not None
    match operator:
        case "In":
            asked = _listed(values) if can_be else None
            return NOBODY if asked is None else f"{key} In {asked}"
        case "NotIn":
            asked = _listed(values) if can_be else None
            return "" if asked is None else f"{key} NotIn {asked}"
        case "Exists":
            return f"{key} Exists" if can_be else NOBODY
        case "DoesNotExist":
            return f"{key} DoesNotExist" if can_be else ""
        case _:
            return NOBODY  # as the scheduler reads it


def _listed(values: Iterable[str]) -> str | None:
    """The values that a label can have; None where there are none."""
    found = [value for value in values if _VALUE(value)]
    return ",".join(found) if found else None


def table(selectors: Mapping[str, LabelSelector | None]) -> dict[str, str]:
    """The entries of all Queues that are not for all, by name; as many as there is room for, in the order of names."""
    found: dict[str, str] = {}
    size = 0
    for name in sorted(selectors):
        text = entry(selectors[name])
        size += len(name) + len(text) if text else 0
        if text and size <= MOST_BYTES:
            found[name] = text
    return found


class AccessTable:
    """Keeps the ConfigMap.

    Args:
        api: refuses writes while this process does not lead.
        namespace, name: the ConfigMap's.
        work: metrics.
    """

    def __init__(self, api: Api, namespace: str, name: str, work: ReconcileMetrics) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._work = work
        self._selectors: dict[str, LabelSelector | None] = {}
        self._changed = asyncio.Event()

    def receive(self, batch: Batch) -> None:
        """Take in what an informer saw; other kinds than Queues are passed over."""
        for event in batch.events:
            if isinstance(event, Upsert) and isinstance(event.obj, Queue):
                name, selector = event.obj.metadata.name, event.obj.spec.namespace_selector
                before, self._selectors[name] = self._selectors.get(name), selector
                if selector != before:  # most changes of a Queue are of its status
                    self._changed.set()
            elif isinstance(event, Unreadable) and event.kind is Queue and event.name not in self._selectors:
                self._selectors[event.name] = _FOR_NOBODY
                self._changed.set()
            elif isinstance(event, Delete) and event.kind is Queue and self._selectors.pop(event.name, None):
                self._changed.set()

    async def run(self) -> None:
        """Keep it for ever, from when all Queues are known."""
        backoff = Backoff()
        while True:
            self._changed.clear()
            try:
                await self.round()
            except KubeError as error:
                self._work.writes.labels("ConfigMap", "failed").inc()
                _log.warning("the table of who may use which Queue (ConfigMap %s): %s", self._name, error)
                await asyncio.sleep(backoff.next())
                continue
            backoff.reset()
            await asyncio.sleep(GAP_SECONDS)
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def round(self) -> None:
        """Compare the table once with what stands, and write what differs.

        Raises:
            KubeError: it could not be read or written.
        """
        path = CONFIGMAPS.path(self._namespace, self._name)
        standing = as_dict(await self._api.request("GET", path)).get("data") or {}
        wanted = table(self._selectors)
        changes: dict[str, str | None] = {name: text for name, text in wanted.items() if standing.get(name) != text}
        changes |= dict.fromkeys(standing.keys() - wanted.keys())
        if not changes:
            return
        await merge_patch(
            self._api, CONFIGMAPS, namespace=self._namespace, name=self._name, patch={"data": changes},
            field_manager=FIELD_MANAGER,
        )  # fmt: skip
        self._work.writes.labels("ConfigMap", "ok").inc()
