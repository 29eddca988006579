"""Small worlds to explore, drawn by number: three nodes, up to three queues, four groups of up to three pods.

Letters behind the number add to a world (`12mq`); what it is else is as it was without:

* `m`: groups have roles of which some may have fewer pods than there are (`maxMember`);
* `q`: the namespace has a ResourceQuota, and a group's pods are made when it is in queue, as far as the quota goes;
* `e`, `c`: starts are planned (`backfill` in mode `easy`, or `conservative`), and pods run for as long as is expected;
* `f`: queues are ordered by flow.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final

from kbatch.api.objects import (
    AnyObject,
    Metadata,
    Node,
    PodGroup,
    RawResources,
    ResourceQuota,
    ResourceQuotaSpec,
    ResourceQuotaStatus,
    SubGroup,
)
from kbatch.engine import Policy
from tests.property import test_engine
from tests.unit.engine.worlds import EVERYTHING, group, node, pod, policy, priority_class, queue

NAMESPACE: Final = "ns"
MORE: Final = ("m", "q", "e", "c", "f", "mq", "me", "mc")
"""What is added to worlds, in turn."""


def _planning(mode: str) -> Policy:
    actions = f"[enqueue, reclaim, allocate, {{name: backfill, arguments: {{mode: {mode}}}}}, preempt]"
    return policy(EVERYTHING.replace('"enqueue, reclaim, allocate, backfill, preempt"', actions))


_FLOW: Final = """
actions: "enqueue, reclaim, allocate, backfill, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: predicates}, {name: flow, arguments: {halfTime: 1m, weights: {cpu: 1}}}, {name: nodeorder}]
"""
POLICIES: Final = [*test_engine.POLICIES, _planning("easy"), _planning("conservative"), policy(_FLOW)]
_EASY, _CONSERVATIVE, _BY_FLOW = range(3, 6)


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
        roles: how many of its pods are the role `m`, at least one of which must be placed; the others are `w`.
        lost: its minimumLostSeconds.
        most: the maxMember of `m` and of `w`; none where it is empty.
        seconds: for how long each pod runs, which is expected of it; 0: for ever, and nobody expects anything.
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
    most: tuple[int, ...] = ()
    seconds: int = 0

    @property
    def sub_groups(self) -> tuple[SubGroup, ...]:
        """Its roles."""
        most = self.most or (None, None)
        return (SubGroup(name="m", min_member=1, max_member=most[0]), SubGroup(name="w", max_member=most[1]))

    def usable(self) -> int:
        """How many of its pods its roles may have."""
        return sum(map(min, (self.roles, self.pods - self.roles), self.most)) if self.most else self.pods

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
        quota: so many cores may the namespace's pods have; 0: there is no quota.
        more: the letters behind the number.
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
    quota: int = 0
    more: str = ""

    @property
    def name(self) -> str:
        """Which world this is, as `--replay` takes it."""
        return f"{self.seed}.{self.number}{self.more}"

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

    def used(self, used: int) -> list[AnyObject]:
        """The quota, if there is one, as its controller has it: pods that have not ended use so many cores."""
        if not self.quota:
            return []
        meta = Metadata(name="quota", namespace=NAMESPACE, uid="u-quota")
        hard: RawResources = {"requests.cpu": str(self.quota)}
        status = ResourceQuotaStatus(hard=hard, used={"requests.cpu": str(used)})
        return [ResourceQuota(metadata=meta, spec=ResourceQuotaSpec(hard=hard), status=status)]

    def group(self, place: int, made: int) -> PodGroup:
        """The PodGroup of that place, made at that second."""
        spec = self.groups[place]
        found = group(
            f"g{place}",
            spec.minimum,
            at=made,
            queue=f"q{spec.queue}",
            priority_class_name=spec.priority,
            disruption=spec.disruption,
            schedule_timeout_seconds=spec.timeout,
            minimum_lost_seconds=spec.lost,
            min_resources={"cpu": str(spec.minimum * spec.cpu)} if spec.promises else None,
        )
        if spec.roles:
            found.spec.sub_groups = spec.sub_groups
        if spec.seconds:
            found.metadata.annotations = {"kbatch.dev/expected-seconds": str(spec.seconds)}
        return found

    def pod(self, name: str, made: int) -> AnyObject:
        """The pod of that name, `g<group>-<place>` with `r<n>` behind it for each that replaces another."""
        place, index = slot(name)
        spec = self.groups[place]
        return pod(name, str(spec.cpu), of=f"g{place}", at=made, role=spec.role(index))


def slot(name: str) -> tuple[int, int]:
    """The group, and the place in it, that a pod's name speaks of; also of a group's own name."""
    of, _, index = name.partition("-")
    return int(of[1:]), int(index.partition("r")[0] or 0)


def draw(seed: int, number: int, more: str = "") -> World:
    """The world of that number, with what the letters add."""
    found = _plain(seed, number)
    dice = random.Random(f"{seed}/{number}/{more}")
    groups = list(found.groups)
    for place, one in enumerate(groups):
        if "m" in more and one.pods > 1 and dice.random() < 0.75:
            roles = dice.randint(1, one.pods - 1)
            most = (dice.choice([1, roles]), dice.choice([1, 1, one.pods - roles]))
            one = replace(one, roles=roles, most=most)
            one = replace(one, minimum=min(one.minimum, one.usable()))
        if "q" in more:
            one = replace(one, promises=True)
        if set(more) & set("ec"):
            one = replace(one, seconds=dice.choice([0, 30, 60, 60, 200]))
        groups[place] = one
    found = replace(found, groups=tuple(groups), more=more)
    if "q" in more:
        found = replace(found, quota=dice.choice([2, 3, 4, 5]), replaced=True)
        if not found.policy.has("enqueue"):  # without that action nobody asks for a quota
            found = replace(found, policy_number=0)
    for letter, number_of_policy in (("e", _EASY), ("c", _CONSERVATIVE), ("f", _BY_FLOW)):
        if letter in more:
            found = replace(found, policy_number=number_of_policy)
    return found


def _plain(seed: int, number: int) -> World:
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
