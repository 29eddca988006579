"""Rules about where pods stand beside the room that is there: constraints, hosts' ports, caps of queues and groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from tests.e2e.auditor.constraints import about, collide, unwelcome
from tests.e2e.auditor.quantities import Amounts, add
from tests.e2e.auditor.rules import ForAMoment, PodChange, Rule, Violation
from tests.e2e.auditor.world import PodFact, World, allocated


class Welcome(Rule):
    """A pod is bound to a node that it asks for and whose taints it tolerates, beside none that it keeps away from.

    Args:
        scheduler: whose binds are judged.
        race: seconds within which nobody can know of a change of a node, or of another scheduler's bind.
    """

    def __init__(self, scheduler: str, race: float) -> None:
        self._scheduler = scheduler
        self._race = race

    def seen(self, world: World, change: PodChange, at: float) -> Iterable[Violation]:
        pod = change.after
        if not change.bound or pod is None or pod.scheduler != self._scheduler:
            return
        why = [unwelcome(pod.asks, marks) for marks in world.marks(pod.node, at - self._race)]
        if why and all(why):
            yield Violation("unwelcome", pod.key, f"bound to {pod.node}: {why[-1]}")
        for other in self._others(world, pod, at):
            if other.node == pod.node and collide(pod.asks, other.asks):
                yield Violation("unwelcome", pod.key, f"wants a port of {pod.node} that {other.key} has")
            for one, two in ((pod, other), (other, pod)):
                for term in one.asks.apart:
                    if _namespace(one) == _namespace(two) and about(term, two.asks.labels):
                        key = term.get("topologyKey", "")
                        if (domain := world.label(pod.node, key)) and domain == world.label(other.node, key):
                            yield Violation("unwelcome", pod.key, f"stands with {other.key} in {key} {domain}")
        for term in pod.asks.together:
            if about(term, pod.asks.labels):
                yield from self._alone(world, pod, term)

    def _alone(self, world: World, pod: PodFact, term: Mapping[str, Any]) -> Iterator[Violation]:
        """A pod that is to stand with pods like itself, and they all stand elsewhere."""
        key = term.get("topologyKey", "")
        others = {
            world.label(other.node, key)
            for other in world.pods.values()
            if other.holds and other.key != pod.key and _namespace(other) == _namespace(pod)
            if about(term, other.asks.labels)
        }
        if others and world.label(pod.node, key) not in others:
            where = f"{key} {world.label(pod.node, key) or 'none'}"
            yield Violation("unwelcome", pod.key, f"stands in {where}, those that it is to be with in {sorted(others)}")

    def _others(self, world: World, pod: PodFact, at: float) -> Iterator[PodFact]:
        """Pods that hold something, and of which the scheduler could know."""
        nodes = world.on_node if pod.asks.apart or world.apart else {pod.node: world.on_node[pod.node]}
        for there in nodes.values():
            for other in there.values():
                late = other.scheduler != self._scheduler and at - (other.bound_at or 0.0) <= self._race
                if other.holds and other.key != pod.key and not late:
                    yield other


def _namespace(pod: PodFact) -> str:
    return pod.key.partition("/")[0]


class WithinCaps(Rule):
    """No bind takes a queue over its capability, or a group over its maxMember.

    Args:
        race: seconds within which nobody can know of a new cap.
    """

    def __init__(self, scheduler: str, race: float) -> None:
        self._scheduler = scheduler
        self._race = race

    def seen(self, world: World, change: PodChange, at: float) -> Iterable[Violation]:
        pod = change.after
        if not change.bound or pod is None or pod.scheduler != self._scheduler:
            return
        group = world.groups.get(pod.group)
        if group is None:
            return
        if group.maximum and world.placed(pod.group) > group.maximum and at - group.changed_at > self._race:
            yield Violation(
                "over maxMember", group.key, f"{world.placed(pod.group)} of {group.maximum} pods are placed"
            )
        queue = world.queues.get(group.queue)
        if queue is None or queue.capability is None or at - max(queue.changed_at, group.changed_at) <= self._race:
            return
        holds = allocated(world, group.queue)
        for name, cap in queue.capability.items():
            if name != "pods" and pod.request.get(name) and holds.get(name, Fraction(0)) > cap:
                yield Violation(
                    "over capability", queue.name, f"{pod.key} takes {name} to {float(holds[name]):g} of {float(cap):g}"
                )


class NotOverfull(ForAMoment[str]):
    """A node that was filled beyond what it has, whoever's binds did it, is not so for long.

    Two schedulers that do not know of each other's last binds may do it. A node that has shrunk, and pods that somebody
    made with a node, do not count.
    """

    what = "a node beyond what it has"
    again = True

    def __init__(self, limit: float) -> None:
        super().__init__(limit)
        self._over: set[str] = set()

    def seen(self, world: World, change: PodChange, at: float) -> Iterable[Violation]:
        if change.bound and change.after is not None and _beyond(world, change.after.node):
            self._over.add(change.after.node)
        return ()

    def now(self, world: World) -> Mapping[str, str]:
        found = {node: beyond for node in self._over if (beyond := _beyond(world, node))}
        self._over = set(found)
        return {node: f"{beyond}," for node, beyond in found.items()}

    def violation(self, key: str, what: str) -> Violation:
        return Violation("over-full node", key, what)


def _beyond(world: World, node: str) -> str:
    """What the bound pods of a node hold too much of; empty where they do not, or where the node is gone."""
    has = world.nodes.get(node)
    if has is None:
        return ""
    held: Amounts = {}
    for pod in world.on_node.get(node, {}).values():
        if pod.holds and not pod.given:
            add(held, pod.request)
    over = [
        f"{name} {float(held[name]):g} of {float(has.get(name, 0)):g}" for name in held if held[name] > has.get(name, 0)
    ]
    return ", ".join(over)


class TruePods(ForAMoment[str]):
    """A pod that has a node is not said to have none, but for a moment."""

    what = "PodScheduled=False, though bound"

    def now(self, world: World) -> Mapping[str, str]:
        return dict.fromkeys((pod.uid for pod in world.pods.values() if pod.node and pod.unscheduled), f"{self.what},")

    def violation(self, key: str, what: str) -> Violation:
        return Violation("untrue condition", key, what)
