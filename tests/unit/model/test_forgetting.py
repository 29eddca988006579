"""What the model and the cycles' memo keep follows from what is alive, however much has come and gone."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final
from weakref import WeakValueDictionary

import msgspec
import numpy as np
import pytest

from kbatch.engine.carryover import backlog
from kbatch.model import jobs, journal, node_index, tasks
from tests.bench.churn import Churn

LIVE: Final = 50
_CONTAINERS: Final = (dict, list, set, frozenset, tuple, deque, WeakValueDictionary)


def containers(root: object, name: str) -> Iterator[tuple[str, int]]:
    """Every container that is reachable from an object through attributes and items, by its way there, with its size.

    API objects are left out: they are what the API server says. Items of one container share one way.
    """
    seen: set[int] = set()
    work: list[tuple[str, Any]] = [(name, root)]
    while work:
        way, found = work.pop()
        if id(found) in seen or found is None or isinstance(found, str | bytes | int | float | type | msgspec.Struct):
            continue
        seen.add(id(found))
        if isinstance(found, _CONTAINERS):
            yield way, len(found)
            if isinstance(found, Mapping):
                work += [(f"{way}.key", key) for key in found]
                found = found.values()
            work += [(f"{way}[]", each) for each in found]
        elif isinstance(found, np.ndarray):
            yield way, found.size
        elif type(found).__module__.startswith("kbatch."):
            work += [(f"{way}.{attribute}", value) for attribute, value in _attributes(found)]


def _attributes(found: object) -> Iterator[tuple[str, object]]:
    yield from getattr(found, "__dict__", {}).items()
    for kind in type(found).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if slot != "__weakref__" and hasattr(found, slot):
                yield slot, getattr(found, slot)


def _sizes(churn: Churn) -> dict[str, tuple[int, int]]:
    """By way: the size of the largest container, and of all together."""
    found: dict[str, tuple[int, int]] = {}
    for name, root in (("model", churn.model), ("memo", churn.memo), ("state", churn.state)):
        for way, size in containers(root, name):
            largest, together = found.get(way, (0, 0))
            found[way] = max(largest, size), together + size
    return found


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """What may be out of use before it is forgotten is little, as the cluster is."""
    monkeypatch.setattr(tasks, "_UNUSED", LIVE)
    monkeypatch.setattr(tasks, "_IDLE_KEYS", 2)
    monkeypatch.setattr(node_index, "_FORGOTTEN", LIVE)
    monkeypatch.setattr(journal, "_MOST", LIVE)
    monkeypatch.setattr(jobs, "_CHANGES", LIVE)


@pytest.mark.usefixtures("small")
def test_what_is_kept_follows_from_what_is_alive() -> None:
    churn = Churn(LIVE, nodes=4, every=200)
    for number in range(3000):
        churn.step(number, others=number < 1000)
        if number % 200 == 199:
            churn.decide(number)
    found = _sizes(churn)
    assert found["model._tasks"] == (LIVE, LIVE)
    # A pod has a handful of selectors, dimensions and answers of nodes: so much for each, and in all.
    assert {way: sizes for way, sizes in found.items() if sizes[0] > 16 * LIVE or sizes[1] > 60 * LIVE} == {}
    churn.model.validate()


KEPT: Final = {
    "memo.idle": 3,
    "model._deserved": 2,
    "model._groups._others.by_kind": 3,  # each kind that was ever seen
    "model._groups._selections._by_content": 1,  # that of a pod that chooses nothing
    "model._upserts": 5,
    "model._usable._last._of": 3,
    "model._usable._made": 3,
    "model._usable._made[]": 1,
    "model._usable._made[].reach": 1,
    "model._usable._offer": 3,
    "model._usable._offer[].reach": 1,
    "model._usable._table.static_cache": 3,  # of that selection
    "model._usable._table.static_cache.key": 4,
    "model._usable._table.static_cache[]": 4,
    "model._usable._table.taint_sets": 1,  # no taints
}
"""What an empty model has in its containers, at most."""


@pytest.mark.usefixtures("small")
def test_nothing_is_kept_of_what_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "_IDLE_KEYS", 0)
    churn = Churn(LIVE, nodes=4, every=100)
    for number in range(400):
        churn.step(number, others=True)
        if number % 100 == 99:
            churn.decide(number)
    churn.end(400)
    churn.decide(400)
    churn.decide(401)
    left = {way: sizes[1] for way, sizes in _sizes(churn).items() if sizes[1] > KEPT.get(way, 0)}
    assert {way: size for way, size in left.items() if size > 2 * backlog.FIRST or not _of_backlog(way)} == {}


def _of_backlog(way: str) -> bool:
    """Whether this is a column of the backlog, or of the keys of changed groups: both keep some room."""
    kept = {
        "model._groups.changes._keys", "model._nodes.changes._keys", "model._groups.queues[].changes._keys",
        "model.classes.coupling_changes._keys",
    }  # fmt: skip
    return way.startswith("memo.backlog") or way in kept


def test_a_cycle_leaves_nothing_to_the_garbage_collector() -> None:
    churn = Churn(LIVE, nodes=4)
    for number in range(LIVE):  # the first of them has anti-affinity and spread
        churn.step(number, others=False)
    gc.freeze()
    gc.disable()
    try:
        assert churn.model.classes.selected_keys
        assert churn.decide(LIVE)
        assert gc.collect() == 0
    finally:
        gc.enable()
        gc.unfreeze()
