"""Whole clusters as in `tests.property.whole`, with all that says where groups stand and when they start: topology,
whole nodes, planned starts, flow, budgets, expected ends, suspension, broken gangs; any of it beside any other.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

import msgspec

from kbatch.api.names import EXPECTED_SECONDS_ANNOTATION, GROUP_NAME_ANNOTATION, SUB_GROUP_LABEL
from kbatch.api.objects import AnyObject, GroupTopology, Node, Pod, PodGroup, Queue
from kbatch.engine import Policy, Verdict
from kbatch.resources import in_units
from tests.property import whole
from tests.property.whole import ZONE, Cluster, Life, Plan
from tests.unit.engine.worlds import Decisions, policy

RACK: Final = "rack"
LEVELS: Final = (ZONE, RACK)


def draw_policy(dice: Random) -> Policy:
    """Nearly any configuration."""
    backfill = dice.choice(["backfill", "{name: backfill, arguments: {mode: easy}}",
                            "{name: backfill, arguments: {mode: easy, depth: 3}}",
                            "{name: backfill, arguments: {mode: conservative}}"])  # fmt: skip
    actions = dice.choice([
        ["enqueue", "reclaim", "allocate", backfill, "preempt"],
        ["enqueue", "reclaim", "allocate", backfill, "preempt"],
        ["enqueue", "allocate", backfill, "preempt"],
        ["reclaim", "allocate", backfill, "preempt"],
        ["allocate", backfill],
    ])  # fmt: skip
    flow = "{name: flow, arguments: {" + dice.choice(
        ["halfTime: 5", "halfTime: 60, infiniteFactor: 1.5", "halfTime: 0, infiniteFactor: 1, weights: {memory: 1}"]
    ) + "}}"  # fmt: skip
    shares = dice.choice(["{name: drf}, {name: proportion}", "{name: drf}, {name: proportion}", flow, flow])
    score = dice.choice(["{name: nodeorder}", "{name: nodeorder}", "{name: binpack}", "{name: lostopportunity}"])
    close = f"{{name: topology, arguments: {{levels: [{', '.join(LEVELS)}]}}}}"
    learns = ", {name: estimates}" if dice.random() < 0.3 else ""
    return policy(
        f"actions: [{', '.join(actions)}]\ntiers:\n"
        "- plugins: [{name: priority}, {name: gang}, {name: conformance}]\n"
        f"- plugins: [{{name: predicates}}, {shares}, {score}, {close}{learns}]\n"
    )


def draw(dice: Random) -> Cluster:
    """A cluster."""
    found = whole.draw(dice)
    found.policy = draw_policy(dice)
    for obj in found.objects:
        dress(dice, obj)
    for plan in found.plans:
        dress_plan(dice, plan)
    made = {(plan.namespace, plan.name): plan for plan in found.plans}
    for obj in found.objects:
        if isinstance(obj, Pod):
            again = made.get((obj.metadata.namespace, obj.metadata.name.partition("-")[0]))
            if again is not None:
                expect(again, obj)
    return found


def dress(dice: Random, obj: AnyObject) -> None:
    """More wishes for what was drawn."""
    if isinstance(obj, Node):
        if dice.random() < 0.9:
            obj.metadata.labels = {**(obj.metadata.labels or {}), RACK: dice.choice(["r0", "r1"])}
    elif isinstance(obj, Queue):
        if dice.random() < 0.3:
            obj.spec.excess_budget = dice.choice([0, 1, 5, 50])
        if dice.random() < 0.2:
            obj.spec.evictions_per_hour = dice.choice([0, 1, 2])
        if dice.random() < 0.2:
            obj.spec.placement = dice.choice(["Pack", "Spread", "LeastLost"])
    elif isinstance(obj, PodGroup):
        spec = obj.spec
        roles = tuple(
            msgspec.structs.replace(each, topology=_topology(dice), exclusive=dice.random() < 0.1)
            for each in spec.sub_groups or ()
        )
        obj.spec = msgspec.structs.replace(
            spec,
            topology=_topology(dice), exclusive=dice.random() < 0.15, sub_groups=roles or None,
            minimum_lost_seconds=dice.choice([None, None, None, 0, 20, 90]), bad_node_limit=dice.choice([1, 2]),
            suspend=dice.random() < 0.05,
        )  # fmt: skip
        if dice.random() < 0.3:
            obj.metadata.annotations = {
                **(obj.metadata.annotations or {}), EXPECTED_SECONDS_ANNOTATION: str(dice.choice([1, 10, 60, 400]))
            }  # fmt: skip


def _topology(dice: Random) -> GroupTopology | None:
    if dice.random() < 0.5:
        return None
    hops = dice.choice([None, 0, 2, 2, 4, 6])
    return GroupTopology(max_hops=hops, mode=dice.choice(["", "", "Required", "Preferred"]))


def dress_plan(dice: Random, plan: Plan) -> None:
    """Its pods have a deadline, or say how long they expect to run, or nothing."""
    old = plan.make
    said = str(dice.choice([1, 5, 30, 200])) if dice.random() < 0.4 else ""
    deadline = dice.choice([5, 60, 300]) if dice.random() < 0.3 else None

    def make(index: int, at: int) -> Pod:
        one = old(index, at)
        if said:
            one.metadata.annotations = {**(one.metadata.annotations or {}), EXPECTED_SECONDS_ANNOTATION: said}
        if deadline is not None:
            one.spec.active_deadline_seconds = deadline
        return one

    plan.make = make


def expect(plan: Plan, one: Pod) -> None:
    """The same for a pod that is there already."""
    like = plan.make(int(one.metadata.name.partition("-")[2].partition("r")[0]), 0)
    said = (like.metadata.annotations or {}).get(EXPECTED_SECONDS_ANNOTATION)
    if said:
        one.metadata.annotations = {**(one.metadata.annotations or {}), EXPECTED_SECONDS_ANNOTATION: said}
    one.spec.active_deadline_seconds = like.spec.active_deadline_seconds


class WideLife(Life):
    """A life in which it is judged, too, how close together pods stand, and who stands alone."""

    def cycle(self) -> Decisions:
        before = {(type(obj), obj.metadata.namespace, obj.metadata.name): obj for obj in self.pods()}
        groups = {f"{one.metadata.namespace}/{one.metadata.name}": one for one in self.of(PodGroup)}
        held = {
            f"{one.metadata.namespace}/{one.metadata.name}": one.spec.node_name
            for one in self.pods()
            if one.spec.node_name and one.status.phase not in {"Succeeded", "Failed"}
        }
        for key, (_, where) in self.flying.items():
            held.setdefault(key, where)
        found = super().cycle()
        self._judge_places(found, before, groups, held)
        return found

    def says_the_same(self, one: tuple[Any, ...] | None, other: tuple[Any, ...] | None) -> bool:
        """Besides, of two reasons to wait `Reserved` is given only as long as others would have ended in time."""
        if one is None or other is None or "Reserved" not in {one[2], other[2]}:
            return one == other
        return one[:2] == other[:2]

    def _judge_places(self, found: Decisions, pods: Any, groups: dict[str, PodGroup], held: dict[str, str]) -> None:
        going = {gone.pod for each in found.transactions for gone in each.evictions}
        of = {}
        for (_, namespace, name), one in pods.items():
            group = (one.metadata.annotations or {}).get(GROUP_NAME_ANNOTATION)
            of[f"{namespace}/{name}"] = (
                f"{namespace}/{group}" if group else "",
                (one.metadata.labels or {}).get(SUB_GROUP_LABEL),
                one,
            )
        new = {bind.pod: bind.node for each in found.transactions for bind in each.binds}
        where = {**held, **new}
        leaving = (
            {key for key, (_, _, one) in of.items() if one.metadata.deletion_timestamp is not None}
            | going
            | set(self.leaving)
        )
        tree = {one.metadata.name: one.metadata.labels or {} for one in self.of(Node)}
        for key, at in new.items():
            group, role, _ = of[key]
            made = groups.get(group)
            if made is not None:
                of_group = [
                    name
                    for name, each in of.items()
                    if each[0] == group and (name in held or each[2].status.phase == "Succeeded")
                ]
                stands = len(of_group) >= (made.spec.min_member or 1)  # then others may come (docs/job-sets.md)
                assert stands or not made.spec.suspend, f"{key} of a suspended group is bound"
            wishes: list[tuple[GroupTopology | None, str | None]] = []
            if made is not None:
                wishes.append((made.spec.topology, None))
                wishes += [(each.topology, each.name) for each in made.spec.sub_groups or () if each.name == role]
            for wish, limited in wishes:
                if wish is None or wish.max_hops is None or wish.mode == "Preferred":
                    continue
                for other, there in where.items():
                    if other not in of:
                        continue
                    og, orole, _ = of[other]
                    if og == group and (limited is None or orole == limited) and other not in leaving and there in tree:
                        far = hops(tree, at, there)
                        assert far <= wish.max_hops, f"{key} on {at} is {far} hops from {other} on {there}: {wish}"
            mine_alone = self._alone(groups, group, role)
            for other, there in where.items():
                if there != at or other == key or other not in of:
                    continue
                og, orole, one = of[other]
                if one.spec.scheduler_name != "kube-batch" or (og == group and group):
                    continue
                same_owner = (
                    not group
                    and not og
                    and one.metadata.owner_references
                    and one.metadata.owner_references == of[key][2].metadata.owner_references
                )
                if same_owner:
                    continue
                assert not mine_alone, f"{key} is to be alone on {at}, beside {other}"
                assert not self._alone(groups, og, orole), f"{key} comes to {at} beside {other}, which is to be alone"

    @staticmethod
    def _alone(groups: dict[str, PodGroup], group: str, role: str | None) -> bool:
        made = groups.get(group)
        if made is None:
            return False
        return made.spec.exclusive or any(each.exclusive and each.name == role for each in made.spec.sub_groups or ())

    def _write(self, verdict: Verdict) -> bool:
        changed = super()._write(verdict)
        old = self.objects.get((PodGroup, *verdict.group.split("/")))  # type: ignore[arg-type]
        if not verdict.shadow and isinstance(old, PodGroup):
            charged = in_units(verdict.charged) if verdict.charged else None
            if old.status.excess_charged != charged:
                new = copy.deepcopy(old)
                new.status.excess_charged = charged
                self.put(new)
                return True
        return changed


def hops(tree: dict[str, dict[str, str]], one: str, other: str) -> int:
    paths = []
    for name in (one, other):
        labels = tree[name]
        paths.append([*(labels.get(level, ("none", name)) for level in LEVELS), name])
    common = next((at for at, (a, b) in enumerate(zip(*paths, strict=True)) if a != b), 3)
    return 2 * (3 - common)


def suspension(life: Life) -> str:
    one = copy.deepcopy(whole.some(life, PodGroup))
    if one is None:
        return ""
    one.spec.suspend = not one.spec.suspend
    one.metadata.generation += 1
    life.put(one)
    if one.spec.suspend:
        for each in life.pods():
            if (
                (each.metadata.annotations or {}).get(GROUP_NAME_ANNOTATION) == one.metadata.name
                and each.metadata.namespace == one.metadata.namespace
                and each.spec.node_name
                and each.status.phase == "Running"
            ):
                life.evict(f"{each.metadata.namespace}/{each.metadata.name}")
    return f"{one.metadata.name} {one.spec.suspend}"


def wishes_change(life: Life) -> str:
    one = copy.deepcopy(whole.some(life, PodGroup))
    if one is None:
        return ""
    suspended = one.spec.suspend
    dress(life.dice, one)
    one.spec.suspend = suspended
    one.metadata.generation += 1
    life.put(one)
    return str(one.metadata.name)


def node_moves(life: Life) -> str:
    one = copy.deepcopy(whole.some(life, Node))
    if one is None:
        return ""
    one.metadata.labels = {
        **one.metadata.labels,
        RACK: life.dice.choice(["r0", "r1"]),
        ZONE: life.dice.choice(["z0", "z1"]),
    }
    life.put(one)
    return f"{one.metadata.name}"


def group_comes(life: Life) -> str:
    before = set(life.plans)
    name = whole.group_comes(life)
    for key in set(life.plans) - before:
        dress_plan(life.dice, life.plans[key])
    for obj in [one for one in life.of(PodGroup) if one.metadata.name == name]:
        new = copy.deepcopy(obj)
        dress(life.dice, new)
        life.put(new)
    for obj in [one for one in life.pods() if one.metadata.name.startswith(f"{name}-")]:
        new = copy.deepcopy(obj)
        expect(life.plans[obj.metadata.namespace, name], new)
        life.put(new)
    return name


_EVENTS: Final[tuple[Callable[[Life], str], ...]] = (
    *(group_comes if each is whole.group_comes else each for each in whole.EVENTS),
    suspension, wishes_change, node_moves,
)  # fmt: skip


def live(seed: int, events: int = 12) -> Iterator[str]:
    """A life, event by event."""
    dice = Random(f"wide {seed}")
    return whole.lived(WideLife(draw(dice), dice), events, _EVENTS)
