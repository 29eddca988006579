"""What the API server, the kubelet and the controllers make of a pod, as values: every change is a new object."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from kbatch.api.names import GROUP_NAME_ANNOTATION
from kbatch.api.objects import Metadata, OwnerReference, Pod, PodCondition, PodSpec, PodStatus, PodTemplate
from kbatch.simulator.names import timestamp
from kbatch.times import SECOND


@dataclass(frozen=True, slots=True)
class Owner:
    """The controller of a pod: Job, ReplicaSet, PodGroup or one that is not part of the input."""

    kind: str
    namespace: str
    name: str


def owner_of(pod: Pod) -> Owner | None:
    """The controller of a pod, if it has one."""
    for reference in pod.metadata.owner_references:
        if reference.controller:
            return Owner(reference.kind, pod.metadata.namespace, reference.name)
    return None


def group_of(pod: Pod) -> str:
    """`namespace/name` of the PodGroup that the pod names; empty for none."""
    name = (pod.metadata.annotations or {}).get(GROUP_NAME_ANNOTATION)
    return f"{pod.metadata.namespace}/{name}" if name else ""


def from_template(
    template: PodTemplate, name: str, owner: OwnerReference, namespace: str, labels: dict[str, str] | None = None
) -> Pod:
    """A pod as its controller creates it; all pods of a template share its spec."""
    meta = template.metadata
    return Pod(
        metadata=Metadata(
            name=name,
            namespace=namespace,
            labels={**(meta.labels or {}), **(labels or {})},
            annotations=dict(meta.annotations or {}),
            owner_references=(owner,),
        ),
        spec=template.spec,
    )


def replacement(pod: Pod, name: str) -> Pod:
    """What a controller makes in the place of an evicted pod: the same, as it was before it came to a node."""
    meta = pod.metadata
    return Pod(
        metadata=Metadata(
            name=name,
            namespace=meta.namespace,
            labels=meta.labels,
            annotations=meta.annotations,
            owner_references=meta.owner_references,
        ),
        spec=replace(pod.spec, node_name=""),
    )


def created(pod: Pod, uid: str, stamp: str) -> Pod:
    """The pod as the API server stores it."""
    return replace(pod, metadata=replace(pod.metadata, uid=pod.metadata.uid or uid, creation_timestamp=stamp))


def waiting(pod: Pod) -> Pod:
    """A pod without a node."""
    return replace(pod, status=PodStatus(phase="Pending", nominated_node_name=pod.status.nominated_node_name))


def running(pod: Pod, node: str, elapsed: int) -> Pod:
    """A pod that runs on `node` since `elapsed` microseconds after the start."""
    since = timestamp(elapsed)
    bound = PodCondition(type="PodScheduled", status="True", last_transition_time=since)
    ready = PodCondition(type="Ready", status="True", last_transition_time=since)
    return replace(
        pod,
        spec=replace(pod.spec, node_name=node),
        status=PodStatus(phase="Running", start_time=since, conditions=(bound, ready)),
    )


def nominated(pod: Pod, node: str | None) -> Pod:
    """A pod for which room is being made on `node`; None withdraws that."""
    return replace(pod, status=replace(pod.status, nominated_node_name=node or ""))


def terminating(pod: Pod, gone_at: int, grace: int) -> Pod:
    """A pod that is being deleted and gone at `gone_at` microseconds after the start."""
    seconds = -(-grace // SECOND)
    meta = replace(pod.metadata, deletion_timestamp=timestamp(gone_at), deletion_grace_period_seconds=seconds)
    return replace(pod, metadata=meta)


def succeeded(pod: Pod) -> Pod:
    """A pod that has done its work."""
    return replace(pod, status=replace(pod.status, phase="Succeeded", conditions=None))


def failed(pod: Pod) -> Pod:
    """A pod that has ended badly, by itself."""
    return replace(pod, status=replace(pod.status, phase="Failed", conditions=None))


def with_priority(pod: Pod, value: int, preemption_policy: str | None) -> Pod:
    """A pod whose priority class was looked up."""
    spec: PodSpec = pod.spec
    policy = spec.preemption_policy or preemption_policy
    return replace(pod, spec=replace(spec, priority=value, preemption_policy=policy))
