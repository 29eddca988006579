"""Deciding a recorded log again, cycle by cycle, and comparing byte for byte; logs in milliseconds are converted."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from kbatch.api.configuration import ConfigurationError, parse
from kbatch.api.objects import AnyObject, PersistentVolumeClaim
from kbatch.decisions.records import (
    FORMAT,
    IN_MILLISECONDS,
    KINDS,
    WHOLE,
    Cycle,
    End,
    Line,
    LogError,
    Mark,
    Object,
    PolicyText,
    Put,
    Standing,
    Start,
    decode_line,
    in_microseconds,
    read_delta,
    read_object,
    write_decision,
)
from kbatch.decisions.state import read_state
from kbatch.engine import CycleState, Memo, NullObserver, Policy, Turn, build_policy, cycle, take_snapshot
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Unreadable
from kbatch.model.image import Image, build_model


@dataclass(frozen=True, slots=True)
class Difference:
    """The first thing in a cycle that was decided otherwise.

    Attributes:
        position: which decision, from 0; the number of decisions itself stands for what comes after them.
        recorded, decided: what stands in the log and what came out now; empty where there was nothing more.
    """

    position: int
    recorded: str
    decided: str


@dataclass(frozen=True, slots=True)
class Redecided:
    """One cycle decided again, at `now` (microseconds since the epoch). `difference` is None where all is equal."""

    number: int
    now: int
    decisions: int
    difference: Difference | None


def replay(lines: Iterable[bytes]) -> Iterator[Redecided]:
    """Decide every cycle of a log again. Lines after an end are another log's and must not be there.

    Raises:
        LogError: a line that cannot be read, or a policy that cannot be built here.
    """
    source = iter(lines)
    start, model, policy, state = _start(source)
    memo = Memo()
    before: tuple[bytes, ...] = ()
    wake: int | None = 0
    for line in source:
        record = decode_line(line)
        if isinstance(record, End):
            return
        if not isinstance(record, Cycle):
            raise LogError(f"a {type(record).__name__.lower()} in the middle of a log")
        if start.format == IN_MILLISECONDS:
            record = in_microseconds(record)
        for delta in record.deltas:
            _apply(model, read_delta(delta))
        if record.policy is not None:
            policy = _policy(record.policy)
        if record.fresh or start.format <= WHOLE:
            memo = Memo()  # with an empty one the engine has a verdict of each group
        recorded = before if record.same else tuple(bytes(raw) for raw in record.decisions)
        idle = (
            record.same and not (record.deltas or record.fresh or record.policy) and (wake is None or record.now < wake)
        )
        wake = record.next_wake
        if start.format <= WHOLE and idle:
            yield Redecided(record.number, record.now, len(recorded), None)  # it was not decided then either
            continue
        decided, memo, state, end = _decide(model, policy, memo, state, record, len(recorded))
        yield Redecided(record.number, record.now, len(decided), _compare(record, recorded, decided, end))
        before = recorded


def _start(source: Iterator[bytes]) -> tuple[Start, ClusterModel, Policy, CycleState]:
    start = _next(source)
    if not isinstance(start, Start):
        raise LogError("a log begins with its start")
    if not IN_MILLISECONDS <= start.format <= FORMAT:
        raise LogError(f"a log of format {start.format}; this kbatch reads {IN_MILLISECONDS} to {FORMAT}")
    objects: list[AnyObject] = []
    for _ in range(start.objects):
        record = _next(source)
        if not isinstance(record, Object):
            raise LogError(f"{len(objects)} of {start.objects} objects, then a {type(record).__name__.lower()}")
        objects.append(read_object(Put(record.kind, record.object)))
    standing = _next(source)
    if not isinstance(standing, Standing):
        raise LogError("no word of what stands, after the objects")
    unreadable = []
    for one in standing.unreadable:
        if one.kind not in KINDS:
            raise LogError(f"unknown kind {one.kind!r}")
        unreadable.append(Unreadable(KINDS[one.kind], one.namespace, one.name, one.uid, one.node, one.why))
    image = Image(
        start.scheduler_name,
        start.default_queue,
        start.selected_keys,
        tuple(objects),
        standing.assumed,
        standing.evicting,
        standing.refused,
        tuple(unreadable),
        standing.orphaned,
    )
    model = build_model(image)
    model.objects.setdefault(PersistentVolumeClaim, {})  # all claims are in a log, be they none
    policy = _policy(start.policy)
    try:
        state = read_state(standing.state, policy)
    except msgspec.MsgspecError as error:
        raise LogError(f"the recorded state cannot be used here: {error}") from None
    return start, model, policy, state


def _next(source: Iterator[bytes]) -> Line:
    """The next line of the beginning."""
    line = next(source, None)
    if line is None:
        raise LogError("the log ends before its beginning is whole")
    return decode_line(line)


def _policy(text: PolicyText) -> Policy:
    try:
        return build_policy(parse(text.text, text.source))
    except ConfigurationError as error:
        raise LogError(f"the recorded policy cannot be used here: {error}") from None


def _apply(model: ClusterModel, delta: object) -> None:
    """Tell the model what the recorded one was told; what broke that one breaks this one alike."""
    if isinstance(delta, Mark):
        delta.tell(model)
    else:
        with contextlib.suppress(Exception):
            model.apply(delta)  # type: ignore[arg-type]


def _decide(
    model: ClusterModel, policy: Policy, memo: Memo, state: CycleState, record: Cycle, heard: int
) -> tuple[list[bytes], Memo, CycleState, tuple[int | None, str]]:
    """The decisions, memo and state for the next cycle, and how it ended: the next wake, or the error."""
    decided: list[bytes] = []
    deciding = cycle(take_snapshot(model, record.now, state), policy, memo, NullObserver())
    try:
        while not (record.cut and len(decided) >= heard):
            try:
                step = next(deciding)
                if not isinstance(step, Turn):
                    decided.append(write_decision(step))
            except StopIteration as end:
                return decided, end.value.memo, end.value.state, (end.value.next_wake, "")
    except Exception as error:  # noqa: BLE001 - an engine that fails is what may have been recorded
        return decided, Memo(), state, (None, f"{type(error).__name__}: {error}")
    finally:
        deciding.close()
    return decided, Memo(), state, (None, "")


def _compare(
    record: Cycle, recorded: tuple[bytes, ...], decided: list[bytes], end: tuple[int | None, str]
) -> Difference | None:
    for position, (one, other) in enumerate(zip(recorded, decided, strict=False)):
        if one != other:
            return Difference(position, one.decode(), other.decode())
    common = min(len(recorded), len(decided))
    if len(recorded) != len(decided):
        more = recorded[common].decode() if len(recorded) > common else ""
        other_more = decided[common].decode() if len(decided) > common else ""
        return Difference(common, more, other_more)
    if not record.cut and end != (record.next_wake, record.failed):
        return Difference(common, _end(record.next_wake, record.failed), _end(*end))
    return None


def _end(next_wake: int | None, failed: str) -> str:
    return f"failed: {failed}" if failed else f"next wake: {'never' if next_wake is None else next_wake}"
