"""What every reason is, and the words that their messages share."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Final

from kbatch.resources import format_quantity

_CODE: Final = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?/)?[A-Z][A-Za-z0-9]{0,127}", re.ASCII)
MOST_TEXT: Final = 512
"""Characters that other people's words may have in a message."""
MOST_KINDS: Final = 8
"""So many of a kind are listed one by one."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Base of all reasons. `code` names it in conditions; a smaller `rank` takes precedence over a larger one."""

    code: ClassVar[str]
    rank: ClassVar[int] = 165
    """Other people's reasons stand just before the catch-all NotEnoughResources, unless they say otherwise."""
    lacks_capacity: ClassVar[bool] = False
    """Whether more or emptier nodes are what would help: only then do pods say Unschedulable to an autoscaler."""

    @property
    def stays(self) -> bool:
        """Whether it holds whatever others give up: the group asks for more than the limit itself."""
        return False

    def __init_subclass__(cls) -> None:
        """Refuse a code that could not stand in a condition.

        Raises:
            TypeError: the code is not of the form `Code` or `plugin/Code`.
        """
        code = getattr(cls, "code", None)
        if code is not None and _CODE.fullmatch(code) is None:
            raise TypeError(f"{cls.__name__}.code {code!r} is not of the form Code or plugin/Code")

    @property
    @abstractmethod
    def message(self) -> str:
        """One line for people: the numbers, and what would help."""
        raise NotImplementedError


def most_specific(reasons: Iterable[Reason | None]) -> Reason | None:
    """The reason that takes precedence, the first of equals; None where there is none."""
    found: Reason | None = None
    for reason in reasons:
        if reason is not None and (found is None or reason.rank < found.rank):
            found = reason
    return found


def amount(resource: str, units: int) -> str:
    """`4 cpu`."""
    return f"{figure(resource, units)} {resource}"


def figure(resource: str, units: int) -> str:
    """`500m` also for a quota's `requests.cpu`, which counts in the units of cpu."""
    return format_quantity(resource.removeprefix("requests.").removeprefix("limits."), units)


def count(number: int, noun: str) -> str:
    """`1 pod`, `2 pods`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
