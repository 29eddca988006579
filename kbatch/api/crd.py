"""CustomResourceDefinitions from the typed models: `python -m kbatch.api.crd` writes crds/, the chart's copy, and the
tables of fields in docs/reference.

Pydantic writes JSON schema 2020-12; the API server takes *structural* schemas, a narrower and older form: no
references, no `null` types, exclusive bounds as flags, no closed objects. `structural` is that translation.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from kbatch.api.names import GROUP, VERSION
from kbatch.api.podgroup import PODGROUP_COLUMNS, PodGroup, PodGroupPhase
from kbatch.api.queue import QUEUE_COLUMNS, Queue
from kbatch.api.reference import fill
from kbatch.api.schema import ApiModel, PrinterColumn

_HEADER: Final = "# Generated from kbatch/api by `make crds`. Change the models, not this file.\n"
_DROPPED: Final = frozenset({"title", "$defs", "examples", "discriminator"})
_FOLDERS: Final = ("crds", "charts/kbatch/files/crds")


@dataclass(frozen=True, slots=True)
class Definition:
    """One kind: its model, and what the API server shows of it."""

    model: type[ApiModel]
    kind: str
    plural: str
    short_names: tuple[str, ...]
    namespaced: bool
    columns: tuple[PrinterColumn, ...]
    selectable: tuple[str, ...]
    """JSON paths that `kubectl get --field-selector` accepts."""
    born: Mapping[str, Any] | None = None
    """The status of an object that nobody has written a status of yet."""


DEFINITIONS: Final = (
    Definition(
        model=PodGroup,
        kind="PodGroup",
        plural="podgroups",
        short_names=("pg",),
        namespaced=True,
        columns=PODGROUP_COLUMNS,
        selectable=(".spec.queue", ".status.phase"),
        # Users see that a new group waits before anybody had to write so.
        born={"phase": PodGroupPhase.PENDING.value},
    ),
    Definition(
        model=Queue,
        kind="Queue",
        plural="queues",
        short_names=("q",),
        namespaced=False,
        columns=QUEUE_COLUMNS,
        selectable=(".spec.state", ".spec.parent"),
    ),
)


def definition(kind: Definition) -> dict[str, Any]:
    """The CustomResourceDefinition of a kind, as a manifest."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{kind.plural}.{GROUP}",
            # The API server refuses a CRD in a *.k8s.io group without it.
            "annotations": {"api-approved.kubernetes.io": "unapproved, experimental-only"},
        },
        "spec": {
            "group": GROUP,
            "names": {
                "categories": ["kbatch"],
                "kind": kind.kind,
                "listKind": f"{kind.kind}List",
                "plural": kind.plural,
                "shortNames": list(kind.short_names),
                "singular": kind.kind.lower(),
            },
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [
                {
                    "additionalPrinterColumns": [column.to_schema() for column in kind.columns],
                    "name": VERSION,
                    "schema": {"openAPIV3Schema": object_schema(kind.model, kind.born)},
                    "selectableFields": [{"jsonPath": path} for path in kind.selectable],
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                }
            ],
        },
    }


def object_schema(model: type[ApiModel], born: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The structural schema of a whole object: the model's spec and status beside what every object has.

    Args:
        model: the kind.
        born: the default of its status.
    """
    schema = structural(model.model_json_schema(by_alias=True, mode="validation"))
    properties: dict[str, Any] = schema["properties"]
    properties["spec"]["default"] = {}
    _drop_defaults(properties["status"])
    if born is not None:
        properties["status"]["default"] = dict(born)
    schema["properties"] = {
        "apiVersion": {"type": "string", "description": "The version of the schema that this object is written in."},
        "kind": {"type": "string", "description": "The kind of this object."},
        "metadata": {"type": "object"},
        **properties,
    }
    return schema


def structural(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON schema as pydantic writes it, in the form that the API server takes.

    Raises:
        ValueError: something that has no structural form, such as a union of objects or a recursive model.
    """
    return _translate(schema, schema.get("$defs", {}), ())


def _translate(schema: Mapping[str, Any], definitions: Mapping[str, Any], inside: tuple[str, ...]) -> dict[str, Any]:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name in inside:
            raise ValueError(f"{name} contains itself: a structural schema cannot be recursive")
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        # What stands beside a reference speaks of this field, so it goes before what the type says of itself.
        return _translate({**definitions[name], **beside}, definitions, (*inside, name))
    if "anyOf" in schema and not schema.get("x-kubernetes-int-or-string"):
        options = [option for option in schema["anyOf"] if option != {"type": "null"}]
        if len(options) != 1:
            raise ValueError(f"a union has no structural form: {schema['anyOf']}")
        beside = {key: value for key, value in schema.items() if key != "anyOf"}
        return _translate({**options[0], **beside}, definitions, inside)
    translated: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _DROPPED or (key == "default" and value is None) or (key == "additionalProperties" and not value):
            continue
        if key == "properties":
            translated[key] = {name: _translate(field, definitions, inside) for name, field in value.items()}
        elif key == "items" or (key == "additionalProperties" and isinstance(value, Mapping)):
            translated[key] = _translate(value, definitions, inside)
        elif key in ("exclusiveMinimum", "exclusiveMaximum"):
            translated[key.removeprefix("exclusive").lower()] = value
            translated[key] = True
        elif key == "const":
            translated["enum"] = [value]
        else:
            translated[key] = value
    if schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-int-or-string"):
        translated.pop("additionalProperties", None)
    elif "type" not in translated:
        raise ValueError(f"a field without a type has no structural form: {dict(schema)}")
    return translated


def _drop_defaults(schema: dict[str, Any]) -> None:
    """Remove every default below: a status holds what was written, nothing that nobody wrote."""
    schema.pop("default", None)
    for field in schema.get("properties", {}).values():
        _drop_defaults(field)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            _drop_defaults(schema[key])


class _Dumper(yaml.SafeDumper):
    """Without anchors: a manifest is read by people."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def render(kind: Definition) -> str:
    """The manifest of a kind's CRD, as it stands in the files."""
    return _HEADER + yaml.dump(definition(kind), Dumper=_Dumper, width=120, allow_unicode=True, sort_keys=True)


def files(root: Path) -> dict[Path, str]:
    """Every generated file below `root`, the project's checkout, with its content."""
    found = {root / folder / f"{kind.plural}.yaml": render(kind) for folder in _FOLDERS for kind in DEFINITIONS}
    for kind in DEFINITIONS:
        page = root / "docs" / "reference" / f"{kind.kind.lower()}.md"
        if page.is_file():  # a source distribution has no docs
            found[page] = fill(page.read_text(encoding="utf-8"), object_schema(kind.model))
    return found


def main() -> int:
    """Write the files into the checkout that this module stands in, and name those that changed."""
    root = Path(__file__).resolve().parents[2]
    if not (root / "pyproject.toml").is_file():
        print("the CRDs are generated in a checkout of kbatch", file=sys.stderr)
        return 1
    for path, content in files(root).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_text(encoding="utf-8") != content:
            path.write_text(content, encoding="utf-8")
            print(path.relative_to(root))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
