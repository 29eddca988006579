"""What people and programs do to objects that mean no good."""

from __future__ import annotations

import copy
import random
from typing import Any

JUNK: tuple[Any, ...] = (
    None, 0, -1, 2**70, 1.5, True, "", "x", "{{", "{{ 9**9**9 }}", "{{ ''.__class__ }}", "{% for a in peers %}", "\x00",
    "9" * 5000, [], {}, [[]], {"": None}, "1e999", "-5", "\ud83d", {"a": {"b": [1, "2"]}}, "{{ 'a' * 99999999 }}",
)  # fmt: skip


def spoil(value: Any, chance: random.Random) -> Any:
    """The value with something in it replaced, dropped, doubled or wrapped."""
    place = value
    while isinstance(place, dict | list) and place:
        key = chance.choice(list(place) if isinstance(place, dict) else range(len(place)))
        inner = place[key]
        if isinstance(inner, dict | list) and inner and chance.random() < 0.8:
            place = inner
            continue
        match chance.randrange(4):
            case 0:
                del place[key]
            case 1:
                place[key] = copy.deepcopy(chance.choice(JUNK))
            case 2:
                place[key] = {str(key): inner, "more": [inner, inner]}
            case _:
                place[key] = [copy.deepcopy(chance.choice(JUNK)) for _ in range(chance.randrange(4))]
        break
    return value
