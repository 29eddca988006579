"""What installed packages add: plugins and actions, registered as entry points."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Final, TypeVar

_T = TypeVar("_T")

PLUGINS: Final = "kbatch.plugins"
ACTIONS: Final = "kbatch.actions"


def registered(group: str, base: type[_T], builtin: Mapping[str, type[_T]]) -> Mapping[str, type[_T]]:
    """The classes of an entry-point group by name, kbatch's own first: nobody may replace one of these.

    An entry that is no subclass of `base` is left out.
    """
    found: dict[str, type[_T]] = dict(builtin)
    for entry in entry_points(group=group):
        if entry.name not in found:
            loaded = entry.load()
            if isinstance(loaded, type) and issubclass(loaded, base):
                found[entry.name] = loaded
    return found
