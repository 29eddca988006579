"""What the days of a made trace are like: a specification in YAML, read strictly.

`docs/traces.md` describes its words for users; the jobs that come of it are made by `generation`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from kbatch.api.configuration import nearest
from kbatch.api.names import DEFAULT_QUEUE
from kbatch.api.yaml_nodes import YamlError, read_value, root_of
from kbatch.resources import CPU, QuantityError, parse_quantity
from kbatch.simulator.errors import Fault, InputError, Place
from kbatch.simulator.traces.jobs import DIMENSIONS

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

HOURS_OF_A_DAY: Final = 24
MOST_TASKS: Final = 100_000
MOST_SECONDS: Final = 10**7
_MEMORY: Final = DIMENSIONS[1]


def _quantity(resource: str) -> BeforeValidator:
    """Reads an amount as Kubernetes writes it; not negative."""

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError("must be a quantity")  # noqa: TRY004 -- what a validator raises
        try:
            amount = parse_quantity(resource, value)
        except QuantityError as error:
            raise ValueError(str(error)) from None
        if amount < 0:
            raise ValueError("must not be negative")
        return amount

    return BeforeValidator(read)


def _one_or_several(value: object) -> object:
    """A value by itself is all that there is."""
    if isinstance(value, list):
        raise ValueError("must be a number, or numbers with how often each comes")  # noqa: TRY004 -- as above
    return value if isinstance(value, dict) else {value: 1}


Cpu = Annotated[int, _quantity(CPU)]
Memory = Annotated[int, _quantity(_MEMORY)]
Rate = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0, le=MOST_SECONDS, allow_inf_nan=False)]
Size = Annotated[int, Field(ge=1, le=MOST_TASKS)]
Priority = Annotated[int, Field(ge=-(2**31) + 1, le=10**9)]


class _Strict(BaseModel):
    """Unknown words are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NodesSpec(_Strict):
    """The nodes, all alike: milli-cores, bytes (None: memory without end) and GPUs of each."""

    count: Annotated[int, Field(ge=1, le=1_000_000)]
    cpu: Cpu
    memory: Memory | None = None
    gpu: Annotated[int, Field(ge=0, le=1024)] = 0


class QueueSpec(_Strict):
    """A queue: what it counts in the division of the cluster, and how much of the work is its own."""

    weight: Annotated[int, Field(ge=1, le=10**6)] = 1
    arrivals: Rate = 1.0


class RunSpec(_Strict):
    """Run times in seconds: log-normal, half of them below the median, nine of ten below `p90`, cut off at the ends."""

    median: Seconds
    p90: Seconds
    least: Seconds = 1.0
    most: Seconds = 604_800.0

    @model_validator(mode="after")
    def _rising(self) -> RunSpec:
        if not self.least <= self.median <= self.p90 <= self.most:
            raise ValueError("least, median, p90 and most must not fall")
        return self


class EstimateSpec(_Strict):
    """What owners say of the run time: so many times as long, evenly between the two; to a number that people give."""

    least: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)] = 1.0
    most: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)] = 5.0
    round: bool = True

    @model_validator(mode="after")
    def _rising(self) -> EstimateSpec:
        if self.least > self.most:
            raise ValueError("least must not be above most")
        return self


class KindSpec(_Strict):
    """A kind of jobs: what a task asks for, and how often which number of tasks and which priority.

    Attributes:
        arrivals: how often it comes, beside the other kinds.
        queues: which queues it comes in, and how often; empty: all, by their own `arrivals`.
    """

    name: Annotated[str, Field(min_length=1, max_length=63)]
    arrivals: Rate = 1.0
    tasks: Annotated[dict[Size, Rate], BeforeValidator(_one_or_several), Field(min_length=1)] = {1: 1.0}
    cpu: Cpu = 1000
    memory: Memory = 0
    gpu: Annotated[int, Field(ge=0, le=1024)] = 0
    run: RunSpec
    estimate: EstimateSpec = EstimateSpec()
    priority: Annotated[dict[Priority, Rate], BeforeValidator(_one_or_several), Field(min_length=1)] = {0: 1.0}
    queues: dict[str, Rate] = {}


class DaySpec(_Strict):
    """All that is said of the days.

    Attributes:
        load: what the jobs ask for, over what the nodes offer in all the days, of the resource that is asked for most.
        hours: how many jobs come in each hour of a day, beside the other hours.
    """

    days: Annotated[float, Field(gt=0, le=366)] = 1.0
    load: Annotated[float, Field(gt=0, le=100)]
    seed: Annotated[int, Field(ge=0)] = 1
    nodes: NodesSpec
    hours: Annotated[list[Rate], Field(min_length=HOURS_OF_A_DAY, max_length=HOURS_OF_A_DAY)] = [1.0] * HOURS_OF_A_DAY
    queues: Annotated[dict[str, QueueSpec], Field(min_length=1, max_length=1000)] = {DEFAULT_QUEUE: QueueSpec()}
    kinds: Annotated[list[KindSpec], Field(min_length=1, max_length=100)]

    @model_validator(mode="after")
    def _whole(self) -> DaySpec:
        for kind in self.kinds:
            if unknown := sorted(kind.queues.keys() - self.queues.keys()):
                raise ValueError(f"kind {kind.name!r} names the queue {unknown[0]!r}, which is not one of `queues`")
            if kind.cpu == kind.memory == kind.gpu == 0:
                raise ValueError(f"kind {kind.name!r} asks for nothing")
            rates = kind.queues or {name: queue.arrivals for name, queue in self.queues.items()}
            for what, found in (("tasks", kind.tasks), ("priority", kind.priority), ("queues", rates)):
                if not any(found.values()):
                    raise ValueError(f"kind {kind.name!r}: one of its {what} must come")
        if not any(kind.arrivals for kind in self.kinds):
            raise ValueError("one of the kinds must come")
        if not any(self.hours[: math.ceil(self.days * HOURS_OF_A_DAY)]):
            raise ValueError("hours: no job comes in the time that `days` leaves")
        return self


def read_day(path: Path) -> DaySpec:
    """The specification in a file.

    Raises:
        InputError: it cannot be read, or what it says cannot be; with the line, else the field.
    """
    source = str(path)
    try:
        values = read_value(root_of(path.read_text("utf-8"), "nodes, queues and kinds"))
    except OSError as error:
        raise InputError([Fault(Place(source), "", f"cannot be read: {error.strerror or error}")]) from None
    except UnicodeDecodeError as error:
        raise InputError([Fault(Place(source), "", f"is no UTF-8 text (byte {error.start})")]) from None
    except YamlError as error:
        raise InputError([Fault(Place(source, line=error.line or 0), "", error.message)]) from None
    try:
        return DaySpec.model_validate(values)
    except ValidationError as error:
        faults = [Fault(Place(source), _path(found["loc"]), _sentence(found)) for found in error.errors()]
        raise InputError(faults) from None


_LISTS: Final = frozenset({"kinds", "hours"})
_MODELS: Final[Mapping[str, type[BaseModel]]] = {
    "nodes": NodesSpec, "queues": QueueSpec, "kinds": KindSpec, "run": RunSpec, "estimate": EstimateSpec,
}  # fmt: skip
"""By the fields of a specification what stands in them, or in the entries of them."""

_WORDS: Final[Mapping[str, str]] = {
    "missing": "is missing",
    "model_type": "must be a mapping",
    "dict_type": "must be a mapping",
    "list_type": "must be a list",
    "string_type": "must be a text",
    "string_too_short": "must not be empty",
    "string_too_long": "must have {max_length} characters or fewer",
    "too_short": "must have {min_length} or more entries, not {actual_length}",
    "too_long": "must have {max_length} or fewer entries",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "greater_than": "must be more than {gt:.10g}",
    "greater_than_equal": "must be {ge:.10g} or more",
    "less_than_equal": "must be {le:.10g} or less",
}
"""By pydantic's type of an error what to say of it; others are said in pydantic's words."""


def _path(parts: tuple[str | int, ...]) -> str:
    """`kinds[0].tasks.2`: the field as its file names it."""
    found, before = "", None
    for part in parts:
        if part != "[key]":  # pydantic's word for a key that cannot be one
            found += f"[{part}]" if before in _LISTS else f".{part}"
        before = part
    return found.removeprefix(".")


def _sentence(error: ErrorDetails) -> str:
    """What is wrong with a field."""
    if error["type"] == "extra_forbidden":
        *above, word = map(str, error["loc"])
        inner = above[:1] if above[:1] == ["queues"] else reversed(above)  # a queue may be called by any name
        model = next((_MODELS[part] for part in inner if part in _MODELS), DaySpec)
        near = nearest(word, model.model_fields)
        return f"there is no such field{f'; did you mean {near}?' if near else ''}"
    context: dict[str, Any] = error.get("ctx", {})
    words = _WORDS.get(error["type"])
    if words is None:
        return error["msg"].removeprefix("Value error, ")
    given = error["input"]
    told = f", not {given!r}"[:60] if isinstance(given, str | int | float) and given != "" else ""
    return words.format(**context) + told
