"""What was heard, as lines."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kbatch.decisions.recording import Heard
from kbatch.decisions.records import (
    FORMAT,
    Cycle,
    LeftOut,
    Object,
    PolicyText,
    Standing,
    Start,
    encode_line,
    put,
    write_decision,
    write_delta,
)
from kbatch.model.image import Image


def beginning(image: Image, policy: PolicyText, written_by: str) -> Iterator[bytes]:
    """The lines that a log starts with, one by one."""
    yield encode_line(
        Start(
            format=FORMAT,
            written_by=written_by,
            scheduler_name=image.scheduler_name,
            default_queue=image.default_queue,
            policy=policy,
            objects=len(image.objects),
            selected_keys=image.selected_keys,
        )
    )
    for obj in image.objects:
        record = put(obj)
        yield encode_line(Object(record.kind, record.object))
    unreadable = tuple(
        LeftOut(one.kind.__name__, one.name, one.namespace, one.uid, one.node_name, one.why) for one in image.unreadable
    )
    yield encode_line(
        Standing(assumed=image.assumed, evicting=image.evicting, unreadable=unreadable, orphaned=image.orphaned)
    )


def line_of(heard: Heard) -> bytes:
    """One cycle as a line."""
    decisions = () if heard.same else tuple(msgspec.Raw(write_decision(each)) for each in heard.decisions)
    return encode_line(
        Cycle(
            number=heard.number,
            now=heard.now,
            deltas=tuple(write_delta(delta) for delta in heard.deltas),
            policy=heard.policy,
            fresh=heard.fresh,
            same=heard.same,
            decisions=decisions,
            next_wake=heard.next_wake,
            failed=heard.failed,
            cut=heard.cut,
        )
    )
