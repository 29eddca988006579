"""The load of the trials: a stream of groups whose pods all differ, on so many nodes."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

from tests import varied
from tests.e2e.chaos.field import Field
from tests.e2e.chaos.load import Stream

NODES = 8


@contextlib.contextmanager
def under_load(field: Field, space: str, *, seed: int, rate: float = 2.0) -> Iterator[Stream]:
    """A stream of groups whose pods all differ, from a client of its own, which waits while the server is away."""
    with field.plane.api() as api, Stream(api, space, seed=seed, rate=rate, shape=differing) as stream:
        yield stream


def differing(draw: random.Random, space: str, name: str, size: int, seconds: float) -> list[dict[str, Any]]:
    return varied.group(draw, space, name, size, seconds, nodes=NODES)
