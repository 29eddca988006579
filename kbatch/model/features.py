"""What a pod needs the kubelet of its node to be capable of.

Since Kubernetes 1.35 nodes tell which of the newer features they have (`status.declaredFeatures`); a kubelet without
one refuses a pod that needs it. These are all that can be seen in a pod's spec, as of 1.36: `InferForScheduling` in
`k8s.io/component-helpers/nodedeclaredfeatures`.
"""

from __future__ import annotations

from typing import Final

from kbatch.api.objects import PodSpec

HOST_NETWORK_IN_USER_NAMESPACE: Final = "UserNamespacesHostNetworkSupport"
RESTART_ALL_CONTAINERS: Final = "RestartAllContainersOnContainerExits"
_RESTART_ALL: Final = "RestartAllContainers"


def features_needed(spec: PodSpec) -> tuple[str, ...]:
    """The features that a node must declare, in the order of names; for nearly every pod none."""
    found: list[str] = []
    containers = (*spec.containers, *(spec.init_containers or ()))
    if any(rule.action == _RESTART_ALL for each in containers for rule in each.restart_policy_rules or ()):
        found.append(RESTART_ALL_CONTAINERS)
    if spec.host_network and spec.host_users is False:
        found.append(HOST_NETWORK_IN_USER_NAMESPACE)
    return tuple(found)
