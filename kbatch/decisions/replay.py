"""Deciding a recorded log again, cycle by cycle, and comparing byte for byte; logs in milliseconds are converted."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
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


class Counted(Iterator[bytes]):
    """The lines of a log; `number` is that of the one that was asked for last, from 1 on."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._lines = iter(lines)
        self.number = 0

    def __next__(self) -> bytes:
        self.number += 1
        return next(self._lines)

    @contextlib.contextmanager
    def located(self) -> Iterator[None]:
        """What is wrong with a line is said with its number."""
        try:
            yield
        except LogError as error:
            raise LogError(f"line {self.number}: {error}") from None


def replay(lines: Iterable[bytes], other: Policy | None = None) -> Iterator[Redecided]:
    """Decide every cycle of a log again. Lines after an end are another log's and must not be there.

    With an `other` policy, each recorded state is decided by that, and only what is to be done is compared
    (transactions): reasons and wakes are another policy's own. What cycles leave to one another is that policy's too,
    from nothing on.

    Raises:
        LogError: a line that cannot be read, or a policy that cannot be built here.
    """
    source = Counted(lines)
    start, model, policy, state = _start(source, other)
    with source.located():
        yield from _cycles(source, start, model, policy, state, other)


def _cycles(
    source: Iterator[bytes], start: Start, model: ClusterModel, policy: Policy, state: CycleState, other: Policy | None
) -> Iterator[Redecided]:
    """Each cycle, decided again."""
    memo = Memo()
    before: tuple[bytes, ...] = ()
    wake: int | None = 0
    for record in cycles_of(source):
        if start.format == IN_MILLISECONDS:
            record = in_microseconds(record)
        for delta in record.deltas:
            _apply(model, read_delta(delta))
        if record.policy is not None and other is None:
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
        decided, memo, state, end = _decide(model, policy, memo, state, record, len(recorded), whole=other is not None)
        if other is not None:
            acts, decided = [one for one in recorded if _acts(one)], [one for one in decided if _acts(one)]
            if record.cut:
                decided = decided[: len(acts)]
            yield Redecided(record.number, record.now, len(decided), _first_difference(acts, decided))
            before = recorded
            continue
        yield Redecided(record.number, record.now, len(decided), _compare(record, recorded, decided, end))
        before = recorded


def cycles_of(source: Iterable[bytes]) -> Iterator[Cycle]:
    """The cycles of a log, after its beginning.

    Raises:
        LogError: a line that is none, or cannot be read.
    """
    for line in source:
        record = decode_line(line)
        if isinstance(record, End):
            return
        if not isinstance(record, Cycle):
            raise LogError(f"a {type(record).__name__.lower()} in the middle of a log")
        yield record


def begin(source: Iterator[bytes]) -> tuple[Start, Image, Standing]:
    """Read the beginning of a log: its start, all objects, and what else stood.

    Raises:
        LogError: it is not whole, or no beginning of a log that can be read here.
    """
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
    return start, image, standing


def _start(source: Counted, other: Policy | None) -> tuple[Start, ClusterModel, Policy, CycleState]:
    with source.located():
        start, image, standing = begin(source)
    model = build_model(image)
    model.objects.setdefault(PersistentVolumeClaim, {})  # all claims are in a log, be they none
    if other is not None:
        return start, model, other, CycleState()
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
    model: ClusterModel,
    policy: Policy,
    memo: Memo,
    state: CycleState,
    record: Cycle,
    heard: int,
    *,
    whole: bool = False,
) -> tuple[list[bytes], Memo, CycleState, tuple[int | None, str]]:
    """The decisions, memo and state for the next cycle, and how it ended: the next wake, or the error.
    `whole`: also where the recorded cycle was not heard to its end.
    """
    decided: list[bytes] = []
    deciding = cycle(take_snapshot(model, record.now, state), policy, memo, NullObserver())
    try:
        while whole or not (record.cut and len(decided) >= heard):
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
    found = _first_difference(recorded, decided)
    if found is None and not record.cut and end != (record.next_wake, record.failed):
        return Difference(len(decided), _end(record.next_wake, record.failed), _end(*end))
    return found


def _first_difference(recorded: Sequence[bytes], decided: Sequence[bytes]) -> Difference | None:
    for position, (one, other) in enumerate(zip(recorded, decided, strict=False)):
        if one != other:
            return Difference(position, one.decode(), other.decode())
    common = min(len(recorded), len(decided))
    if len(recorded) != len(decided):
        more = recorded[common].decode() if len(recorded) > common else ""
        other_more = decided[common].decode() if len(decided) > common else ""
        return Difference(common, more, other_more)
    return None


def _acts(decision: bytes) -> bool:
    return decision.startswith(b'{"transaction"')


def _end(next_wake: int | None, failed: str) -> str:
    return f"failed: {failed}" if failed else f"next wake: {'never' if next_wake is None else next_wake}"
