"""What holds of every outcome, whatever the case: asked beside what the case itself demands."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import yaml

CASES = Path(__file__).parents[2] / "cases"

MOST_CYCLES = 200
"""Cycles a run is given, far more than any of these cases needs: one that decides for ever ends there."""
_MOST_DECISIONS = 5
"""Cycles with decisions at one instant: placing changes the shares that the next cycle starts from."""


def without(case: str, *names: str) -> str:
    """The manifests of a case, less the objects of these names."""
    content = yaml.safe_load((CASES / f"{case}.yaml").read_text("utf-8"))
    kept = [item for item in content["items"] if item["metadata"]["name"] not in names]
    assert len(kept) == len(content["items"]) - len(names)
    return json.dumps({**content, "items": kept}) + "\n"


def changed(case: str, old: str, new: str) -> str:
    """The text of a case with something else in one place."""
    text = (CASES / f"{case}.yaml").read_text("utf-8")
    assert text.count(old) == 1
    return text.replace(old, new)


def times(outcome: Any) -> dict[str, float]:
    """When each pod of `default` was bound, in seconds."""
    return {each["pod"].removeprefix("default/"): each["time"] for each in outcome.binds}


def assert_settled(outcome: Any) -> None:
    """The run ended by itself, nothing was undone at the instant at which it was done, and no eviction was in vain.

    That is: few cycles decide at one instant; no pod is nominated to a node to which it was nominated before, at that
    instant or last before it (one that stands is not told again, so this one was withdrawn); none is evicted at the
    instant of its bind, or twice; and for whom a pod is evicted binds one afterwards.
    """
    assert not outcome.limited
    decisions = Counter(cycle["time"] for cycle in outcome.cycles)
    assert all(count <= _MOST_DECISIONS for count in decisions.values()), decisions
    told: dict[str, list[tuple[float, str]]] = {}
    for cycle in outcome.cycles:
        for nomination in cycle["nominations"]:
            told.setdefault(nomination["pod"], [(-1.0, "")]).append((cycle["time"], nomination["node"]))
    for pod, changes in told.items():
        for time in {time for time, _ in changes[1:]}:
            before = [node for instant, node in changes if instant < time][-1]
            states = [before, *(node for instant, node in changes if instant == time)]
            assert len(states) == len(set(states)), (pod, time, states)
    evicted = Counter(each["pod"] for each in outcome.evictions)
    assert all(count == 1 for count in evicted.values()), evicted
    bound = {each["pod"]: each["time"] for each in outcome.binds}
    groups = outcome.json["podgroups"]
    for each in outcome.evictions:
        assert bound.get(each["pod"]) != each["time"], each
        if each["for"]:
            used = [time for pod, time in bound.items() if _is_of(pod, each["for"], groups)]
            assert any(time >= each["time"] for time in used), each


def _is_of(pod: str, beneficiary: str, groups: Collection[str]) -> bool:
    """Whether a pod is the beneficiary, or one of its members: they begin with its name, and with no longer group's."""
    return pod.startswith(beneficiary) and not any(
        len(other) > len(beneficiary) and pod.startswith(other) for other in groups
    )


def assert_whole(outcome: Any, pods: Collection[str], minimum: int) -> None:
    """After every cycle none of these pods of `default` is bound, or at least the minimum."""
    for placed in _placed(outcome, ()):
        count = len(placed & set(pods))
        assert count == 0 or count >= minimum, placed


def most_held(outcome: Any, cpu: Mapping[str, int], bound: Collection[str] = ()) -> int:
    """The most that these pods of `default` hold together after any cycle.

    Args:
        outcome: of the run, in which none of them ends by itself.
        cpu: what each asks for.
        bound: which of them run from the start.
    """
    held = [sum(cpu.get(pod, 0) for pod in placed) for placed in _placed(outcome, bound)]
    return max(held, default=0)


def _placed(outcome: Any, bound: Collection[str]) -> list[set[str]]:
    """The pods that are bound after each cycle, less those that are evicted, without the namespace."""
    placed = set(bound)
    states = [set(placed)]
    for cycle in outcome.cycles:
        placed |= {each["pod"].removeprefix("default/") for each in cycle["binds"]}
        placed -= {each["pod"].removeprefix("default/") for each in cycle["evictions"]}
        states.append(set(placed))
    return states
