"""What the models of kbatch's own kinds are made of: a base, and field types that carry Kubernetes' own markers.

Everything a CRD can say about a field stands on the field, as `json_schema_extra`; `kbatch.api.crd` turns the models
into structural schemas. A rule (`Rule`) is an expression in CEL, evaluated by the API server at every write.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, StringConstraints
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from kbatch.resources import LONGEST_NAME

MOST_RESOURCES: Final = 32
MOST_ROLES: Final = 64
MOST_SELECTED: Final = 64
"""Entries of each list of a label selector."""
MOST_MEMBERS: Final = 1_000_000
MOST_SECONDS: Final = 10 * 366 * 24 * 3600
"""Ten years: nothing waits longer. An instant of today and ten years more are 2.1e15 microseconds since the epoch, far
below 2**53 (9.0e15)."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A validation in CEL: `expression` must be true; `message` or `message_expression` says why it was refused."""

    expression: str
    message: str = ""
    message_expression: str = ""
    field_path: str = ""
    """Path of the field that the error names, from the place where the rule stands, such as `.spec.queue`."""

    def to_schema(self) -> dict[str, str]:
        """The rule as an entry of `x-kubernetes-validations`."""
        parts = {
            "fieldPath": self.field_path,
            "message": self.message,
            "messageExpression": self.message_expression,
            "rule": self.expression,
        }
        return {name: part for name, part in parts.items() if part}


class ApiModel(BaseModel):
    """Base of all parts of PodGroup and Queue: camelCase in manifests, unknown fields refused, values not changed."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        use_enum_values=True,
    )
    rules: ClassVar[tuple[Rule, ...]] = ()
    """What the API server checks of this part beyond its fields' types."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Pydantic's schema with the rules on it."""
        schema = handler(core_schema)
        if cls.rules:
            handler.resolve_ref_schema(schema)["x-kubernetes-validations"] = [rule.to_schema() for rule in cls.rules]
        return schema


def _int_or_text(pattern: str) -> FieldInfo:
    """The schema of a bare integer, or a text that matches."""
    extra: JsonDict = {
        "x-kubernetes-int-or-string": True,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "maxLength": 32,
        "pattern": pattern,
    }
    found: FieldInfo = Field(json_schema_extra=extra)
    return found


# As `kbatch.resources` reads it: the whole grammar of Kubernetes' quantities, without a sign that is odd.
Quantity: TypeAlias = Annotated[
    int | str, _int_or_text(r"^[+-]?([0-9]+|[0-9]+\.[0-9]*|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,3})?$")
]

_NOT_NEGATIVE: Final = Rule(
    # isLessThan on quantities; a bare integer in a manifest arrives as one.
    expression="self.all(name, !quantity(string(self[name])).isLessThan(quantity('0')))",
    message="amounts must not be negative",
)

_COUNTABLE: Final = Rule(
    # 2**53 units, as `kbatch.resources` counts: milli-cores of cpu, base units of everything else.
    expression=(
        "self.all(name, !quantity(string(self[name]))"
        ".isGreaterThan(quantity(name == 'cpu' ? '9007199254740992m' : '9007199254740992')))"
    ),
    message="amounts must not be larger than 2^53 units (milli-cores of cpu)",
)

_NAMEABLE: Final = Rule(
    expression=f"self.all(name, name.size() <= {LONGEST_NAME})",
    message=f"the name of a resource must not be longer than {LONGEST_NAME} characters",
)

ResourceList: TypeAlias = Annotated[
    dict[str, Quantity],
    Field(
        json_schema_extra={
            "maxProperties": MOST_RESOURCES,
            "x-kubernetes-validations": [_NOT_NEGATIVE.to_schema(), _COUNTABLE.to_schema(), _NAMEABLE.to_schema()],
        }
    ),
]
"""Amounts by resource name, as a pod's requests are written; none negative, none beyond what kbatch counts exactly."""

Usage: TypeAlias = Annotated[int | str, _int_or_text(r"^[0-9]+(\.[0-9]{1,6})?$")]
"""A number with up to six decimals: a bare integer where it is whole, else a text."""

StatusResourceList: TypeAlias = dict[str, Quantity]
"""Amounts by resource name in a status: written by kbatch alone, so not checked again."""

DnsLabel: TypeAlias = Annotated[
    str, StringConstraints(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
]
DnsName: TypeAlias = Annotated[
    str,
    StringConstraints(
        min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
    ),
]
Time: TypeAlias = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
Count: TypeAlias = Annotated[int, Field(ge=0, json_schema_extra={"format": "int32"})]


class Condition(ApiModel):
    """One aspect of the object's state, as all Kubernetes objects tell it."""

    type: Annotated[str, StringConstraints(min_length=1, max_length=316)]
    """What it is about, in CamelCase."""
    status: Annotated[str, Field(json_schema_extra={"enum": ["True", "False", "Unknown"]})]
    """True, False or Unknown."""
    reason: Annotated[str, StringConstraints(max_length=1024)] = ""
    """Why, in one word that programs may compare; `<plugin>/<Code>` where it is a plugin's own."""
    message: Annotated[str, StringConstraints(max_length=32768)] = ""
    """Why, for people: the numbers, and what would help."""
    last_transition_time: Time | None = None
    """When the status last flipped."""
    observed_generation: Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})] | None = None
    """The generation of the spec that the condition is about."""


Conditions: TypeAlias = Annotated[
    list[Condition],
    Field(json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
]


class SelectorOperator(StrEnum):
    """How an expression of a label selector compares."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class LabelSelectorRequirement(ApiModel):
    """One expression of a label selector."""

    key: Annotated[str, StringConstraints(min_length=1, max_length=317)]
    """The key of the label."""
    operator: SelectorOperator
    """How the label is compared with the values."""
    values: (
        Annotated[
            list[Annotated[str, StringConstraints(max_length=63)]],
            Field(max_length=MOST_SELECTED, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
        ]
        | None
    ) = None
    """Values for In and NotIn; must be empty for Exists and DoesNotExist."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            expression="(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
            message="In and NotIn need values, Exists and DoesNotExist must have none",
            field_path=".values",
        ),
    )


class LabelSelector(ApiModel):
    """Which objects, by their labels: those for which all of it holds. An empty one selects all."""

    match_labels: Annotated[dict[str, str], Field(json_schema_extra={"maxProperties": MOST_SELECTED})] | None = None
    """Labels with their values."""
    match_expressions: (
        Annotated[
            list[LabelSelectorRequirement],
            Field(max_length=MOST_SELECTED, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
        ]
        | None
    ) = None
    """Expressions about labels."""


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """A column of `kubectl get`; of priority 1 only with `-o wide`."""

    name: str
    type: str
    json_path: str
    description: str
    priority: int = 0

    def to_schema(self) -> dict[str, Any]:
        """The column as the CRD writes it."""
        column: dict[str, Any] = {
            "description": self.description,
            "jsonPath": self.json_path,
            "name": self.name,
            "type": self.type,
        }
        if self.priority:
            column["priority"] = self.priority
        return column
