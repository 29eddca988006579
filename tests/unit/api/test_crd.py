"""The CRDs: what stands in the checkout is what the models say, and what an API server takes."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Annotated, Any

import kubernetes_validate
import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, ValidationError

from kbatch.api import crd, objects
from kbatch.api.podgroup import MadeObject, PodGroup, PodGroupSpec, PodGroupStatus, SubGroup, SubGroupStatus, Topology
from kbatch.api.queue import Queue, QueueSpec, QueueStatus
from kbatch.api.schema import ApiModel, Condition
from kbatch.resources import QuantityError, parse_quantity

ROOT = Path(__file__).resolve().parents[3]


def _versions(kind: crd.Definition) -> dict[str, Any]:
    version: dict[str, Any] = crd.definition(kind)["spec"]["versions"][0]
    return version


def _schema(kind: crd.Definition) -> dict[str, Any]:
    schema: dict[str, Any] = _versions(kind)["schema"]["openAPIV3Schema"]
    return schema


def _fields(schema: dict[str, Any], path: str = "") -> dict[str, dict[str, Any]]:
    """Every field of a schema by its path."""
    found = {path: schema}
    for name, field in schema.get("properties", {}).items():
        found |= _fields(field, f"{path}.{name}")
    if isinstance(schema.get("items"), dict):
        found |= _fields(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        found |= _fields(schema["additionalProperties"], f"{path}{{}}")
    return found


PODGROUP, QUEUE = crd.DEFINITIONS


@pytest.mark.parametrize("path", crd.files(ROOT), ids=lambda path: str(path.relative_to(ROOT)))
def test_files_are_what_the_models_generate(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == crd.files(ROOT)[path], "run `make crds`"


def test_no_other_manifest_stands_beside_the_generated_ones() -> None:
    generated = set(crd.files(ROOT))
    assert set((ROOT / "crds").iterdir()) <= generated
    assert set((ROOT / "charts/kbatch/files/crds").iterdir()) <= generated


@pytest.mark.parametrize("kind", crd.DEFINITIONS, ids=lambda kind: kind.plural)
def test_manifests_are_valid_and_the_validator_is_not_asleep(kind: crd.Definition) -> None:
    manifest = yaml.safe_load(crd.render(kind))
    version = kubernetes_validate.latest_version()
    kubernetes_validate.validate(manifest, version, strict=True)
    spoilt = copy.deepcopy(manifest)
    spec = spoilt["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    next(iter(spec["properties"].values()))["exclusiveMinimum"] = 3
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(spoilt, version, strict=True)


@pytest.mark.parametrize("kind", crd.DEFINITIONS, ids=lambda kind: kind.plural)
def test_schemas_are_structural(kind: crd.Definition) -> None:
    for path, field in _fields(_schema(kind)).items():
        assert "$ref" not in field, path
        assert field.get("type") in {"object", "array", "string", "integer", "boolean"} or field.get(
            "x-kubernetes-int-or-string"
        ), path
        assert not ("properties" in field and "additionalProperties" in field), path
        assert "title" not in field, path
        if field.get("type") == "array":
            assert field["x-kubernetes-list-type"] in {"map", "atomic", "set"}, path


@pytest.mark.parametrize("kind", crd.DEFINITIONS, ids=lambda kind: kind.plural)
def test_every_field_is_described(kind: crd.Definition) -> None:
    bare = [
        path
        for path, field in _fields(_schema(kind)).items()
        if path not in ("", ".metadata") and not path.endswith(("[]", "{}")) and not field.get("description")
    ]
    assert bare == []


@pytest.mark.parametrize("kind", crd.DEFINITIONS, ids=lambda kind: kind.plural)
def test_no_field_of_a_status_has_a_default(kind: crd.Definition) -> None:
    fields = _fields(_schema(kind)["properties"]["status"])
    assert len(fields) > 10
    assert [path for path, field in fields.items() if path and "default" in field] == []


def test_a_new_group_is_pending_before_anybody_wrote_so() -> None:
    groups, queues = (_schema(kind)["properties"]["status"] for kind in crd.DEFINITIONS)
    assert groups["default"] == {"phase": "Pending"}
    assert "default" not in queues


def _alternatives(path: str) -> list[str]:
    """The fields of which a column shows the first that is there."""
    union = re.fullmatch(r"(.*)\[('\w+'(?:,'\w+')+)\]", path)
    return [path] if union is None else [f"{union[1]}.{name}" for name in union[2].replace("'", "").split(",")]


@pytest.mark.parametrize("kind", crd.DEFINITIONS, ids=lambda kind: kind.plural)
def test_printer_columns_and_selectable_fields_name_fields_that_exist(kind: crd.Definition) -> None:
    fields = _fields(_schema(kind))
    columns = _versions(kind)["additionalPrinterColumns"]
    assert [column["name"] for column in columns][-1] == "Age"
    shown = [path for column in columns for path in _alternatives(column["jsonPath"])]
    for path in [*shown, *kind.selectable]:
        plain = re.sub(r"\[\?\(@\.type==\"[A-Za-z]+\"\)\]", "[]", path)
        plain = re.sub(r"(deserved|allocated|capability)\.[a-z]+$", r"\1{}", plain)
        assert plain == ".metadata.creationTimestamp" or plain in fields, path


def test_defaults_are_those_of_the_design() -> None:
    spec = _schema(PODGROUP)["properties"]["spec"]
    assert spec["default"] == {}
    assert {name: field["default"] for name, field in spec["properties"].items() if "default" in field} == {
        "minMember": 1,
        "queue": "default",
        "minRuntimeSeconds": 0,
        "disruption": "Surplus",
        "badNodeLimit": 2,
        "scheduleTimeoutSeconds": 300,
    }
    spec = _schema(QUEUE)["properties"]["spec"]
    assert {name: field["default"] for name, field in spec["properties"].items() if "default" in field} == {
        "weight": 1,
        "reclaimable": True,
        "state": "Open",
    }


@pytest.mark.parametrize(
    ("model", "struct"),
    [
        (PodGroupSpec, objects.PodGroupSpec),
        (PodGroupStatus, objects.PodGroupStatus),
        (MadeObject, objects.MadeObject),
        (SubGroup, objects.SubGroup),
        (SubGroupStatus, objects.SubGroupStatus),
        (Topology, objects.GroupTopology),
        (QueueSpec, objects.QueueSpec),
        (QueueStatus, objects.QueueStatus),
        (Condition, objects.Condition),
    ],
)
def test_the_structs_that_are_decoded_have_the_same_fields_and_defaults(
    model: type[ApiModel], struct: type[msgspec.Struct]
) -> None:
    fields = {field.encode_name: field for field in msgspec.structs.fields(struct)}
    assert set(fields) == {field.alias for field in model.model_fields.values()}
    for field in model.model_fields.values():
        other = fields[str(field.alias)]
        if not field.is_required():
            assert (other.default or None) == (field.default or None), field.alias


def test_models_read_manifests_and_refuse_what_the_crd_refuses() -> None:
    seed = PodGroup.model_validate({"spec": {"minMember": 6}})
    assert seed.spec.min_member == 6
    assert seed.spec.model_dump(by_alias=True, exclude_none=True) == {
        "minMember": 6,
        "queue": "default",
        "minRuntimeSeconds": 0,
        "disruption": "Surplus",
        "badNodeLimit": 2,
        "scheduleTimeoutSeconds": 300,
    }
    with pytest.raises(ValidationError, match="minMember"):
        PodGroupSpec.model_validate({"minMember": -1})
    with pytest.raises(ValidationError, match="minMembers"):
        PodGroupSpec.model_validate({"minMembers": 1})
    with pytest.raises(ValidationError, match="weight"):
        Queue.model_validate({"spec": {"weight": 0}})


def _pattern() -> str:
    field = _schema(PODGROUP)["properties"]["spec"]["properties"]["minResources"]["additionalProperties"]
    return str(field["pattern"])


@given(text=st.from_regex(re.compile(_pattern(), re.ASCII), fullmatch=True).filter(lambda text: len(text) <= 32))
def test_every_quantity_that_the_pattern_lets_in_is_read_unless_too_large(text: str) -> None:
    try:
        parse_quantity("memory", text)
    except QuantityError as error:
        refused = str(error)
    else:
        return
    assert "larger than" in refused


@given(text=st.text(alphabet="0123456789.+-eEkKMGimnu ", max_size=8))
def test_every_quantity_that_is_read_is_let_in_by_the_pattern(text: str) -> None:
    try:
        parse_quantity("memory", text)
    except QuantityError:
        return
    assert re.search(_pattern(), text)


class _Inner(BaseModel):
    """Says what it is."""

    number: int = 3


class _Outer(BaseModel):
    above: Annotated[int, Field(gt=0, lt=9)]
    inner: _Inner = Field(description="Says what it is here.")
    maybe: _Inner | None = None
    kind: Annotated[str, Field(json_schema_extra={"const": "x"})]


def test_translation_inlines_references_and_turns_bounds_and_constants() -> None:
    fields = crd.structural(_Outer.model_json_schema())["properties"]
    assert fields["above"] == {
        "type": "integer",
        "minimum": 0,
        "exclusiveMinimum": True,
        "maximum": 9,
        "exclusiveMaximum": True,
    }
    assert fields["inner"]["description"] == "Says what it is here."
    assert fields["maybe"] == {
        "type": "object",
        "description": "Says what it is.",
        "properties": {"number": {"type": "integer", "default": 3}},
    }
    assert fields["kind"] == {"type": "string", "enum": ["x"]}


class _Tree(BaseModel):
    children: list[_Tree] = []


class _Union(BaseModel):
    either: int | bool = 0


class _Untyped(BaseModel):
    anything: Any = None


@pytest.mark.parametrize("model", [_Tree, _Union, _Untyped])
def test_what_has_no_structural_form_is_refused_when_generating(model: type[BaseModel]) -> None:
    with pytest.raises(ValueError, match="structural"):
        crd.structural(model.model_json_schema())
