"""The lines of a decision log, as typed records, and how they are made of what the engine and the model speak.

Version 3. A change of any of these structs that an older reader would misread raises `FORMAT`. Up to version 2 there is
a verdict of each group that is not settled in every cycle; since then only of those of which there is something new to
tell. In version 1 the instants of a cycle are in milliseconds; `in_microseconds` converts them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, get_args

import msgspec

from kbatch.api.objects import AnyObject, timestamp_us
from kbatch.api.reasons import Reason
from kbatch.engine import Bind, Eviction, Nomination, Transaction, Verdict
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Event, Unreadable, Upsert
from kbatch.model.image import Assumed, Evicting, Orphaned, Refused
from kbatch.times import MILLISECOND

FORMAT: Final = 3
WHOLE: Final = 2
"""The format before, with all verdicts in each cycle."""

IN_MILLISECONDS: Final = 1
"""The format before that: the same, but for the unit of time."""

KINDS: Final[dict[str, type[AnyObject]]] = {kind.__name__: kind for kind in get_args(AnyObject)}
"""Every kind of object by the name that stands in a log."""

_encode: Final = msgspec.json.Encoder(order="deterministic").encode
_decoders: Final = {name: msgspec.json.Decoder(kind) for name, kind in KINDS.items()}


class LogError(ValueError):
    """A line that is no part of a decision log; the message says why."""


# --- what happens to a model ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mark:
    """One call of the model by this process: `what` is the name of the method, the others are its arguments.

    `until` and `why` are those of refusals (`until` in microseconds since the epoch).
    """

    what: str
    pod: str
    uid: str
    node: str = ""
    until: int | None = None
    why: str = ""

    def tell(self, model: ClusterModel) -> None:
        """Make the call."""
        match self.what:
            case "assume":
                model.assume(self.pod, self.uid, self.node)
            case "forget":
                model.forget(self.pod, self.uid)
            case "evicting":
                model.evicting(self.pod, self.uid)
            case "not_evicting":
                model.not_evicting(self.pod, self.uid)
            case "refuse_bind":
                model.refuse_bind(self.pod, self.uid, self.node, self.until, self.why)
            case "refuse_eviction":
                model.refuse_eviction(self.pod, self.uid, self.until, self.why)
            case _:
                raise LogError(f"unknown mark {self.what!r}")


Delta: TypeAlias = Event | Mark
MARKS: Final = frozenset({"assume", "forget", "evicting", "not_evicting", "refuse_bind", "refuse_eviction"})


class Put(msgspec.Struct, frozen=True, tag="put", tag_field="delta", omit_defaults=True):
    """An object exists and looks like this."""

    kind: str
    object: msgspec.Raw


class Gone(msgspec.Struct, frozen=True, tag="gone", tag_field="delta", omit_defaults=True):
    """An object is gone."""

    kind: str
    name: str
    namespace: str = ""


class LeftOut(msgspec.Struct, frozen=True, tag="unreadable", tag_field="delta", omit_defaults=True):
    """An object that cannot be read."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    node: str = ""
    why: str = ""


class Marked(msgspec.Struct, frozen=True, tag="mark", tag_field="delta", omit_defaults=True):
    """A bind or an eviction under way, or no longer, or refused."""

    what: str
    pod: str
    uid: str
    node: str = ""
    until: int | None = None
    why: str = ""


AnyDelta: TypeAlias = Put | Gone | LeftOut | Marked


def put(obj: AnyObject) -> Put:
    """The record of an object."""
    return Put(type(obj).__name__, msgspec.Raw(_encode(obj)))


def read_object(record: Put) -> AnyObject:
    """The object of a record.

    Raises:
        LogError: a kind that is not known, or an object that is none of it, or has a time that is none.
    """
    found = _decoders.get(record.kind)
    if found is None:
        raise LogError(f"unknown kind {record.kind!r}")
    try:
        obj = found.decode(record.object)
    except msgspec.MsgspecError as error:
        raise LogError(f"a {record.kind} cannot be read: {error}") from None
    for field, text in _times(obj):
        try:
            timestamp_us(text)
        except msgspec.ValidationError:
            raise LogError(f"a {record.kind} cannot be read: {field}: {text!r} is no time") from None
    return obj


def _times(obj: AnyObject) -> Iterator[tuple[str, str | None]]:
    """The times of an object that a model reads when it takes the object over: as text, with their fields."""
    meta, status = obj.metadata, getattr(obj, "status", None)
    yield "metadata.creationTimestamp", meta.creation_timestamp
    yield "metadata.deletionTimestamp", meta.deletion_timestamp
    yield "status.startTime", getattr(status, "start_time", None)
    for condition in getattr(status, "conditions", None) or ():
        yield f"status.conditions ({condition.type}): lastTransitionTime", condition.last_transition_time or None


def write_delta(delta: Delta) -> AnyDelta:
    """The record of a change of the model."""
    if isinstance(delta, Upsert):
        return put(delta.obj)
    if isinstance(delta, Delete):
        return Gone(delta.kind.__name__, delta.name, delta.namespace)
    if isinstance(delta, Unreadable):
        return LeftOut(delta.kind.__name__, delta.name, delta.namespace, delta.uid, delta.node_name, delta.why)
    return Marked(delta.what, delta.pod, delta.uid, delta.node, delta.until, delta.why)


def read_delta(record: AnyDelta) -> Delta:
    """The change that a record tells of.

    Raises:
        LogError: a kind or a mark that is not known, or an object that cannot be read.
    """
    if isinstance(record, Put):
        return Upsert(read_object(record))
    if isinstance(record, Marked):
        if record.what not in MARKS:
            raise LogError(f"unknown mark {record.what!r}")
        return Mark(record.what, record.pod, record.uid, record.node, record.until, record.why)
    kind = KINDS.get(record.kind)
    if kind is None:
        raise LogError(f"unknown kind {record.kind!r}")
    if isinstance(record, Gone):
        return Delete(kind, record.namespace, record.name)
    return Unreadable(kind, record.namespace, record.name, record.uid, record.node, record.why)


# --- what is decided --------------------------------------------------------------------------------------------------


class _Transaction(msgspec.Struct):
    """A transaction as logs have it. What it says of queues stands in the state that the cycle leaves."""

    group: str
    binds: tuple[Bind, ...]
    evictions: tuple[Eviction, ...]
    nominations: tuple[Nomination, ...]
    job: str


def write_decision(decision: Transaction | Verdict) -> bytes:
    """A decision as JSON: equal decisions give equal bytes, and what a person would read in one stands in them."""
    if isinstance(decision, Transaction):
        return _encode({"transaction": msgspec.convert(decision, _Transaction, from_attributes=True)})
    verdict: dict[str, Any] = {name: getattr(decision, name) for name in Verdict.__struct_fields__ if name != "reason"}
    for name in ("members_lost", "charged", "estimate", "backfilled"):
        if not verdict[name]:
            del verdict[name]  # as logs have it that are older than this
    verdict["reason"] = _reason(decision.reason)
    return _encode({"verdict": verdict})


def _reason(reason: Reason | None) -> dict[str, str] | None:
    return None if reason is None else {"code": reason.code, "message": reason.message}


# --- lines ------------------------------------------------------------------------------------------------------------


class PolicyText(msgspec.Struct, frozen=True):
    """A scheduler configuration as it was read, and from where."""

    text: str
    source: str = ""


class Start(msgspec.Struct, frozen=True, tag="start", tag_field="record", omit_defaults=True, kw_only=True):
    """The first line. `objects` lines with one object each follow it, then one `Standing`."""

    format: int
    written_by: str
    scheduler_name: str
    default_queue: str
    policy: PolicyText
    objects: int
    selected_keys: tuple[str, ...] | None = None


class Object(msgspec.Struct, frozen=True, tag="object", tag_field="record"):
    """One object of the whole beginning."""

    kind: str
    object: msgspec.Raw


class Standing(msgspec.Struct, frozen=True, tag="standing", tag_field="record", omit_defaults=True, kw_only=True):
    """What no object says, at the beginning; `state` is what the cycle before left, nothing where a process began."""

    assumed: tuple[Assumed, ...] = ()
    evicting: tuple[Evicting, ...] = ()
    refused: tuple[Refused, ...] = ()
    unreadable: tuple[LeftOut, ...] = ()
    orphaned: tuple[Orphaned, ...] = ()
    state: dict[str, Any] | None = None


class Cycle(msgspec.Struct, frozen=True, tag="cycle", tag_field="record", omit_defaults=True, kw_only=True):
    """One cycle.

    Attributes:
        number: counted by the recording process.
        now: the snapshot's time, in microseconds since the epoch.
        deltas: what happened to the model since the cycle before.
        policy: the policy, where another came into force.
        fresh: the memo was forgotten before this cycle.
        same: `decisions` are those of the cycle before, and left out.
        decisions: what came out, in order.
        next_wake: as the engine said, in microseconds since the epoch.
        failed: the error that ended it. cut: it was not heard to its end, and only what was heard stands here.
    """

    number: int
    now: int
    deltas: tuple[AnyDelta, ...] = ()
    policy: PolicyText | None = None
    fresh: bool = False
    same: bool = False
    decisions: tuple[msgspec.Raw, ...] = ()
    next_wake: int | None = None
    failed: str = ""
    cut: bool = False


def in_microseconds(cycle: Cycle) -> Cycle:
    """A cycle of a log in milliseconds, in the unit of today."""
    wake = None if cycle.next_wake is None else cycle.next_wake * MILLISECOND
    return msgspec.structs.replace(cycle, now=cycle.now * MILLISECOND, next_wake=wake)


class End(msgspec.Struct, frozen=True, tag="end", tag_field="record"):
    """The last line, where the writer came to write one: why it ends here."""

    why: str


Line: TypeAlias = Start | Object | Standing | Cycle | End
_lines: Final[msgspec.json.Decoder[Line]] = msgspec.json.Decoder(Line)


def encode_line(line: Line) -> bytes:
    """One record as a line, with its end."""
    return _encode(line) + b"\n"


def decode_line(line: bytes) -> Line:
    """The record of a line.

    Raises:
        LogError: it is none.
    """
    try:
        return _lines.decode(line)
    except msgspec.MsgspecError as error:
        raise LogError(f"no record of a decision log: {error}") from None
