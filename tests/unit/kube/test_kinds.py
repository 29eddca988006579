"""What is read of objects may be less than what stands there: other releases, and Kubernetes' own, know more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import inspect

from kbatch.kube import kinds
from kbatch.kube.kinds import Kind

ALL = [one for one in vars(kinds).values() if isinstance(one, Kind) and one.type is not dict]


def parts(kind: inspect.Type, seen: set[type]) -> Iterator[inspect.Type]:
    """A type and all that it is made of."""
    yield kind
    match kind:
        case inspect.UnionType(types=types):
            below = list(types)
        case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
            below = [item]
        case inspect.DictType(value_type=value):
            below = [value]
        case inspect.StructType(cls=cls, fields=fields) if cls not in seen:
            seen.add(cls)
            below = [field.type for field in fields]
        case _:
            below = []
    for one in below:
        yield from parts(one, seen)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.name)
def test_fields_and_words_of_a_newer_release_are_no_errors(kind: Kind[Any]) -> None:
    """An object of which a field cannot be read is left out whole: so no field is forbidden, and no word of a list."""
    for part in parts(inspect.type_info(kind.type), set()):
        assert not isinstance(part, inspect.EnumType | inspect.LiteralType), part
        if isinstance(part, inspect.StructType):
            assert not part.forbid_unknown_fields, part.cls
