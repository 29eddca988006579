"""Have the CustomResourceDefinitions that are installed all fields that this process reads and writes?

Helm upgrades CRDs only where they are the release's own, and nobody does where they are applied by hand: an older one
drops what it does not know, or refuses it. What is served is asked of the API server's OpenAPI document, which every
ServiceAccount may read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, cast

import msgspec
from msgspec import inspect

from kbatch.api.names import GROUP
from kbatch.kube.client import Api
from kbatch.kube.errors import ApiError
from kbatch.kube.kinds import AnyKind

ANSWER_SECONDS: Final = 10.0

_OURS: Final = ("spec", "status")


class _Components(msgspec.Struct):
    schemas: dict[str, dict[str, Any]] = {}


class _Document(msgspec.Struct):
    components: _Components = msgspec.field(default_factory=_Components)


async def lacking(api: Api, kinds: Iterable[AnyKind]) -> dict[str, list[str]]:
    """By the name of its CRD, the fields of each kind of kbatch's own that are not served, as `status.finished`.

    Kinds that are not served yet are left out: the document, and whether there is one, follows the CRDs by a moment.

    Raises:
        ApiError: the server refused.
        NoAnswerError: no answer.
        msgspec.DecodeError: an answer that is no OpenAPI document.
    """
    found: dict[str, list[str]] = {}
    documents: dict[str, _Document] = {}
    for kind in kinds:
        if kind.group != GROUP:
            continue
        if kind.api_version not in documents:
            documents[kind.api_version] = await _document(api, kind.api_version)
        schema = _schema_of(kind, documents[kind.api_version])
        missing = [] if schema is None else list(missing_fields(kind.type, schema))
        if missing:
            found[f"{kind.plural}.{kind.group}"] = missing
    return found


async def _document(api: Api, api_version: str) -> _Document:
    """What is served of a version of a group; empty where the server has no document of it."""
    try:
        answer = await api.request("GET", f"/openapi/v3/apis/{api_version}", timeout_seconds=ANSWER_SECONDS)
    except ApiError as error:
        if error.status != 404:
            raise
        return _Document()
    return msgspec.json.decode(answer, type=_Document)


def missing_fields(kind: type, schema: Mapping[str, Any]) -> Iterator[str]:
    """What a kind's struct has in its spec and status, and this schema of the kind does not."""
    whole = cast("inspect.StructType", inspect.type_info(kind))
    for field in whole.fields:
        if field.encode_name in _OURS:
            yield from _missing(field.type, schema.get("properties", {}).get(field.encode_name, {}), field.encode_name)


def _missing(kind: inspect.Type, schema: Mapping[str, Any], path: str) -> Iterator[str]:
    match kind:
        case inspect.UnionType(types=types):
            for one in types:
                yield from _missing(one, schema, path)
        case inspect.VarTupleType(item_type=item):
            yield from _missing(item, schema.get("items", {}), f"{path}[]")
        case inspect.StructType(fields=fields) if "properties" in schema:
            for field in fields:
                below = f"{path}.{field.encode_name}"
                served = schema["properties"].get(field.encode_name)
                if served is None:
                    yield below
                else:
                    yield from _missing(field.type, served, below)


def _schema_of(kind: AnyKind, document: _Document) -> Mapping[str, Any] | None:
    wanted = {"group": kind.group, "version": kind.version, "kind": kind.name}
    for schema in document.components.schemas.values():
        if wanted in schema.get("x-kubernetes-group-version-kind", ()):
            return schema
    return None
