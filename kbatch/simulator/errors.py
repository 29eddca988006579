"""What can be wrong with the input, each with the place where it stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where an object stands: the file, the number of its document in it (from 1), its index in a list (from 0);
    of a table or log the number of the line (from 1).
    """

    source: str
    document: int = 0
    item: int | None = None
    line: int = 0

    def __str__(self) -> str:
        text = self.source
        if self.document:
            text += f", document {self.document}"
        if self.item is not None:
            text += f", items[{self.item}]"
        if self.line:
            text += f", line {self.line}"
        return text


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong: where, in which field (dotted path; empty for the object as a whole), and what."""

    place: Place
    field: str
    what: str

    def __str__(self) -> str:
        return ": ".join(part for part in (str(self.place), self.field, self.what) if part)


class InputError(Exception):
    """The input cannot be simulated: a live cluster would refuse it, or nobody could read it."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("\n".join(str(fault) for fault in faults))
        self.faults = tuple(faults)


class FieldError(ValueError):
    """A field of the object at hand is wrong; whoever knows the object's place turns it into a `Fault`."""

    def __init__(self, field: str, what: str) -> None:
        super().__init__(f"{field}: {what}")
        self.field = field
        self.what = what
