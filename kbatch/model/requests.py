"""What a pod asks of a node: Kubernetes' effective request, in exact integers.

The rule (the same that the API server's quota and kube-scheduler use): the regular containers run together, and beside
them every sidecar (an init container with `restartPolicy: Always`). Init containers run one after the other, each
together with the sidecars that stand before it. What a node must offer is the larger of the two moments, dimension by
dimension; resources given for the pod as a whole replace what its containers add up to; the overhead of its runtime
class comes on top. A container that names a limit and no request is asking for the limit.

Vectors that come from here are shared between calls: read them, never change them. Amounts of zero are left out, and
`pods` is not a dimension: that a pod takes one place on a node is counted elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from msgspec.structs import replace

from kbatch.api.objects import (
    Container,
    ContainerStatus,
    Pod,
    PodSpec,
    RawQuantity,
    RawResources,
    ResourceRequirements,
)
from kbatch.resources import CPU, PODS, QuantityError, Resources, add, check_limit, maximum, parse_resources

_Items: TypeAlias = tuple[tuple[str, RawQuantity], ...]
_Side: TypeAlias = Literal["requests", "limits"]

_NOTHING: Final[Resources] = {}


def effective_request(spec: PodSpec) -> Resources:
    """The request of a pod, cpu in milli-cores and the rest in base units; a shared value, not to be changed.

    Raises:
        QuantityError: an amount is no quantity or is negative, or it or the sum over the pod is beyond 2^53; the
            message names the resource.
    """
    request = _effective(spec, "requests")
    check_limit(request)
    return request


def effective_limit(spec: PodSpec) -> Resources:
    """The limit of a pod by the same rule: only of containers that name one, so a missing name means unlimited.

    No node is asked for it, so the sum over the containers may be beyond 2^53.

    Raises:
        QuantityError: an amount is no quantity, is negative, or is beyond 2^53; the message names the resource.
    """
    return _effective(spec, "limits")


def as_held(pod: Pod) -> PodSpec:
    """The spec with what the kubelet holds for the pod's containers: the pod's own where that is the same.

    While a container is resized in place, its node must have room for the largest of three: what the spec asks for,
    what the kubelet has allocated, and what is in force. A resize that the kubelet has found infeasible counts for
    nothing. So kube-scheduler has it (`PodRequests` with `UseStatusResources`).

    Raises:
        QuantityError: an amount cannot be read.
    """
    spec, status = pod.spec, pod.status
    if not spec.node_name or (status.container_statuses is None and status.init_container_statuses is None):
        return spec
    containers = _held(spec.containers, status.container_statuses, pod)
    sidecars = _held(spec.init_containers or (), status.init_container_statuses, pod)
    if containers is None and sidecars is None:
        return spec
    return replace(spec, containers=containers or spec.containers, init_containers=sidecars or spec.init_containers)


def resize_infeasible(pod: Pod) -> bool:
    """Whether the node can never give what the spec now asks for."""
    return any(
        condition.type == "PodResizePending" and condition.status == "True" and condition.reason == "Infeasible"
        for condition in pod.status.conditions or ()
    )


def _held(
    containers: tuple[Container, ...], statuses: tuple[ContainerStatus, ...] | None, pod: Pod
) -> tuple[Container, ...] | None:
    """The containers with the requests that are held for them; None where these are what they ask for."""
    by_name = {status.name: status for status in statuses or ()}
    found = [_held_one(container, by_name.get(container.name), pod) for container in containers]
    if all(new is old for new, old in zip(found, containers, strict=True)):
        return None
    return tuple(found)


def _held_one(container: Container, status: ContainerStatus | None, pod: Pod) -> Container:
    if status is None:
        return container
    own = container.resources
    asked = own.requests if own is not None else None
    actual = [status.allocated_resources, status.resources.requests if status.resources is not None else None]
    actual = [each for each in actual if each is not None]
    if all(each == asked for each in actual):
        return container
    amounts = _NOTHING if resize_infeasible(pod) or own is None else _request_of(own)
    for each in actual:
        amounts = maximum(amounts, _read(each))
    raw: RawResources = {name: f"{amount}m" if name == CPU else amount for name, amount in amounts.items()}
    return replace(container, resources=ResourceRequirements(requests=raw, limits=own.limits if own else None))


def is_best_effort(spec: PodSpec) -> bool:
    """Whether the pod's quality of service is BestEffort: no cpu and no memory requested or limited anywhere."""
    parts = [container.resources for container in (*spec.containers, *(spec.init_containers or ()))]
    for part in (*parts, spec.resources):
        if part is not None:
            amounts = {**_request_of(part), **_read(part.limits)}
            if "cpu" in amounts or "memory" in amounts:
                return False
    return True


def _effective(spec: PodSpec, side: _Side) -> Resources:
    containers = spec.containers
    if len(containers) == 1 and not spec.init_containers and spec.resources is None and not spec.overhead:
        return _of(containers[0], side)  # nearly every pod: one container, whose content was seen before
    running = add(*(_of(container, side) for container in containers))
    if spec.init_containers:
        running = _with_init(running, spec.init_containers, side)
    if spec.resources is not None:
        running = _pod_level(running, spec.resources, side)
    if spec.overhead and (side == "requests" or running):
        overhead = _read(spec.overhead)
        # A limit exists only where some container names one; the overhead does not invent others.
        running = add(running, overhead if side == "requests" else {k: v for k, v in overhead.items() if k in running})
    return running


def _with_init(running: Resources, init_containers: Sequence[Container], side: _Side) -> Resources:
    """The larger of the steady state (containers and all sidecars) and of each init container's moment."""
    sidecars: Resources = {}
    peak: Resources = {}
    for container in init_containers:
        amounts = _of(container, side)
        if container.restart_policy == "Always":
            sidecars = add(sidecars, amounts)
            peak = maximum(peak, sidecars)
        else:
            peak = maximum(peak, add(sidecars, amounts))
    return maximum(add(running, sidecars), peak)


def _pod_level(running: Resources, requirements: ResourceRequirements, side: _Side) -> Resources:
    """Amounts given for the pod as a whole stand instead of the containers' sum.

    A limit without a request stands for a request only where no container asks for that resource: so the API server's
    own defaulting has it.
    """
    limits = _read(requirements.limits)
    if side == "limits":
        return {**running, **limits}
    asked = _read(requirements.requests)
    named = requirements.requests or {}
    defaulted = {name: amount for name, amount in limits.items() if name not in running and name not in named}
    merged = {**running, **defaulted, **asked}
    return {name: amount for name, amount in merged.items() if name in asked or name not in named}


def _of(container: Container, side: _Side) -> Resources:
    requirements = container.resources
    if requirements is None:
        return _NOTHING
    return _request_of(requirements) if side == "requests" else _read(requirements.limits)


def _request_of(requirements: ResourceRequirements) -> Resources:
    requests, limits = requirements.requests, requirements.limits
    return _request(tuple(requests.items()) if requests else (), tuple(limits.items()) if limits else ())


def _read(raw: RawResources | None) -> Resources:
    return _request(tuple(raw.items()), ()) if raw else _NOTHING


@lru_cache(maxsize=512)  # pods of one template come one after the other; a vector weighs a kilobyte
def _request(requests: _Items, limits: _Items) -> Resources:
    """The parsed amounts above zero, requests over limits. Keyed by content: pods of one template share one vector."""
    raw = {**dict(limits), **dict(requests)}
    amounts = parse_resources(raw)
    for name, amount in amounts.items():
        if amount < 0:
            raise QuantityError(raw[name], f"negative (resource {name})")
    return {name: amount for name, amount in amounts.items() if amount > 0 and name != PODS}
