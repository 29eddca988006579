"""The objects that a group has besides its pods (`spec.objects`): rendered, checked and named. Pure.

Of an object only what a template may say of it is taken over; where it stands and to whom it belongs is the group's.
Nothing here asks whether it may be made: which kinds there are says the chart, and what a user may make the API server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kbatch.api.names import API_VERSION
from kbatch.api.objects import MOST_OBJECTS, MadeObject, PodGroup, PodGroupSpec
from kbatch.model.makers import sizes
from kbatch.model.peers import member_name
from kbatch.model.template_budget import Budget
from kbatch.model.templates import TemplateError, render_object

MOST_BYTES: Final = 256 * 2**10
"""Of all objects of a group together, rendered, as JSON."""
MOST_PEERS: Final = 20_000
"""Members that an object may name: their names alone are as large as objects may be."""

_METADATA: Final = frozenset({"name", "labels", "annotations"})
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_LONGEST_NAME: Final = 253
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class GroupObject:
    """An object as it is to be made. `manifest` has everything but apiVersion and kind, the owner included."""

    ref: MadeObject
    manifest: Mapping[str, Any]


def objects_of(group: PodGroup, budget: Budget | None = None) -> tuple[GroupObject, ...]:
    """The objects of a group, in the order in which it names them, owned by it; rendered from the budget, or one of
    their own.

    Raises:
        TemplateError: one cannot be made; its path starts at the spec, such as `objects[1].metadata.name`.
    """
    meta = group.metadata
    owner = {"apiVersion": API_VERSION, "kind": "PodGroup", "name": meta.name, "uid": meta.uid, "controller": True}
    found = []
    for rendered in render(group.spec, group=meta.name, namespace=meta.namespace, budget=budget):
        body = {key: value for key, value in rendered.items() if key not in ("apiVersion", "kind")}
        body["metadata"] = {**rendered["metadata"], "namespace": meta.namespace, "ownerReferences": [owner]}
        found.append(GroupObject(_ref(rendered), body))
    return tuple(found)


def render(spec: PodGroupSpec, *, group: str, namespace: str, budget: Budget | None = None) -> list[dict[str, Any]]:
    """The objects as they are rendered for a group of this name, from the budget or one of their own.

    Raises:
        TemplateError: one cannot be made.
    """
    given = spec.objects or ()
    if len(given) > MOST_OBJECTS:
        raise TemplateError("objects", f"more than {MOST_OBJECTS}")
    for index, one in enumerate(given):
        _check_kind(one, f"objects[{index}]")
    peers = tuple(_members(spec, group)) if _name_members(given) else ()
    # All in one, so that the bounds of a rendering are those of all of them together.
    whole = render_object(
        {"objects": given}, group=group, namespace=namespace, size=_size(spec), peers=peers, budget=budget
    )
    rendered: list[dict[str, Any]] = whole["objects"]
    known: set[MadeObject] = set()
    for index, one in enumerate(rendered):
        _check_metadata(one.get("metadata"), f"objects[{index}].metadata")
        ref = _ref(one)
        if ref in known:
            raise TemplateError(f"objects[{index}].metadata.name", f"there is another {ref.kind} {ref.name}")
        known.add(ref)
    if len(_encode(rendered)) > MOST_BYTES:
        raise TemplateError("objects", f"larger than {MOST_BYTES} bytes in all")
    return rendered


def _check_kind(template: Mapping[str, Any], path: str) -> None:
    for key in ("apiVersion", "kind"):
        text = template.get(key)
        if not isinstance(text, str) or not text or "{" in text:
            # Whether the user may make such an object is asked of the API server with what stands here.
            raise TemplateError(f"{path}.{key}", "a plain text, without expressions")


def _check_metadata(metadata: object, path: str) -> None:
    if not isinstance(metadata, dict):
        raise TemplateError(path, "an object with the name")
    if foreign := min(metadata.keys() - _METADATA, default=""):
        raise TemplateError(f"{path}.{foreign}", f"cannot be said here; there are {', '.join(sorted(_METADATA))}")
    name = metadata.get("name")
    if not isinstance(name, str) or len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
        raise TemplateError(f"{path}.name", f"{str(name)[:_LONGEST_NAME]!r} is no valid name")
    for key in ("labels", "annotations"):
        texts = metadata.get(key) or {}
        if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
            raise TemplateError(f"{path}.{key}", "texts by key")


def _name_members(objects: Sequence[Mapping[str, Any]]) -> bool:
    return b"peers" in _encode(objects)


def _size(spec: PodGroupSpec) -> int:
    return sum(size.most for size in sizes(spec))


def _members(spec: PodGroupSpec, group: str) -> Iterator[str]:
    count = _size(spec)
    if count > MOST_PEERS:
        raise TemplateError(
            "objects", f"they name the members of a group of {count}; of more than {MOST_PEERS} it cannot"
        )
    for size in sizes(spec):
        for index in range(size.most):
            yield member_name(group, size.role, index)


def _ref(rendered: Mapping[str, Any]) -> MadeObject:
    return MadeObject(api_version=rendered["apiVersion"], kind=rendered["kind"], name=rendered["metadata"]["name"])
