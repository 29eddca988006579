"""Places: priorities, nodes, gates, and groups that want more room, or hold it longer, than is their due."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.e2e.tenant.attack import Area
from tests.e2e.tenant.tenant import ATTACKER, GROUPS, JOBS, KBATCH, NEIGHBOUR, PODS, group, job, pod, template

if TYPE_CHECKING:
    from tests.e2e.tenant.tenant import Tenant

AREA = Area("Places")
KEPT = "kept for other namespaces: system-*"
SYSTEM_CLASS: dict[str, Any] = {"priorityClassName": "system-node-critical"}


@AREA.refused(403, KEPT, "a group of the class system-node-critical")
def a_group_of_the_system(tenant: Tenant) -> Any:
    return tenant.create(GROUPS, group("g", **SYSTEM_CLASS))


@AREA.refused(403, KEPT, "a template of that class")
def a_template_of_the_system(tenant: Tenant) -> Any:
    made = template()
    made["spec"] |= SYSTEM_CLASS
    return tenant.create(GROUPS, group("g", subGroups=[{"name": "w", "minMember": 1, "template": made}]))


@AREA.refused(403, KEPT, "a pod of that class")
def a_pod_of_the_system(tenant: Tenant) -> Any:
    return tenant.create(PODS, pod("p", **SYSTEM_CLASS))


@AREA.refused(403, KEPT, "a Job of that class")
def a_job_of_the_system(tenant: Tenant) -> Any:
    body = job("j")
    body["spec"]["template"]["spec"] |= SYSTEM_CLASS
    return tenant.create(JOBS, body)


@AREA.refused(403, 'cannot create resource "priorityclasses"', "a PriorityClass of its own")
def a_class_of_its_own(tenant: Tenant) -> Any:
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "mine"}, "value": 10**9}
    return tenant.api.post("/apis/scheduling.k8s.io/v1/priorityclasses", body)


@AREA.refused(403, "must not be provided in pod spec", "a pod that names a priority without a class")
def a_priority_without_a_class(tenant: Tenant) -> Any:
    return tenant.create(PODS, pod("p", priority=10**9))


@AREA.harmless(
    "pods prove the priority: nobody is evicted, and the group waits",
    "a group of a high class, of ordinary pods, as large as the cluster",
)
def a_class_without_its_pods(tenant: Tenant) -> None:
    tenant.create(GROUPS, group("g", 3, priorityClassName="urgent"))
    for index in range(3):
        tenant.create(PODS, pod(f"g-{index}", "g", "21"))
    tenant.wait("it is decided", lambda: tenant.condition("g", "Scheduled"))
    tenant.neighbour_is_whole()


@AREA.harmless(
    "what asks for nothing that exists has no share: the neighbour's gangs start",
    "100 groups that ask for a thousand CPUs each, and never get pods",
)
def demand_without_pods(tenant: Tenant) -> None:
    bodies = [group(f"g{index}", minResources={"cpu": "1000"}) for index in range(100)]
    tenant.create_all(GROUPS, bodies)
    tenant.neighbours_gang()


@AREA.harmless(
    "its queue's capability leaves the neighbour his room",
    "as many groups as there is room for, that are never to be evicted",
)
def groups_that_never_go(tenant: Tenant) -> None:
    for index in range(16):
        tenant.create(GROUPS, group(f"g{index}", disruption="Never", minRuntimeSeconds=10**8))
        tenant.create(PODS, pod(f"g{index}-0", f"g{index}", "5"))
    tenant.wait("its queue is full", lambda: int(tenant.holds().get("cpu", "0")) >= 55)
    tenant.neighbours_gang()


@AREA.harmless(
    "a budget of its own binds nobody else",
    "a PodDisruptionBudget that forbids to evict any of its pods, and selects all",
)
def a_budget_for_all(tenant: Tenant) -> None:
    path = f"/apis/policy/v1/namespaces/{ATTACKER}/poddisruptionbudgets"
    body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "never"},
            "spec": {"maxUnavailable": 0, "selector": {}}}  # fmt: skip
    tenant.api.post(path, body)
    try:
        tenant.create(PODS, pod("p"))
        tenant.neighbours_gang()
    finally:
        tenant.delete(f"{path}/never")


@AREA.refused(
    403,
    "exceeded quota: beside",
    "a pod with anti-affinity to all pods of all namespaces, where a quota keeps that for others",
)
def nobody_beside_it(tenant: Tenant) -> Any:
    term = {"topologyKey": "kubernetes.io/hostname", "namespaceSelector": {}, "labelSelector": {}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return tenant.create(PODS, pod("p", affinity=affinity))


@AREA.refused(403, "exceeded quota: quota", "to take all places for pods with small ones, where a quota counts pods")
def all_places_for_pods(tenant: Tenant) -> None:
    tenant.create_all(PODS, [pod(f"p{index}", cpu="1m") for index in range(100)])


@AREA.harmless(
    "its node counts as full, and the neighbour's gangs go to others",
    "a pod that names its node itself, larger than the node",
)
def a_node_by_its_name(tenant: Tenant) -> None:
    tenant.create(PODS, pod("p", cpu="1000", nodeName="node-0"))
    tenant.create(PODS, pod("q", cpu="1000", nodeName="nowhere"))
    tenant.neighbours_gang()


@AREA.refused(403, 'cannot create resource "pods/binding"', "to bind its own pod")
def bind_its_own_pod(tenant: Tenant) -> Any:
    tenant.create(PODS, pod("p", cpu="1000"))
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": "node-0"},
    }
    return tenant.create(f"{PODS}/p/binding", body)


@AREA.refused(403, 'cannot patch resource "pods/status"', "to nominate its pod to a node")
def nominate_its_own_pod(tenant: Tenant) -> Any:
    tenant.create(PODS, pod("p", cpu="1000"))
    return tenant.patch(f"{PODS.format(ATTACKER)}/p/status", {"status": {"nominatedNodeName": "node-0"}})


@AREA.refused(403, 'cannot patch resource "nodes"', "to cordon a node")
def cordon_a_node(tenant: Tenant) -> Any:
    return tenant.patch("/api/v1/nodes/node-0", {"spec": {"unschedulable": True}})


@AREA.harmless(
    "a group that is not in queue starts nothing, gate or no gate",
    "to take the gate off a pod whose group is not in queue",
)
def take_the_gate_off(tenant: Tenant) -> None:
    tenant.create(GROUPS, group("g", suspend=True))
    tenant.create(PODS, pod("p", "g", schedulingGates=[{"name": "kbatch.dev/in-queue"}]))
    tenant.patch(f"{PODS.format(ATTACKER)}/p", {"spec": {"schedulingGates": []}})
    tenant.neighbours_gang()
    assert not tenant.bound("p")


@AREA.harmless("a claim that is allocated to nobody keeps the pod waiting", "a pod with claims that do not exist")
def claims_of_nobody(tenant: Tenant) -> None:
    volumes = [
        {"name": f"v{index}", "persistentVolumeClaim": {"claimName": f"{NEIGHBOUR}-{index}"}} for index in range(100)
    ]
    tenant.create(PODS, pod("p", volumes=volumes))
    claims = [{"name": "c", "resourceClaimName": "none"}]
    tenant.create(PODS, pod("q", resourceClaims=claims))
    tenant.neighbours_gang()
    assert not tenant.bound("p")
    assert not tenant.bound("q")


@AREA.harmless(
    "classes of pods cost time by the cycle, and the neighbour's gangs start between",
    "60 pods of which no two are alike, with a hundred terms each",
)
def pods_of_which_no_two_are_alike(tenant: Tenant) -> None:
    def one(index: int) -> dict[str, Any]:
        terms = [
            {"matchExpressions": [{"key": f"k{term}", "operator": "NotIn", "values": [f"v{index}"]}]}
            for term in range(100)
        ]
        wanted = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
        tolerations = [{"key": f"t{index}-{number}", "operator": "Exists"} for number in range(50)]
        return pod(f"p{index}", cpu=f"{index + 1}m", affinity=wanted, tolerations=tolerations)

    tenant.create_all(PODS, map(one, range(60)))
    tenant.neighbours_gang()


@AREA.harmless(
    "the search for a place has a budget, and the neighbour's gangs start between",
    "three groups of 20 roles that must stand close together, each role and the whole",
)
def hard_to_place(tenant: Tenant) -> None:
    roles = [{"name": f"r{index}", "minMember": 1, "topology": {"maxHops": 2}} for index in range(20)]
    for number in range(3):
        tenant.create(GROUPS, group(f"g{number}", subGroups=roles, topology={"maxHops": 4}))

    def one(index: int) -> dict[str, Any]:
        body = pod(f"p{index}", f"g{index % 3}", "1m")
        body["metadata"]["labels"] = {"kbatch.dev/sub-group": f"r{index // 3 % 20}"}
        return body

    tenant.create_all(PODS, map(one, range(60)))
    tenant.neighbours_gang()


@AREA.harmless(
    "groups whose classes turn in a circle end nowhere but in their queue",
    "a group that owns a pod that owns the group",
)
def owners_in_a_circle(tenant: Tenant) -> None:
    made = tenant.create(GROUPS, group("g", suspend=True))
    body = pod("p", "g")
    body["metadata"]["ownerReferences"] = [
        {"apiVersion": KBATCH, "kind": "PodGroup", "name": "g", "uid": made["metadata"]["uid"], "controller": True}
    ]
    member = tenant.create(PODS, body)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": member["metadata"]["uid"]}
    tenant.patch(f"{GROUPS.format(ATTACKER)}/g", {"metadata": {"ownerReferences": [owner]}})
    tenant.neighbours_gang()
