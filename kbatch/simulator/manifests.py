"""From documents to typed objects: what a live cluster would take, with the times at which it is told to.

Every fault of the whole input is collected, so that one run names them all: file, document, field, and what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, TypeVar

import msgspec

from kbatch.api.conditions import merge
from kbatch.api.names import DEFAULT_QUEUE, DEFAULT_SCHEDULER_NAME, GROUP
from kbatch.api.objects import AnyObject, Job, Metadata, Pod, PodGroup, PriorityClass, Queue, ReplicaSet, timestamp_us
from kbatch.model.jobs_release import held_back, named_group, names_queue
from kbatch.model.usage import read_anchor
from kbatch.simulator import names
from kbatch.simulator.documents import Document, read
from kbatch.simulator.errors import Fault, FieldError, InputError, Place
from kbatch.simulator.kinds import READ, SKIPPED, ReadKind, listed_kind, split_api_version
from kbatch.simulator.recorded import Recorded
from kbatch.simulator.times import times_of, with_times_as_text
from kbatch.simulator.validation import (
    check_label_selector,
    check_metadata,
    check_object,
    check_pod_spec,
    check_queue_amounts,
    check_quota_amounts,
    check_templates,
)

_MOST_FAULTS: Final = 20
_MOST_PODS: Final = 1_000_000
_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_Object = TypeVar("_Object", bound=AnyObject)


@dataclass(frozen=True, slots=True)
class Declared:
    """An object of the input.

    Attributes:
        obj: the object, with its namespace filled in.
        place: where it stands.
        arrival: when it is created, in microseconds after the start.
        departure: when it is deleted, in microseconds after the start; None: never.
        order: rank of its creation among all objects of the input.
        recorded: it was seen in a live cluster: its own times stand, its Jobs and ReplicaSets make no pods (those are
            in the input), and it may come again where it was changed.
        awaits: `namespace/name` of the PodGroup after whose entry into its queue it comes; `arrival` counts from that.
    """

    obj: AnyObject
    place: Place
    arrival: int = 0
    departure: int | None = None
    order: int = 0
    recorded: bool = False
    awaits: str = ""

    @property
    def key(self) -> tuple[type[AnyObject], str, str]:
        """What no two objects share."""
        return type(self.obj), self.obj.metadata.namespace, self.obj.metadata.name


@dataclass(frozen=True, slots=True)
class Manifests:
    """A whole input: the objects in the order of their creation, and what was left out or looks unintended.

    `pods` says how many pods the input asks to be placed, as far as it tells. `configuration` is the text of the
    scheduler's configuration that comes with it, and where that stands. `recorded`: what a log tells besides.
    """

    objects: tuple[Declared, ...]
    warnings: tuple[str, ...] = ()
    pods: int = 0
    configuration: tuple[str, str] | None = None
    recorded: Recorded = field(default_factory=Recorded)


def load(
    paths: Sequence[str], *, scheduler_name: str = DEFAULT_SCHEDULER_NAME, default_queue: str = DEFAULT_QUEUE
) -> Manifests:
    """Read files, folders and `-`.

    Args:
        paths: where the manifests are.
        scheduler_name: of the pods that are ours.
        default_queue: of those that name none.

    Raises:
        InputError: something that nobody can read or that a live cluster would refuse.
    """
    return from_documents(read(paths), Recorded(scheduler_name, default_queue))


@dataclass(slots=True)
class _Reading:
    """What one reading has found so far."""

    recorded: Recorded
    declared: list[tuple[Declared, int | None]] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    seen: dict[tuple[type[AnyObject], str, str], Place] = field(default_factory=dict)
    checked: set[bytes] = field(default_factory=set)
    at_a_time: int = 0
    pods: int = 0
    configuration: tuple[str, str] | None = None
    default_class: str | None = None


def from_documents(documents: Iterator[Document], recorded: Recorded = Recorded()) -> Manifests:  # noqa: B008 -- frozen
    """Turn documents into objects; `recorded` is part of what comes out.

    Raises:
        InputError: as for `load`.
    """
    reading = _Reading(recorded)
    for document in documents:
        for place, content in _items(document, reading):
            try:
                _take(content, place, reading)
            except FieldError as error:
                reading.faults.append(Fault(place, error.field, error.what))
        if len(reading.faults) >= _MOST_FAULTS:
            break
    if reading.faults:
        raise InputError(reading.faults[:_MOST_FAULTS])
    for kind, count in sorted(reading.skipped.items()):
        reading.warnings.append(f"{kind}: {count} object{'s' if count > 1 else ''} ignored: not part of a simulation")
    # Objects without a creationTimestamp are created at the start, after those of the past.
    placed = sorted(enumerate(reading.declared), key=lambda entry: (entry[1][1] is None, entry[1][1] or 0, entry[0]))
    objects = tuple(
        Declared(declared.obj, declared.place, declared.arrival, declared.departure, order)
        for order, (_, (declared, _)) in enumerate(placed)
    )
    return Manifests(objects, tuple(reading.warnings), reading.pods, reading.configuration, recorded)


def _items(document: Document, reading: _Reading) -> Iterator[tuple[Place, dict[str, Any]]]:
    """The objects of a document: itself, or those of the list that it is."""
    content, place = document.content, document.place
    kind = content.get("kind")
    if not isinstance(kind, str):
        yield place, content
        return
    item_kind = listed_kind(kind)
    if kind != "List" and (item_kind is None or "items" not in content):
        yield place, content
        return
    items = content.get("items") or []
    if not isinstance(items, list):
        reading.faults.append(Fault(place, "items", "expected a list"))
        return
    for index, item in enumerate(items):
        at = Place(place.source, place.document, index)
        if not isinstance(item, dict):
            reading.faults.append(Fault(at, "", "expected an object with apiVersion and kind"))
            continue
        if item_kind is not None:  # items of a typed list, as the API server sends it, leave these out
            item = {"apiVersion": content.get("apiVersion"), "kind": item_kind, **item}
        yield from _items(Document(at, item), reading)


def _take(content: dict[str, Any], place: Place, reading: _Reading) -> None:
    """One object: read, checked and filled in; or left out with a warning."""
    kind, api_version = _text(content, "kind"), _text(content, "apiVersion")
    group, version = split_api_version(api_version)
    if (group, kind) == ("", "ConfigMap") and _configures(content):
        if reading.configuration is not None:
            raise FieldError("metadata.annotations", f"{reading.configuration[1]} has a configuration already")
        reading.configuration = _only_text(content), str(place)
        return
    read_as = READ.get((group, kind))
    if read_as is None:
        if (group, kind) in SKIPPED:
            reading.skipped[f"{kind} ({api_version})"] = reading.skipped.get(f"{kind} ({api_version})", 0) + 1
            return
        raise FieldError(
            "kind", f"{kind} of {api_version} is no kind that kbatch or Kubernetes knows{_meant(kind, group)}"
        )
    if version != read_as.version:
        if re.fullmatch(r"v[0-9]+((alpha|beta)[0-9]+)?", version) is None or group == GROUP:
            raise FieldError("apiVersion", f"there is no version {version!r} of {kind}; it is {read_as.version}")
        is_read_as = f"{group}/{read_as.version}".removeprefix("/")
        reading.warnings.append(f"{place}: {kind} of {api_version} is read as {is_read_as}")
    obj = _decode(with_times_as_text(content), read_as.type)
    _fill_metadata(obj.metadata, read_as, reading)
    try:
        _check(obj, content, reading)
    except OverflowError:
        raise _beyond(content) from None
    _count_pods(obj, reading)
    _admit(obj, content, reading.recorded)
    metadata = obj.metadata
    arrival, departure = times_of(obj)
    declared = Declared(at_start(obj), place, arrival, departure)
    before = reading.seen.setdefault(declared.key, place)
    if before is not place:
        name = f"{metadata.namespace}/{metadata.name}" if read_as.namespaced else metadata.name
        raise FieldError("metadata.name", f"{kind} {name} stands already in {before}")
    if isinstance(obj, PriorityClass) and obj.global_default:
        if reading.default_class is not None:
            raise FieldError("globalDefault", f"PriorityClass {reading.default_class} is the default already")
        reading.default_class = metadata.name
    _warn(obj, place, reading)
    reading.declared.append((declared, _created(metadata)))


def _text(content: dict[str, Any], name: str) -> str:
    value = content.get(name)
    if not isinstance(value, str) or not value:
        raise FieldError(name, "is missing" if value is None or value == "" else f"expected text, got {value!r}"[:200])
    return value


def _meant(kind: str, group: str) -> str:
    """A hint where the kind exists in another group, or with other capitals."""
    for other_group, other in sorted({*READ, *SKIPPED}):
        if other.casefold() == kind.casefold() and (other_group, other) != (group, kind):
            return f"; {other} is of {other_group or 'v1'}"
    return ""


def _decode(content: dict[str, Any], as_type: type[_Object]) -> _Object:
    try:
        return msgspec.convert(content, as_type)
    except msgspec.ValidationError:
        content = _without_nulls(content)  # null means absent, as for the API server
        try:
            return msgspec.convert(content, as_type)
        except msgspec.ValidationError as error:
            what, _, path = str(error).partition(" - at `")
            path = path.rstrip("`").removeprefix("$").removeprefix(".")
            missing = re.fullmatch(r"Object missing required field `(.*)`", what)
            if missing is not None:
                raise FieldError(f"{path}.{missing[1]}".removeprefix("."), "is missing") from None
            raise FieldError(_with_key(path, content, as_type), _plain(what)) from None
    except RecursionError:
        raise FieldError("", "nested too deeply") from None


def _with_key(path: str, content: dict[str, Any], as_type: type[Any]) -> str:
    """The path of a field that cannot be read, with the key where msgspec does not say which (`labels[...]`)."""
    before, unsaid, after = path.partition("[...]")
    if not unsaid:
        return path
    parts = [int(index) if index else name for index, name in re.findall(r"\[(\d+)\]|([^.\[\]]+)", before)]
    mapping: Any = content
    for part in parts:
        mapping = mapping[part]
    for key, value in mapping.items() if isinstance(mapping, dict) else ():
        try:
            msgspec.convert(_replaced(content, parts, {key: value}), as_type)
        except msgspec.ValidationError:
            return f"{before}[{key}]{after}"
    return path


def _replaced(content: Any, parts: Sequence[str | int], value: Any) -> Any:
    """The content with another value at a place."""
    if not parts:
        return value
    copied = content.copy()
    copied[parts[0]] = _replaced(content[parts[0]], parts[1:], value)
    return copied


def _plain(what: str) -> str:
    what = what.replace("`", "").replace("dict", "object").replace("array", "list").replace("str", "text")
    return what[:1].lower() + what[1:]


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(part) for key, part in value.items() if part is not None}
    if isinstance(value, list):
        return [_without_nulls(part) for part in value]
    return value


def _fill_metadata(metadata: Metadata, read_as: ReadKind, reading: _Reading) -> None:
    if not metadata.name and metadata.generate_name:
        taken = sum(
            1 for kind, _, name in reading.seen if kind is read_as.type and name.startswith(metadata.generate_name)
        )
        metadata.name = f"{metadata.generate_name}{taken}"
    if not metadata.name:
        raise FieldError("metadata.name", "is missing")
    metadata.namespace = (metadata.namespace or names.DEFAULT_NAMESPACE) if read_as.namespaced else ""
    check_metadata(metadata, namespaced=read_as.namespaced)


def _check(obj: AnyObject, content: dict[str, Any], reading: _Reading) -> None:
    if isinstance(obj, Pod):
        encoded = _encode(obj.spec)
        if encoded not in reading.checked:  # nearly all pods are like others
            check_pod_spec(obj.spec)
            reading.checked.add(encoded)
    elif isinstance(obj, PodGroup | Queue):
        _check_by_model(obj, content)
    else:
        check_object(obj)


def _beyond(content: dict[str, Any]) -> FieldError:
    """The error of an object in which some number has more than 64 bits."""
    found: list[tuple[str, Any]] = [("", content)]
    for at, value in found:
        if isinstance(value, dict):
            found += [(f"{at}.{key}" if at else str(key), part) for key, part in value.items()]
        elif isinstance(value, list):
            found += [(f"{at}[{index}]", part) for index, part in enumerate(value)]
        elif isinstance(value, int) and not -(2**63) <= value < 2**63:
            return FieldError(at, f"{value} is beyond 64 bits")
    return FieldError("spec", "some number is beyond 64 bits")


def _count_pods(obj: AnyObject, reading: _Reading) -> None:
    """Keep the pods that the input asks for at a time to what a machine can hold, and count those of the whole run."""
    in_all = 0
    match obj:
        case Pod():
            count, field_name = int(not obj.spec.node_name), ""
        case Job():
            count, field_name = 1 if obj.spec.parallelism is None else obj.spec.parallelism, "spec.parallelism"
            if obj.spec.completions is not None:
                in_all = obj.spec.completions if count else 0
                count = min(count, in_all)
        case ReplicaSet():
            count, field_name = 1 if obj.spec.replicas is None else obj.spec.replicas, "spec.replicas"
        case PodGroup():
            roles = [role for role in obj.spec.sub_groups or () if role.template is not None]
            count, field_name = sum(max(role.min_member, role.max_member or 0) for role in roles), "spec.subGroups"
        case _:
            return
    reading.at_a_time += count
    reading.pods += max(count, in_all)
    if reading.at_a_time > _MOST_PODS:
        raise FieldError(field_name, f"with these the input would make more than {_MOST_PODS} pods")


@cache
def _models() -> dict[type[AnyObject], type[Any]]:
    from kbatch.api.podgroup import PodGroup as PodGroupModel
    from kbatch.api.queue import Queue as QueueModel

    return {PodGroup: PodGroupModel, Queue: QueueModel}


def _check_by_model(obj: PodGroup | Queue, content: dict[str, Any]) -> None:
    """Check the schema of the CRD, by the model that it is generated from, then its rules."""
    from pydantic import ValidationError

    parts = {
        name: _without_nulls(part) for name, part in content.items() if name not in {"apiVersion", "kind", "metadata"}
    }
    try:
        _models()[type(obj)].model_validate({name: part for name, part in parts.items() if part is not None})
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        what = "there is no such field" if first["type"] == "extra_forbidden" else str(first["msg"])
        given = (
            f", got {first['input']!r}" if isinstance(first["input"], str | int | float) and "should" in what else ""
        )
        raise FieldError(_path(first["loc"]), what.replace("Input should", "should") + given) from None
    if isinstance(obj, Queue):
        check_queue_amounts(obj.spec.capability, "spec.capability")
        if obj.spec.parent == obj.metadata.name:
            raise FieldError("spec.parent", "a queue cannot be its own parent")
        check_label_selector(obj.spec.namespace_selector, "spec.namespaceSelector")
        return
    check_quota_amounts(obj.spec.min_resources, "spec.minResources")
    roles: set[str] = set()
    for index, role in enumerate(obj.spec.sub_groups or ()):
        at = f"spec.subGroups[{index}]"
        if role.name in roles:
            raise FieldError(f"{at}.name", f"there is a role {role.name} already")
        roles.add(role.name)
        if role.max_member is not None and role.max_member < role.min_member:
            raise FieldError(f"{at}.maxMember", f"maxMember {role.max_member} is below minMember {role.min_member}")
    check_templates(obj)


def _path(parts: Sequence[str | int]) -> str:
    """`spec.subGroups[0].name`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).removeprefix(".")


def _created(metadata: Metadata) -> int | None:
    try:
        return timestamp_us(metadata.creation_timestamp)
    except msgspec.ValidationError:
        raise FieldError(
            "metadata.creationTimestamp", f"{metadata.creation_timestamp!r} is no time such as 2026-01-31T12:00:00Z"
        ) from None


def _configures(content: dict[str, Any]) -> bool:
    """Whether a ConfigMap is said to hold the configuration of the scheduler that is simulated."""
    metadata = content.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    return isinstance(annotations, dict) and annotations.get(names.SCHEDULER_CONF) == "true"


def _only_text(content: dict[str, Any]) -> str:
    """The one text in a ConfigMap."""
    data = content.get("data")
    texts = list(data.values()) if isinstance(data, dict) else []
    if len(texts) != 1 or not isinstance(texts[0], str):
        raise FieldError("data", "expected one key with the text of a scheduler configuration")
    return texts[0]


def at_start(obj: AnyObject) -> AnyObject:
    """The object as it is at the start: what its status says stands since then."""
    if isinstance(obj, PodGroup) and obj.status.conditions:
        stale = [msgspec.structs.replace(condition, last_transition_time=None) for condition in obj.status.conditions]
        obj.status.conditions = merge((), stale, names.timestamp(0))
    flow = obj.status.flow if isinstance(obj, Queue) else None
    anchor = read_anchor(flow) if flow is not None else None
    if isinstance(obj, Queue) and flow is not None and anchor is not None and anchor.time > names.START:
        obj.status.flow = msgspec.structs.replace(flow, time=names.timestamp(0))
    return obj


def _admit(obj: AnyObject, content: dict[str, Any], recorded: Recorded) -> None:
    """What admission makes of a new Job for a queue: one of kbatch's, which waits suspended. Pods of other Jobs that
    name a group come at once, to show what is decided about pods that are there; `suspend` is how to have them wait.
    A PodGroup that names no queue gets the default one.
    """
    ours = recorded.scheduler_name
    if isinstance(obj, PodGroup) and "queue" not in (content.get("spec") or {}):
        obj.spec.queue = recorded.default_queue
    if isinstance(obj, Job) and names_queue(obj) and held_back(obj, ours):
        obj.spec.template.spec.scheduler_name = ours
        obj.spec.suspend = True


def _warn(obj: AnyObject, place: Place, reading: _Reading) -> None:
    """What a live cluster takes, and what is hardly meant: what nobody here will look at."""
    meta = obj.metadata
    if isinstance(obj, Job | ReplicaSet):
        spec, what = obj.spec.template.spec, f"{type(obj).__name__} {meta.namespace}/{meta.name}"
    elif isinstance(obj, Pod) and not obj.spec.node_name:
        spec, what = obj.spec, f"pod {meta.namespace}/{meta.name}"
    else:
        return
    if isinstance(obj, Job) and obj.spec.suspend and not (named_group(obj) or names_queue(obj)):
        reading.warnings.append(f"{place}: {what} is suspended and names neither a group nor a queue: it never starts")
    if not spec.scheduler_name:
        reading.warnings.append(f"{place}: {what} names no spec.schedulerName: another scheduler's, not kbatch's")
