"""Objects with absurd fields, drawn with a seed: what an API server takes of them, a scheduler must survive."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from kbatch.localcluster.nodes import node

Document = dict[str, Any]

BEYOND = "hostile.test/beyond"
"""Label of objects with an amount that no exact arithmetic of 2^53 can hold: they must be left out, with an Event."""

_AMOUNTS = ("0", "1n", "1u", "1m", "0.0001", "1", "1.5", "1e3", "4Ki", "1000000", "00012", "1E-3")
_BEYOND = ("9E", "8Ei", "9007199254740993000", "9e18")
_WORDS = (
    "", " ", "x" * 500, "no-such-thing", "UPPER_case!", "../../etc", "名前", "a/b/c", "null", "true", "-", "0", "{}",
    "\u202e", "%s%n", "a\nb", "default", "🦆",
)  # fmt: skip
_NUMBERS = ("-1", "0", "1", "abc", "1e9", "99999999999999999999", "٣", "1_000", "0x10", " 2 ", "NaN", "2.0", "")


def pods(draw: random.Random, namespace: str, count: int) -> Iterator[Document]:
    """Pods of our scheduler, most of them absurd in several ways."""
    for index in range(count):
        beyond = draw.random() < 0.1
        annotations = {}
        if draw.random() < 0.5:
            annotations["scheduling.k8s.io/group-name"] = draw.choice((*_WORDS, f"h-{draw.randrange(50)}"))
        if draw.random() < 0.3:
            annotations["scheduling.k8s.io/group-min-member"] = draw.choice(_NUMBERS)
        labels = {BEYOND: "true"} if beyond else {}
        if draw.random() < 0.2:
            labels["kbatch.dev/queue"] = draw.choice(("nope", "default", "x" * 63))
        if draw.random() < 0.2:
            labels["kbatch.dev/sub-group"] = draw.choice(("nope", "a", "-".join("ab")))
        spec: Document = {
            "schedulerName": "kube-batch",
            "restartPolicy": "Never",
            "containers": [_container(draw, number, beyond=beyond) for number in range(draw.choice((1, 1, 1, 5)))],
        }
        for field in (_selectors, _affinity, _spread, _tolerations, _volumes, _others):
            if draw.random() < 0.2:
                spec |= field(draw)
        name = f"h-{index}" if draw.random() < 0.9 else f"h-{index}-{'y' * 200}"
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"namespace": namespace, "name": name, "annotations": annotations, "labels": labels},
            "spec": spec,
        }


def nodes(draw: random.Random, count: int, prefix: str = "hostile-") -> Iterator[Document]:
    """Nodes on which nothing fits, or nothing should be understood; none of them has room for an ordinary pod."""
    for index in range(count):
        beyond = draw.random() < 0.2
        one = node(f"{prefix}{index}")
        del one["metadata"]["annotations"]  # nobody plays its kubelet
        status: Document = one["status"]
        allocatable = {"cpu": "0", "memory": draw.choice(_AMOUNTS), "pods": draw.choice(("0", "1", "1000000"))}
        if draw.random() < 0.3:
            allocatable[draw.choice(("example.com/x", "hugepages-2Mi", "attachable-volumes-x"))] = draw.choice(_AMOUNTS)
        if beyond:
            allocatable["memory"] = draw.choice(_BEYOND)
            one["metadata"]["labels"][BEYOND] = "true"
        status["allocatable"] = status["capacity"] = allocatable
        if draw.random() < 0.2:
            del status["allocatable"]
            one["metadata"]["labels"].pop(BEYOND, None)
            status["capacity"] = {}
        if draw.random() < 0.2:
            status["conditions"] = draw.choice(
                ([], [{"type": "Ready", "status": "Unknown"}], [{"type": "Odd", "status": "True"}])
            )
        spec: Document = {}
        if draw.random() < 0.3:
            spec["taints"] = [{"key": f"k{number}", "effect": "NoSchedule"} for number in range(draw.choice((1, 100)))]
        if draw.random() < 0.2:
            spec["unschedulable"] = True
        if draw.random() < 0.2:
            one["metadata"]["labels"] |= {f"l{number}": "v" * 63 for number in range(200)}
        yield one | {"spec": spec}


def groups(draw: random.Random, namespace: str, count: int) -> Iterator[Document]:
    """PodGroups; many have members among `pods`."""
    for index in range(count):
        beyond = draw.random() < 0.1
        spec: Document = {"minMember": draw.choice((1, 1, 2, 1000, 1_000_000))}
        if draw.random() < 0.3:
            spec["queue"] = draw.choice(("default", "nope", "hostile-1", "x" * 60))
        if draw.random() < 0.2:
            spec["priorityClassName"] = draw.choice(("nope", "system-node-critical", "x" * 60))
        if draw.random() < 0.3:
            spec["minResources"] = {draw.choice(("cpu", "memory", "example.com/x", "pods")): draw.choice(_AMOUNTS)}
        if beyond:
            spec["minResources"] = {"memory": draw.choice(_BEYOND)}
        if draw.random() < 0.2:
            spec["lifetimeSeconds"] = draw.choice((0, 1, 316_224_000))
            spec["minRuntimeSeconds"] = draw.choice((0, 316_224_000))
            spec["disruption"] = draw.choice(("Surplus", "Whole", "Never"))
            spec["scheduleTimeoutSeconds"] = draw.choice((0, 1, 316_224_000))
        if draw.random() < 0.2:
            spec["subGroups"] = [
                {"name": f"r{number}", "minMember": draw.choice((0, 1, 1_000_000))}
                for number in range(draw.choice((1, 60)))
            ]
        metadata: Document = {
            "namespace": namespace,
            "name": f"h-{index}",
            "labels": {BEYOND: "true"} if beyond else {},
        }
        if draw.random() < 0.1:
            metadata["annotations"] = {word or "k": "v" * 1000 for word in ("a", "b", "c")}
        version = "scheduling.incubator.k8s.io/v1alpha1"
        yield {"apiVersion": version, "kind": "PodGroup", "metadata": metadata, "spec": spec}


def queues(draw: random.Random, count: int, prefix: str = "hostile-") -> Iterator[Document]:
    """Queues of all weights, with capabilities that mean nothing."""
    for index in range(count):
        beyond = draw.random() < 0.2
        spec: Document = {"weight": draw.choice((1, 2, 1000, 1_000_000, 2_147_483_647))}
        if draw.random() < 0.5:
            spec["capability"] = {draw.choice(("cpu", "memory", "example.com/x")): draw.choice(_AMOUNTS)}
        if beyond:
            spec["capability"] = {"memory": draw.choice(_BEYOND)}
        if draw.random() < 0.3:
            spec["state"] = draw.choice(("Open", "Closed"))
            spec["reclaimable"] = draw.random() < 0.5
        if draw.random() < 0.2:
            spec["parent"] = draw.choice((f"{prefix}{index}", f"{prefix}{draw.randrange(count)}", "nope"))
        labels = {BEYOND: "true"} if beyond else {}
        yield {
            "apiVersion": "scheduling.incubator.k8s.io/v1alpha1", "kind": "Queue",
            "metadata": {"name": f"{prefix}{index}", "labels": labels}, "spec": spec,
        }  # fmt: skip


def _container(draw: random.Random, number: int, *, beyond: bool) -> Document:
    requests = {"example.com/nobody-has-it": "1"}
    for name in ("cpu", "memory", "ephemeral-storage"):
        if draw.random() < 0.5:
            requests[name] = draw.choice(_AMOUNTS)
    if beyond:
        requests["memory"] = draw.choice(_BEYOND)
    container: Document = {
        "name": f"c{number}", "image": "x",
        "resources": {"requests": requests, "limits": {"example.com/nobody-has-it": "1"}},
    }  # fmt: skip
    if draw.random() < 0.1:
        container["ports"] = [
            {"containerPort": 1, "hostPort": draw.choice((1, 65535)), "hostIP": draw.choice(("", "::1"))}
        ]
    return container


def _selectors(draw: random.Random) -> Document:
    return {
        "nodeSelector": {
            draw.choice(("a", "example.com/b", "kubernetes.io/hostname")): draw.choice(("", "x", "node-0"))
        }
    }


def _affinity(draw: random.Random) -> Document:
    operator = draw.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
    values = {"In": ["a"] * 50, "NotIn": [""], "Gt": [draw.choice(("5", "-9", "abc"))], "Lt": ["99999999999999999999"]}
    expression = {"key": "k", "operator": operator} | ({"values": values[operator]} if operator in values else {})
    required: object = draw.choice(
        (
            [{"matchExpressions": [expression]}],
            [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-0"]}]}],
            [{}],
            [{"matchExpressions": []}, {"matchExpressions": [expression]}],
        )
    )
    selector: Document | None = draw.choice((None, {}))
    term = {"topologyKey": draw.choice(("kubernetes.io/hostname", "nowhere")), "labelSelector": selector}
    return {
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": required}},
            draw.choice(("podAffinity", "podAntiAffinity")): {
                "requiredDuringSchedulingIgnoredDuringExecution": [term] * draw.choice((1, 3))
            },
        }
    }


def _spread(draw: random.Random) -> Document:
    return {
        "topologySpreadConstraints": [
            {
                "maxSkew": draw.choice((1, 2_147_483_647)), "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "DoNotSchedule", "minDomains": draw.choice((1, 1000)),
                "labelSelector": draw.choice(({}, {"matchLabels": {"a": "b"}})),
            }
        ]
    }  # fmt: skip


def _tolerations(draw: random.Random) -> Document:
    return {"tolerations": [{"operator": "Exists"}] * draw.choice((1, 50))}


def _volumes(draw: random.Random) -> Document:
    claim = {"name": "v", "persistentVolumeClaim": {"claimName": "nope"}}
    ephemeral = {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": _CLAIM}}}
    return {"volumes": [draw.choice((claim, ephemeral, {"name": "v", "emptyDir": {"sizeLimit": "9E"}}))]}


_CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "9E"}}, "storageClassName": "nope"}


def _others(draw: random.Random) -> Document:
    return draw.choice(
        (
            {"preemptionPolicy": "Never"},
            {"priorityClassName": "system-cluster-critical"},
            {"schedulingGates": [{"name": "never/opened"}]},
            {"nodeName": "ghost"},
            {"terminationGracePeriodSeconds": 9_000_000_000},
            {"activeDeadlineSeconds": 2_147_483_647},
            {"hostNetwork": True},
        )
    )
