"""What the API server refuses, the simulator refuses, and says where."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from kbatch.simulator.documents import parse
from kbatch.simulator.errors import InputError
from kbatch.simulator.manifests import from_documents

TOLERATES: dict[str, Any] = {"key": "k", "operator": "Exists"}
SPREAD: dict[str, Any] = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
TERM: dict[str, Any] = {"matchExpressions": [{"key": "k", "operator": "Exists"}]}


def load(text: str) -> None:
    from_documents(parse(text, "text"))


def pod(resources: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "resources": resources or {}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"schedulerName": "kube-batch", "containers": [container], **spec},
    }


def priority(name: str, value: int, **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        **more,
    }


def spec(kind: str, api: str = "v1", **fields: Any) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": "it"}, "spec": fields}


OURS = "scheduling.incubator.k8s.io/v1alpha1"


def affinity(kind: str, **term: Any) -> dict[str, Any]:
    return pod(affinity={kind: {PREFERRED: [term]}})


GPU = "nvidia.com/gpu"
PREFERENCE = {"weight": 1, "preference": TERM}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (pod({"requests": {GPU: 1}}), f"resources.limits.{GPU}: is missing"),
        (pod({"requests": {GPU: "0.5"}, "limits": {GPU: "0.5"}}), f"resources.limits.{GPU}: '0.5' is no whole number"),
        (pod({"requests": {GPU: 1}, "limits": {GPU: 2}}), f"resources.requests.{GPU}: 1 is not the limit 2"),
        (pod({"requests": {"gpu": 1}}), "resources.requests.gpu: is none of cpu, ephemeral-storage, memory"),
        (pod({"limits": {"cpus": 1}}), "resources.limits.cpus: is none of cpu"),
        (pod(tolerations=[{**TOLERATES, "value": "v"}]), "tolerations[0].value: may not be given"),
        (pod(tolerations=[{**TOLERATES, "tolerationSeconds": 3}]), "tolerations[0].tolerationSeconds: may be given"),
        (pod(topologySpreadConstraints=[SPREAD, SPREAD]), "Constraints[1]: topologyKey 'zone' stands there twice"),
        (pod(topologySpreadConstraints=[{**SPREAD, "minDomains": 0}]), "[0].minDomains: 0 is below 1"),
        (
            pod(topologySpreadConstraints=[{**SPREAD, "minDomains": 2, "whenUnsatisfiable": "ScheduleAnyway"}]),
            "[0].minDomains: may be given with whenUnsatisfiable DoNotSchedule alone",
        ),
        (affinity("nodeAffinity", **PREFERENCE | {"weight": 200}), f"{PREFERRED}[0].weight: 200 is not from 1 to 100"),
        (
            affinity("podAffinity", weight=0, podAffinityTerm={"topologyKey": "zone"}),
            f"podAffinity.{PREFERRED}[0].weight: 0 is not from 1 to 100",
        ),
        (
            affinity("nodeAffinity", weight=1, preference={"matchExpressions": [{"key": "k", "operator": "Like"}]}),
            f"{PREFERRED}[0].preference.matchExpressions[0].operator: 'Like' is none of",
        ),
        (priority("high", 2 * 10**9), "value: 2000000000 is not from -2147483648 to 1000000000"),
        (priority("low", -(2**31) - 1), "value: -2147483649 is not from"),
        (priority("high", 1, preemptionPolicy="never"), "preemptionPolicy: 'never' is none of Never, PreemptLower"),
        (pod(preemptionPolicy="Nver"), "spec.preemptionPolicy: 'Nver' is none of Never, PreemptLowerPriority"),
        (priority("system-mine", 1), "metadata.name: names that begin with system-"),
        (spec("PodDisruptionBudget", "policy/v1", minAvailable="150%"), "spec.minAvailable: '150%' is above 100%"),
        (spec("ResourceQuota", hard={"cpuu": 1}), "spec.hard.cpuu: is none of cpu"),
        (
            spec("Queue", OURS, capability={"cpus": 1}),
            "spec.capability.cpus: is none of cpu, ephemeral-storage, memory",
        ),
        (spec("Queue", OURS, capability={"cpus": 1}), "Is cpu meant?"),
        (spec("PodGroup", OURS, minMember=1, minResources={"mem": 1}), "spec.minResources.mem: is none of cpu"),
        (pod(terminationGracePeriodSeconds=10**20), "spec.terminationGracePeriodSeconds: 1000"),
        (pod({"requests": {"cpu": 10**20}}), "resources.requests.cpu: 1000"),
        (pod({"requests": {"cpu": 1}, "limits": {"cpu": 10**20}}), "resources.limits.cpu: 1000"),
    ],
)
def test_what_no_cluster_would_take_is_refused(document: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        load(yaml.safe_dump(document, default_flow_style=True))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "document",
    [
        pod({"requests": {GPU: 1, "cpu": 1, "hugepages-2Mi": "2Mi"}, "limits": {GPU: "1", "hugepages-2Mi": "2Mi"}}),
        pod({"limits": {GPU: "1k"}}),
        pod({"limits": {"example.com/memory": "16Ti"}}),
        pod(tolerations=[TOLERATES, {**TOLERATES, "effect": "NoExecute", "tolerationSeconds": 3}]),
        pod(topologySpreadConstraints=[SPREAD, {**SPREAD, "whenUnsatisfiable": "ScheduleAnyway"}]),
        affinity("nodeAffinity", **PREFERENCE | {"weight": 100}),
        priority("system-node-critical", 2 * 10**9),
        priority("low", 1, preemptionPolicy="Never"),
        spec("PodDisruptionBudget", "policy/v1", maxUnavailable="100%"),
        spec("ResourceQuota", hard={"requests.nvidia.com/gpu": 1, "count/jobs.batch": 2, "limits.memory": "1Gi"}),
        spec("Queue", OURS, capability={"cpu": 1, "pods": 3, GPU: 2, "hugepages-2Mi": "1Gi"}),
        spec("PodGroup", OURS, minMember=1, minResources={"cpu": 1, "requests.storage": "1Gi", "pods": 3}),
    ],
)
def test_what_a_cluster_takes_is_taken(document: dict[str, Any]) -> None:
    load(yaml.safe_dump(document))


def test_a_cluster_has_one_default_priority() -> None:
    classes = [priority("a", 1, globalDefault=True), priority("b", 2, globalDefault=True)]
    with pytest.raises(InputError, match="globalDefault: PriorityClass a is the default already"):
        load(yaml.safe_dump_all(classes))


def test_numbers_to_base_60_are_text_as_they_are_to_kubectl() -> None:
    text = "{apiVersion: v1, kind: Node, metadata: {name: n}, status: {allocatable: {cpu: 1:30}}}"
    with pytest.raises(InputError, match=r"status\.allocatable\.cpu: .*'1:30'"):
        load(text)


def templated(**spec: Any) -> dict[str, Any]:
    template = {"metadata": {"creationTimestamp": None}, "spec": spec}
    return {
        "apiVersion": "scheduling.incubator.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "g"},
        "spec": {"minMember": 1, "subGroups": [{"name": "w", "minMember": 1, "template": template}]},
    }


def asking(cpu: Any) -> dict[str, Any]:
    return templated(containers=[{"name": "c", "resources": {"requests": {"cpu": cpu}}}])


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (asking("abc"), "spec.containers: its resources cannot be read: quantity 'abc': not a Kubernetes quantity"),
        (asking("-1"), "spec.containers: its resources cannot be read: quantity '-1': negative"),
        (asking("1e30"), "spec.containers: its resources cannot be read: quantity '1e30': larger than"),
        (templated(container=[{"name": "c"}]), "spec.containers: a pod has at least one container"),
        (templated(containers=[{"name": "c", "args": ["{{ nobody }}"]}]), "spec.containers[0].args[0]: "),
    ],
)
def test_a_template_that_the_webhook_refuses_is_refused_in_its_words(document: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        load(yaml.safe_dump(document))
    assert f"spec.subGroups[0].template.{said}" in str(caught.value)
    assert caught.value.faults[0].field.startswith("spec.subGroups[0].template.spec.containers")


def test_a_template_that_the_webhook_takes_is_taken() -> None:
    load(yaml.safe_dump(asking("1")))
    load(yaml.safe_dump(templated(containers=[{"name": "c", "args": ["{{ index }}"]}])))
