"""Which nodes a queue's pods are to be placed on, where several take them."""

from __future__ import annotations

from enum import StrEnum


class Placement(StrEnum):
    """What `Queue.spec.placement` may say."""

    PACK = "Pack"
    SPREAD = "Spread"
    LEAST_LOST = "LeastLost"
