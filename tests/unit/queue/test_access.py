"""The table of who may use which Queue: what it says of selectors, and when it is written."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from kbatch.api.names import NAMESPACE_NAME_LABEL
from kbatch.api.objects import LabelSelector, LabelSelectorRequirement, Metadata, Queue, QueueSpec
from kbatch.kube.errors import ApiError
from kbatch.kube.informer import Batch
from kbatch.metrics import ReconcileMetrics
from kbatch.model.events import Delete, Event, Unreadable, Upsert
from kbatch.model.selectors import selector_matches
from operators.queue.access import MOST_BYTES, NOBODY, AccessTable, entry, table

PATH = "/api/v1/namespaces/own/configmaps/access"


def selects(text: str, labels: Mapping[str, str]) -> bool:
    """What the policies' expressions make of an entry, written as they are."""
    for term in (line.split(" ") for line in text.split("\n")):
        match term[1]:
            case "In":
                holds = term[0] in labels and labels[term[0]] in term[2].split(",")
            case "NotIn":
                holds = not (term[0] in labels and labels[term[0]] in term[2].split(","))
            case operator:
                holds = (operator == "Exists") == (term[0] in labels)
        if not holds:
            return False
    return True


def requirement(key: str, operator: str, *values: str) -> LabelSelectorRequirement:
    return LabelSelectorRequirement(key=key, operator=operator, values=values or None)


KEYS = st.sampled_from(["team", "a/b", "x", "no key", "new\nline", ""])
VALUES = st.sampled_from(["", "a", "b", "a.b-c_D", "a,b", "a b", "a\nb"])
SELECTORS = st.builds(
    LabelSelector,
    match_labels=st.none() | st.dictionaries(KEYS, VALUES, max_size=2),
    match_expressions=st.none()
    | st.lists(
        st.builds(requirement, KEYS, st.sampled_from(["Exists", "DoesNotExist"]))
        | st.tuples(KEYS, st.sampled_from(["In", "NotIn"]), st.lists(VALUES, min_size=1, max_size=3)).map(
            lambda one: requirement(one[0], one[1], *one[2])
        ),
        max_size=3,
    ).map(tuple),
)
# Whatever a selector asks for, these are all that a namespace can have.
LABELS = st.dictionaries(st.sampled_from(["team", "a/b", "x"]), st.sampled_from(["", "a", "b", "a.b-c_D"]))


@given(SELECTORS, LABELS)
def test_an_entry_selects_what_the_scheduler_says_that_the_selector_does(
    selector: LabelSelector, labels: dict[str, str]
) -> None:
    labels = {NAMESPACE_NAME_LABEL: "n", **labels}
    text = entry(selector)
    assert (not text or selects(text, labels)) == selector_matches(selector, labels)


def test_what_stands_in_an_entry() -> None:
    selector = LabelSelector(
        match_labels={"team": "lab"},
        match_expressions=(requirement("env", "NotIn", "a", "b"), requirement("gpu", "Exists")),
    )
    assert entry(selector) == "team In lab\nenv NotIn a,b\ngpu Exists"
    assert entry(None) == entry(LabelSelector()) == ""
    # What no namespace can be labelled with is asked for by nobody.
    assert entry(LabelSelector(match_labels={"team": "no label", "x": "y"})) == NOBODY
    assert entry(LabelSelector(match_expressions=(requirement("team", "NotIn", "no label"),))) == ""
    assert entry(LabelSelector(match_expressions=(requirement("team", "Matches", "x"),))) == NOBODY


def test_a_table_never_outgrows_its_object() -> None:
    wide = LabelSelector(match_expressions=(requirement("team", "In", *(f"{'v' * 60}{n}" for n in range(64))),))
    many = {f"queue-{number:04}": wide for number in range(400)}
    found = table({**many, "a-small-one": LabelSelector(match_labels={"a": "b"}), "for-all": None})
    assert 150 < len(found) < 400
    assert "for-all" not in found
    assert list(found)[:2] == ["a-small-one", "queue-0000"]
    assert sum(len(name) + len(text) for name, text in found.items()) <= MOST_BYTES


class FakeApi:
    """One ConfigMap."""

    def __init__(self) -> None:
        self.data: dict[str, str] | None = None
        self.patches: list[dict[str, Any]] = []
        self.reads = 0
        self.refusal: ApiError | None = None

    async def request(self, method: str, path: str, *, body: Any = None, **_: Any) -> bytes:
        assert path == PATH
        if self.refusal is not None:
            raise self.refusal
        self.reads += method == "GET"
        if method == "PATCH":
            assert body.keys() == {"data"}
            self.patches.append(body["data"])
            data = {**(self.data or {}), **body["data"]}
            self.data = {name: text for name, text in data.items() if text is not None}
        return json.dumps({"data": self.data} if self.data is not None else {}).encode()

    def stream(self, *_: Any, **__: Any) -> AbstractAsyncContextManager[AsyncIterator[list[bytes]]]:
        raise NotImplementedError


class Rig:
    def __init__(self) -> None:
        self.api = FakeApi()
        self.registry = CollectorRegistry()
        self.table = AccessTable(self.api, "own", "access", ReconcileMetrics(self.registry))

    def see(self, *events: Event) -> None:
        self.table.receive(Batch(events, complete=True))


@pytest.fixture
def rig() -> Rig:
    return Rig()


def queue(name: str, **labels: str) -> Upsert:
    selector = LabelSelector(match_labels=labels) if labels else None
    return Upsert(Queue(metadata=Metadata(name=name), spec=QueueSpec(namespace_selector=selector)))


def unreadable(name: str) -> Unreadable:
    return Unreadable(Queue, "", name, "u", "", "bad")


async def test_the_table_follows_the_queues_and_is_written_only_where_it_differs(rig: Rig) -> None:
    rig.see(queue("lab", team="lab"), queue("shop", team="shop"), queue("all"))
    await rig.table.round()
    await rig.table.round()
    assert rig.api.patches == [{"lab": "team In lab", "shop": "team In shop"}]
    rig.see(queue("lab", team="x"), Delete(Queue, "", "shop"))
    await rig.table.round()
    assert rig.api.patches[1:] == [{"lab": "team In x", "shop": None}]


async def test_a_queue_that_cannot_be_read_is_open_to_no_more_than_before(rig: Rig) -> None:
    """The scheduler keeps out of it whoever names it."""
    rig.see(queue("lab", team="lab"), queue("all"))
    rig.see(*(unreadable(name) for name in ("lab", "all", "unknown")))
    await rig.table.round()
    assert rig.api.data == {"lab": "team In lab", "unknown": NOBODY}
    rig.see(queue("unknown", team="shop"), queue("lab"), unreadable("lab"))
    await rig.table.round()
    assert rig.api.data == {"unknown": "team In shop"}
    # Another one by the same name is not the one that was known.
    rig.see(Delete(Queue, "", "unknown"), unreadable("unknown"))
    await rig.table.round()
    assert rig.api.data == {"unknown": NOBODY}
    rig.see(Delete(Queue, "", "unknown"))
    await rig.table.round()
    assert rig.api.data == {}


async def test_what_somebody_else_wrote_is_mended(rig: Rig) -> None:
    rig.see(queue("lab", team="lab"))
    rig.api.data = {"lab": "team In shop", "strange": "x Exists"}
    await rig.table.round()
    assert rig.api.data == {"lab": "team In lab"}


async def test_a_table_that_is_not_there_is_said_and_tried_again(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.see(queue("lab", team="lab"))
    rig.api.refusal = ApiError(404, "NotFound", "no such ConfigMap")
    with pytest.raises(ApiError):
        await rig.table.round()
    rig.api.refusal = None
    await rig.table.round()
    assert rig.api.data == {"lab": "team In lab"}


async def test_what_changes_of_a_queue_besides_its_selector_is_no_reason_to_look(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a busy queue the status changes each second."""
    monkeypatch.setattr("operators.queue.access.GAP_SECONDS", 0.0)

    async def settled() -> int:
        for _ in range(20):
            await asyncio.sleep(0)
        return rig.api.reads

    task = asyncio.create_task(rig.table.run())
    assert await settled() == 1
    rig.see(queue("lab", team="lab"), queue("all"))
    assert await settled() == 2
    rig.see(queue("lab", team="lab"))
    rig.see(queue("all"))
    rig.see(Delete(Queue, "", "all"))
    assert await settled() == 2
    rig.see(Delete(Queue, "", "lab"))
    assert await settled() == 3
    rig.see(unreadable("lab"))
    assert await settled() == 4
    rig.see(unreadable("lab"))
    assert await settled() == 4
    task.cancel()
