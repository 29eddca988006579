"""What the simulator says of groups that are to stand close together."""

from __future__ import annotations

import pytest

from kbatch.api.configuration import ConfigurationError
from kbatch.cli.configuration import load as load_configuration
from kbatch.simulator.documents import parse
from kbatch.simulator.errors import InputError
from kbatch.simulator.manifests import from_documents
from kbatch.simulator.result import Result
from kbatch.simulator.run import simulate

CONFIGURED = """
apiVersion: v1
kind: ConfigMap
metadata: {name: scheduler, annotations: {simulate.kbatch.dev/scheduler-conf: "true"}}
data:
  scheduler.yaml: |
    actions: allocate
    tiers:
    - plugins: [{name: gang}, {name: predicates}, {name: topology, arguments: {levels: "rack"}}]
"""
WORLD = """
{apiVersion: v1, kind: Node, metadata: {name: a1, labels: {rack: a}}, status: {allocatable: {cpu: 1}}}
---
{apiVersion: v1, kind: Node, metadata: {name: a2, labels: {rack: a}}, status: {allocatable: {cpu: 1}}}
---
{apiVersion: v1, kind: Node, metadata: {name: b1, labels: {rack: b}}, status: {allocatable: {cpu: 1}}}
---
apiVersion: scheduling.incubator.k8s.io/v1alpha1
kind: PodGroup
metadata: {name: g}
spec:
  subGroups:
  - name: w
    minMember: 2
    topology: {maxHops: 2}
    template:
      spec:
        schedulerName: kube-batch
        containers: [{name: main, resources: {requests: {cpu: 1}}}]
"""


def _run(*documents: str) -> Result:
    manifests = from_documents(parse("\n---\n".join(documents), "a.yaml"))
    return simulate(manifests, load_configuration(None, manifests.configuration)[1])


def test_where_a_group_and_its_roles_stand() -> None:
    found = _run(CONFIGURED, WORLD)
    stand = {"pods": 2, "hops": 2, "level": "rack", "domain": "a"}
    assert found.groups["default/g"].json()["topology"] == {**stand, "roles": {"w": stand}}
    assert found.warnings == ()


def test_without_the_plugin_it_is_said_that_nothing_acts_on_it() -> None:
    found = _run(WORLD)
    assert found.warnings == (
        "PodGroup default/g: nothing acts on topology: the plugin topology is not configured",
    )  # fmt: skip
    assert "topology" not in found.groups["default/g"].json()


def test_a_configuration_that_comes_with_the_input_is_read_like_a_file() -> None:
    with pytest.raises(ConfigurationError, match=r"a\.yaml, document 1"):
        _run(CONFIGURED.replace("levels", "level"), WORLD)
    with pytest.raises(InputError, match="has a configuration already"):
        _run(CONFIGURED, CONFIGURED, WORLD)
    with pytest.raises(InputError, match="expected one key with the text"):
        _run(CONFIGURED.replace("scheduler.yaml: |", "other: a\n  scheduler.yaml: |"), WORLD)
