"""The last look before a bind is sent.

Behind some thousand others a bind waits for seconds, and the cycle that decides it may take as long.
"""

from __future__ import annotations

from dataclasses import dataclass

from kbatch.api.objects import Node
from kbatch.engine import Bind
from kbatch.model.nodes import NodeRecord
from operators.scheduler.cache import Cache


@dataclass(slots=True)
class Waiting:
    """A bind that waits to be sent: the smaller rank goes first.

    Attributes:
        node: its node as it was decided upon.
        look: the number of the look that its cycle had taken.
        since: when it could have been sent, if there had been a place.
    """

    rank: int
    one: Bind
    node: Node | None
    look: int
    since: float = 0.0


def overtaken(cache: Cache, waiting: Waiting) -> str | None:
    """Why a pod must not be bound any more as it was decided a while ago; None where all is as it was.

    The server would take a bind to any node, and nobody would run the pod.
    """
    one, before, ahead = waiting.one, waiting.node, cache.ahead
    task = cache.model.tasks.get(one.pod)
    if task is None or task.uid != one.uid or task.terminating or task.terminal:
        return "the pod went"
    now = ahead.node(one.node)
    if now is None:
        return f"node {one.node} went"
    obstacle = ahead.obstacle(task, one.node, waiting.look)
    if obstacle is not None:
        return f"node {one.node} {obstacle}"
    if now is before:
        return None
    if not NodeRecord(one.node, now).ready:
        return f"node {one.node} takes no pods any more"
    if now.spec.unschedulable and (before is None or not before.spec.unschedulable):
        return f"node {one.node} was cordoned"
    if not task.cls.selection.admits(now) and (before is None or task.cls.selection.admits(before)):
        return f"labels or taints of node {one.node} changed"
    return None
