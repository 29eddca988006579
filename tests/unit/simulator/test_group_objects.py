"""What a group has besides its pods: taken to be there at once, and before them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

GROUP = """
apiVersion: v1
kind: Node
metadata: {name: n}
status: {allocatable: {cpu: '2'}}
---
apiVersion: scheduling.incubator.k8s.io/v1alpha1
kind: PodGroup
metadata: {name: g, annotations: {simulate.kbatch.dev/duration: '60'}}
spec:
  objects:
  - {apiVersion: v1, kind: Service, metadata: {name: "{{ group }}"}}
  - {apiVersion: v1, kind: ConfigMap, metadata: {name: "{{ group }}-hosts"}}
  subGroups:
  - {name: w, minMember: 2, template: {spec: {containers: [{name: main, resources: {requests: {cpu: '1'}}}]}}}
"""


def objects(outcome: Any) -> list[str]:
    found: list[str] = outcome.json["podgroups"]["default/g"]["objects"]
    return found


def test_they_are_there_while_the_group_has_its_turn(simulate: Callable[..., Any]) -> None:
    running = simulate(GROUP, until=30)
    assert objects(running) == ["Service/g", "ConfigMap/g-hosts"]
    assert len(running.running()) == 2
    assert objects(simulate(GROUP)) == [], "they go when it is over"


def test_a_group_that_waits_has_none(simulate: Callable[..., Any]) -> None:
    waiting = simulate(GROUP.replace("allocatable: {cpu: '2'}", "allocatable: {cpu: '1'}"))
    assert objects(waiting) == []
    assert waiting.pods == {}


def test_where_one_cannot_be_rendered_no_pods_are_made(simulate: Callable[..., Any]) -> None:
    outcome = simulate(GROUP.replace("{{ group }}-hosts", "{{ gruop }}"), until=30)
    (warning,) = outcome.warnings
    assert warning.startswith("PodGroup default/g: no pods are made: spec.objects[1].metadata.name: 'gruop'")
    assert (objects(outcome), outcome.pods) == ([], {})


def test_nothing_is_said_of_groups_that_ask_for_none(simulate: Callable[..., Any]) -> None:
    text = "\n".join(line for line in GROUP.splitlines() if "{{" not in line and "objects" not in line) + "\n"
    assert "objects" not in simulate(text, until=30).json["podgroups"]["default/g"]
