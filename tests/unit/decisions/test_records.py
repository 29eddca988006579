"""What stands in a log can be read from it again."""

from __future__ import annotations

import json

import msgspec
import pytest

from kbatch.api.objects import Node, Pod, Queue
from kbatch.api.reasons import QueueNotFound
from kbatch.decisions.records import (
    KINDS,
    Cycle,
    Delta,
    End,
    Gone,
    LogError,
    Mark,
    Marked,
    PolicyText,
    Put,
    decode_line,
    encode_line,
    read_delta,
    write_decision,
    write_delta,
)
from kbatch.engine import Bind, Transaction, Verdict
from kbatch.model.events import Delete, Unreadable, Upsert
from tests.unit.scheduler.fakes import group, node, pod, queue


@pytest.mark.parametrize(
    "delta",
    [
        Upsert(pod("a", node="n1")),
        Upsert(node("n1")),
        Upsert(group("g", minimum=3)),
        Upsert(queue("q")),
        *(Upsert(msgspec.convert({"metadata": {"name": "x"}}, kind)) for kind in KINDS.values()),
        Delete(Pod, "ns", "a"),
        Delete(Node, "", "n1"),
        Unreadable(Pod, "ns", "a", "uid-a", "n1", "spec.priority: expected int"),
        Unreadable(Queue, "", "q", "", "", "odd"),
        Mark("assume", "ns/a", "uid-a", "n1"),
        Mark("forget", "ns/a", "uid-a"),
        Mark("evicting", "ns/a", "uid-a"),
        Mark("not_evicting", "ns/a", "uid-a"),
    ],
    ids=str,
)
def test_every_change_comes_back_as_it_was(delta: Delta) -> None:
    line = encode_line(Cycle(number=1, now=5, deltas=(write_delta(delta),)))
    read = decode_line(line)
    assert isinstance(read, Cycle)
    assert [read_delta(one) for one in read.deltas] == [delta]


def test_a_cycle_comes_back_as_it_was() -> None:
    decision = write_decision(Transaction("ns/g", binds=(Bind("ns/a", "uid-a", "n1"),)))
    cycle = Cycle(
        number=7, now=1234, fresh=True, cut=True, failed="TypeError: x", policy=PolicyText("actions: allocate", "x"),
        next_wake=99, decisions=(msgspec.Raw(decision),),
    )  # fmt: skip
    read = decode_line(encode_line(cycle))
    assert encode_line(read) == encode_line(cycle)
    assert isinstance(read, Cycle)
    assert bytes(read.decisions[0]) == decision


def test_a_decision_says_what_a_person_would_read() -> None:
    verdict = Verdict("ns/g", shadow=False, enqueued=True, scheduled=False, reason=QueueNotFound("missing"), job="ns/g")
    said = json.loads(write_decision(verdict))["verdict"]
    assert said["group"] == "ns/g"
    assert said["reason"] == {"code": "QueueNotFound", "message": QueueNotFound("missing").message}


@pytest.mark.parametrize("line", [b"", b"{}", b"nonsense", b'{"record":"unknown"}', b'{"record":"cycle"}'])
def test_what_is_no_record_is_said(line: bytes) -> None:
    with pytest.raises(LogError, match="no record"):
        decode_line(line)


def test_unknown_kinds_and_marks_are_said() -> None:
    for record in (Put("Spaceship", msgspec.Raw(b"{}")), Gone("Spaceship", "x"), Marked("explode", "ns/a", "u")):
        with pytest.raises(LogError, match="unknown"):
            read_delta(record)
    with pytest.raises(LogError, match="a Pod cannot be read"):
        read_delta(Put("Pod", msgspec.Raw(b'{"metadata": 3}')))


@pytest.mark.parametrize(
    ("kind", "rest", "field"),
    [
        ("PodGroup", b'{"metadata":{"name":"a","creationTimestamp":"%s"}}', "metadata.creationTimestamp"),
        ("Pod", b'{"metadata":{"name":"a","deletionTimestamp":"%s"}}', "metadata.deletionTimestamp"),
        ("Pod", b'{"metadata":{"name":"a"},"status":{"startTime":"%s"}}', "status.startTime"),
        (
            "Pod",
            b'{"metadata":{"name":"a"},"status":{"conditions":[{"type":"Ready","status":"True","lastTransitionTime":"%s"}]}}',
            "status.conditions (Ready): lastTransitionTime",
        ),
    ],
)
def test_a_time_that_is_none_is_said(kind: str, rest: bytes, field: str) -> None:
    read_delta(Put(kind, msgspec.Raw(rest % b"2026-01-01T00:00:00Z")))
    with pytest.raises(LogError) as caught:
        read_delta(Put(kind, msgspec.Raw(rest % b"9999-99-99T00:00:00Z")))
    assert str(caught.value) == f"a {kind} cannot be read: {field}: '9999-99-99T00:00:00Z' is no time"


def test_the_end_says_why() -> None:
    assert decode_line(encode_line(End("full"))) == End("full")
