"""What the plugin keeps from cycle to cycle."""

from __future__ import annotations

import msgspec

from kbatch.model.usage import Anchor


class Flows(msgspec.Struct, frozen=True):
    """What the plugin keeps: from what each queue's flow follows, by the queue's name."""

    queues: dict[str, Anchor] = msgspec.field(default_factory=dict)
