"""How many pods of a row must go at least to close the gaps between what is free there and what a pod asks for.

Lower bounds, by what the pods give alone: who may go, and with whom, is for the search to ask.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from kbatch.engine.preemption.candidate_table import gives_of
from kbatch.engine.preemption.candidates import Candidate
from kbatch.resources import PODS, Resources


def fewest(candidates: Sequence[Candidate], gaps: Mapping[str, int]) -> int | None:
    """How many of these single pods must go at least; None: all of them together do not close the gaps."""
    found = 1
    for name, gap in gaps.items():
        gives = [gives_of(candidate.task.cls if candidate.task is not None else None, name) for candidate in candidates]
        if sum(gives) < gap:
            return None
        found = max(found, -(-gap // max(gives)))
    return found


def fewest_lowering(
    candidates: Sequence[Candidate],
    gaps: Mapping[str, int],
    lacks: Collection[str],
    above: Callable[[str], Resources | None],
) -> int:
    """How many of any set of these that closes the gaps take their queues below their shares at least, in one of the
    dimensions that the preemptor `lacks`.

    What goes of a queue besides them is in all no more than the queue has `above` its share (None: it keeps that
    whoever goes).
    """
    found = 0
    for name, gap in gaps.items():
        if name not in lacks or name == PODS:
            continue
        most, by_queue = 0, dict[str, int]()
        for candidate in candidates:
            amount = gives_of(candidate.task.cls if candidate.task is not None else None, name)
            by_queue[candidate.model.queue] = by_queue.get(candidate.model.queue, 0) + amount
            most = max(most, amount)
        left = gap
        for queue, amount in by_queue.items():
            spare = above(queue)
            left -= amount if spare is None else min(amount, max(0, spare[name]))
        if left > 0 and most:
            found = max(found, -(-left // most))
    return found
