"""What is left to queues of their shares and caps, as tables: for all rows of the backlog at once, until it changes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from kbatch.engine.admission.tables import LIMIT, table
from kbatch.engine.state.queues import QueueState
from kbatch.model.nodes import Column
from kbatch.resources import Resources


@dataclass(eq=False, slots=True)
class QueueTables:
    """The tables of one moment. Each has a row for each dimension, in it an element for each queue.

    Attributes:
        mark: equal as long as nothing has changed that they depend on.
        queues: those of the elements; None where there is none of the name.
        deserved: the shares. left: what is left of them beside what the queue holds and was promised; may be below 0.
        caps: by the place of a dimension in which some queue has a hard cap what is left of it, `LIMIT` of no cap.
        reach: the most that groups of a queue could get of the room; may be below 0; None: nobody has asked.
        given: the most that they could get from other queues besides; None as well.
    """

    mark: Hashable
    queues: Sequence[QueueState | None]
    deserved: Column
    left: Column
    caps: Mapping[int, Column]
    reach: Column | None = None
    given: Column | None = None


def tabulated(
    mark: Hashable, names: Sequence[str], queues: Sequence[QueueState | None], promised: Mapping[str, Resources]
) -> QueueTables:
    """The tables for these dimensions and queues, with what groups of each queue were promised."""
    deserved: list[list[int]] = []
    left: list[list[int]] = []
    caps: dict[int, Column] = {}
    for at, name in enumerate(names):
        shares: list[int] = []
        rest: list[int] = []
        hard: list[int] = []
        capped = False
        for queue in queues:
            share, more, cap = 0, 0, LIMIT
            if queue is not None:
                used = queue.allocated.get(name, 0)
                kept = promised.get(queue.name)
                if kept:
                    used += kept.get(name, 0)
                share = queue.deserved.get(name, 0)
                more = share - used
                capability = queue.record.capability
                if capability and name in capability:
                    capped, cap = True, capability[name] - used
            shares.append(share)
            rest.append(more)
            hard.append(cap)
        deserved.append(shares)
        left.append(rest)
        if capped:
            caps[at] = table([hard])[0]
    return QueueTables(mark, queues, table(deserved), table(left), caps)
