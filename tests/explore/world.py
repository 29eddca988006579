"""Small worlds to explore, drawn by number: three nodes, up to three queues, four groups of up to three pods."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from kbatch.api.objects import AnyObject, Node, PodGroup
from kbatch.engine import Policy
from tests.property.test_engine import POLICIES
from tests.unit.engine.worlds import group, node, pod, priority_class, queue

NAMESPACE: Final = "ns"


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """A queue; `capability` in cores, 0: none."""

    weight: int
    capability: int
    reclaimable: bool


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """A group and its pods.

    Attributes:
        roles: how many of its pods are the role `m`, at least one of which must be placed.
        lost: its minimumLostSeconds.
    """

    queue: int
    minimum: int
    pods: int
    cpu: int
    priority: str
    disruption: str
    promises: bool
    roles: int
    timeout: int
    lost: int | None = None

    def role(self, index: int) -> str:
        """The role of the pod of that place."""
        return "" if not self.roles else "m" if index < self.roles else "w"


@dataclass(frozen=True, slots=True)
class World:
    """What does not change while a world is explored.

    Attributes:
        seed, number: what it was drawn by.
        nodes: cores of each node.
        grace: seconds that a terminating pod takes to go.
        replaced: whether a controller makes a new pod for each that is evicted or deleted, or lost with its node.
        arrived: how many of the groups are there, and at rest, at the start; the others arrive.
    """

    seed: int
    number: int
    nodes: tuple[int, ...]
    queues: tuple[QueueSpec, ...]
    groups: tuple[GroupSpec, ...]
    policy_number: int
    grace: int
    replaced: bool
    arrived: int

    @property
    def policy(self) -> Policy:
        """The policy by which it is decided."""
        return POLICIES[self.policy_number]

    def node(self, place: int) -> Node:
        """The node of that place."""
        return node(f"n{place}", str(self.nodes[place]))

    def static(self) -> list[AnyObject]:
        """The objects that nothing happens to."""
        found: list[AnyObject] = [priority_class("low", 1), priority_class("high", 100)]
        for place, one in enumerate(self.queues):
            more = {"capability": {"cpu": str(one.capability)}} if one.capability else {}
            found.append(queue(f"q{place}", one.weight, reclaimable=one.reclaimable, **more))
        return found

    def group(self, place: int, made: int) -> PodGroup:
        """The PodGroup of that place, made at that second."""
        spec = self.groups[place]
        return group(
            f"g{place}",
            spec.minimum,
            at=made,
            roles={"m": 1, "w": 0} if spec.roles else None,
            queue=f"q{spec.queue}",
            priority_class_name=spec.priority,
            disruption=spec.disruption,
            schedule_timeout_seconds=spec.timeout,
            minimum_lost_seconds=spec.lost,
            min_resources={"cpu": str(spec.minimum * spec.cpu)} if spec.promises else None,
        )

    def pod(self, name: str, made: int) -> AnyObject:
        """The pod of that name, `g<group>-<place>` with `r<n>` behind it for each that replaces another."""
        place, index = slot(name)
        spec = self.groups[place]
        return pod(name, str(spec.cpu), of=f"g{place}", at=made, role=spec.role(index))


def slot(name: str) -> tuple[int, int]:
    """The group, and the place in it, that a pod's name speaks of; also of a group's own name."""
    of, _, index = name.partition("-")
    return int(of[1:]), int(index.partition("r")[0] or 0)


def draw(seed: int, number: int) -> World:
    """The world of that number."""
    dice = random.Random(f"{seed}/{number}")
    lost = random.Random(f"{seed}/{number}/lost")  # dice of its own: what the others draw is as it was without it
    alike = dice.random() < 0.5
    cores = dice.choice([1, 2, 2, 3, 4])
    nodes = tuple(cores if alike else dice.choice([1, 2, 3, 4]) for _ in range(3))
    queues = tuple(
        QueueSpec(dice.choice([1, 1, 2, 3]), dice.choice([0, 0, 0, 2, 3, 5]), dice.random() < 0.85)
        for _ in range(dice.choice([1, 2, 2, 3, 3]))
    )
    groups = []
    for _ in range(4):
        pods = dice.choice([1, 2, 2, 3, 3])
        groups.append(
            GroupSpec(
                queue=dice.randrange(len(queues)),
                minimum=dice.randint(1, pods),
                pods=pods,
                cpu=dice.choice([1, 1, 2]),
                priority=dice.choice(["", "", "low", "high"]),
                disruption=dice.choice(["Surplus", "Surplus", "Surplus", "Whole", "Never"]),
                promises=dice.random() < 0.4,
                roles=1 if pods > 1 and dice.random() < 0.2 else 0,
                timeout=dice.choice([20, 300]),
                lost=lost.choice([None, None, 0, 20]),
            )
        )
    return World(
        seed,
        number,
        nodes,
        queues,
        tuple(groups),
        policy_number=dice.choice([0, 0, 0, 1, 2]),
        grace=dice.choice([1, 1, 45]),
        replaced=dice.random() < 0.6,
        arrived=dice.choice([0, 1, 2, 2, 3, 3]),
    )
