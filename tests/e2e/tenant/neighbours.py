"""What belongs to others: their groups, pods, queues and quotas, and what belongs to kbatch and the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.e2e.tenant.attack import Area
from tests.e2e.tenant.tenant import (
    ATTACKER,
    CONFIGMAPS,
    GROUPS,
    JOBS,
    KBATCH,
    NEIGHBOUR,
    PODS,
    QUEUES,
    SYSTEM,
    WEBHOOKS,
    group,
    job,
    pod,
)

if TYPE_CHECKING:
    from tests.e2e.tenant.tenant import Tenant

AREA = Area("What belongs to others")
CLOSED = f"Queue {NEIGHBOUR} is not open to namespace {ATTACKER}"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"


def cannot(verb: str, what: str) -> str:
    return f'cannot {verb} resource "{what}"'


@AREA.refused(403, cannot("create", "podgroups"), "a group in the neighbour's namespace")
def a_group_next_door(tenant: Tenant) -> Any:
    return tenant.create(GROUPS, group("a"), NEIGHBOUR)


@AREA.refused(400, "does not match", "the same, by the namespace in the object")
def another_namespace_in_the_object(tenant: Tenant) -> Any:
    body = group("a")
    body["metadata"]["namespace"] = NEIGHBOUR
    return tenant.create(GROUPS, body)


@AREA.refused(403, cannot("deletecollection", "podgroups"), "to delete the neighbour's groups")
def delete_the_neighbours_groups(tenant: Tenant) -> Any:
    return tenant.delete(GROUPS.format(NEIGHBOUR))


@AREA.refused(403, cannot("patch", "podgroups"), "to suspend the neighbour's group")
def suspend_the_neighbours_group(tenant: Tenant) -> Any:
    return tenant.patch(f"{GROUPS.format(NEIGHBOUR)}/standing", {"spec": {"suspend": True}})


@AREA.refused(403, cannot("delete", "pods"), "to delete the neighbour's pod")
def delete_the_neighbours_pod(tenant: Tenant) -> Any:
    return tenant.delete(f"{PODS.format(NEIGHBOUR)}/standing-0")


@AREA.refused(403, cannot("create", "pods/eviction"), "to evict the neighbour's pod")
def evict_the_neighbours_pod(tenant: Tenant) -> Any:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "standing-0"}}
    return tenant.create(f"{PODS}/standing-0/eviction", body, NEIGHBOUR)


@AREA.refused(403, cannot("list", "podgroups"), "to read the groups of all namespaces")
def read_all_groups(tenant: Tenant) -> Any:
    return tenant.api.get(f"/apis/{KBATCH}/podgroups")


@AREA.refused(403, CLOSED, "a group in the neighbour's queue")
def a_group_in_the_neighbours_queue(tenant: Tenant) -> Any:
    return tenant.create(GROUPS, group("a", queue=NEIGHBOUR))


@AREA.refused(403, CLOSED, "to move a group into the neighbour's queue")
def move_into_the_neighbours_queue(tenant: Tenant) -> Any:
    tenant.create(GROUPS, group("a", suspend=True))
    return tenant.patch(f"{GROUPS.format(ATTACKER)}/a", {"spec": {"queue": NEIGHBOUR}})


@AREA.refused(403, CLOSED, "a pod in the neighbour's queue")
def a_pod_in_the_neighbours_queue(tenant: Tenant) -> Any:
    body = pod("p")
    body["metadata"]["labels"]["kbatch.dev/queue"] = NEIGHBOUR
    return tenant.create(PODS, body)


@AREA.refused(403, CLOSED, "a Job in the neighbour's queue")
def a_job_in_the_neighbours_queue(tenant: Tenant) -> Any:
    return tenant.create(JOBS, job("j", NEIGHBOUR))


@AREA.refused(
    403, cannot("patch", "namespaces"), "the neighbour's labels for its own namespace, by which queues are opened"
)
def the_neighbours_labels(tenant: Tenant) -> Any:
    return tenant.patch(f"/api/v1/namespaces/{ATTACKER}", {"metadata": {"labels": {"team": NEIGHBOUR}}})


@AREA.refused(403, cannot("create", "queues"), "a queue of its own")
def a_queue_of_its_own(tenant: Tenant) -> Any:
    return tenant.api.post(QUEUES, {"apiVersion": KBATCH, "kind": "Queue", "metadata": {"name": "mine"}})


@AREA.refused(403, cannot("patch", "queues"), "more weight for its queue")
def more_weight(tenant: Tenant) -> Any:
    return tenant.patch(f"{QUEUES}/{ATTACKER}", {"spec": {"weight": 1_000_000}})


@AREA.refused(403, cannot("patch", "queues/status"), "to write what the neighbour's queue holds")
def the_status_of_a_queue(tenant: Tenant) -> Any:
    return tenant.patch(f"{QUEUES}/{NEIGHBOUR}/status", {"status": {"allocated": {"cpu": "1000"}}})


@AREA.refused(403, cannot("delete", "queues"), "to delete the neighbour's queue")
def delete_the_neighbours_queue(tenant: Tenant) -> Any:
    return tenant.delete(f"{QUEUES}/{NEIGHBOUR}")


@AREA.refused(403, cannot("delete", "resourcequotas"), "to delete the quota of its namespace")
def delete_its_quota(tenant: Tenant) -> Any:
    return tenant.delete(f"/api/v1/namespaces/{ATTACKER}/resourcequotas/quota")


@AREA.refused(403, "forbidden", "to write into the quota that nothing is used")
def the_status_of_its_quota(tenant: Tenant) -> Any:
    path = f"/api/v1/namespaces/{ATTACKER}/resourcequotas/quota/status"
    return tenant.patch(path, {"status": {"used": {"pods": "0"}}})


@AREA.refused(403, "over ResourceQuota quota", "a group that is larger than the quota of its namespace")
def a_group_over_its_quota(tenant: Tenant) -> Any:
    return tenant.create(GROUPS, group("a", minResources={"requests.example.com/gpu": "9", "example.com/gpu": "9"}))


@AREA.refused(403, "forbidden", "to take the scheduler's Lease")
def the_schedulers_lease(tenant: Tenant) -> Any:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/kbatch-scheduler"
    return tenant.patch(path, {"spec": {"holderIdentity": "me"}})


@AREA.refused(403, cannot("patch", "configmaps"), "to change the scheduler's configuration")
def the_schedulers_configuration(tenant: Tenant) -> Any:
    return tenant.patch(f"{CONFIGMAPS.format(SYSTEM)}/kbatch-scheduler", {"data": {"scheduler.yaml": "actions: ''"}})


@AREA.refused(403, cannot("patch", "configmaps"), "to open all queues in the table of the policies")
def the_table_of_queues(tenant: Tenant) -> Any:
    return tenant.patch(f"{CONFIGMAPS.format(SYSTEM)}/kbatch-queue-access", {"data": {NEIGHBOUR: None}})


@AREA.harmless("only what stands in the release's namespace counts", "ConfigMaps of these names in its own namespace")
def names_of_kbatch_in_its_own_namespace(tenant: Tenant) -> None:
    for name in ("kbatch-scheduler", "kbatch-queue-access", f"kbatch-ledger-{NEIGHBOUR}"):
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"scheduler.yaml": "x"}}
        tenant.create(CONFIGMAPS, body)
        tenant.delete(f"{CONFIGMAPS.format(ATTACKER)}/{name}")


@AREA.refused(403, cannot("patch", "customresourcedefinitions"), "to change the kind PodGroup itself")
def the_kind_itself(tenant: Tenant) -> Any:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/podgroups.scheduling.incubator.k8s.io"
    return tenant.patch(path, {"spec": {"preserveUnknownFields": True}})


@AREA.refused(403, cannot("delete", "validatingadmissionpolicybindings"), "to unbind the policies")
def unbind_the_policies(tenant: Tenant) -> Any:
    return tenant.delete(f"{ADMISSION}/validatingadmissionpolicybindings/kbatch-scheduler")


@AREA.refused(403, cannot("list", "mutatingwebhookconfigurations"), "to read the paths of the webhook")
def read_the_webhooks_paths(tenant: Tenant) -> Any:
    return tenant.api.get(WEBHOOKS)


@AREA.refused(403, cannot("get", "secrets"), "to read the secret that the paths are made of")
def read_the_paths_secret(tenant: Tenant) -> Any:
    return tenant.api.get(f"/api/v1/namespaces/{SYSTEM}/secrets/kbatch-webhook-path")
