"""Names, amounts, numbers, labels and annotations that nobody would write; finalizers; statuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.e2e.tenant.attack import Area
from tests.e2e.tenant.tenant import ATTACKER, GROUPS, NEIGHBOUR, PODS, group, pod, role, template

if TYPE_CHECKING:
    from tests.e2e.tenant.tenant import Tenant

AREA = Area("Fields")


@AREA.refused(422, "should match", "minResources of 1e9999 CPU")
def an_amount_without_end(tenant: Tenant) -> Any:
    return tenant.create(GROUPS, group("a", minResources={"cpu": "1e9999"}))


@AREA.refused(422, "must not be negative", "minResources below nothing, to make room in sums")
def an_amount_below_nothing(tenant: Tenant) -> Any:
    return tenant.create(GROUPS, group("a", minResources={"cpu": "-1000"}))


@AREA.refused(422, "must not be larger than 2^53", "minResources of 8 exa-CPU")
def an_amount_beyond_counting(tenant: Tenant) -> Any:
    return tenant.create(GROUPS, group("a", minResources={"cpu": "8E"}))


@AREA.refused(422, "must have at most 32 items", "minResources of 1,000 kinds of resources")
def amounts_of_a_thousand_kinds(tenant: Tenant) -> Any:
    return tenant.create(GROUPS, group("a", minResources={f"example.com/r{index}": "1" for index in range(1000)}))


@AREA.refused(403, "it can never fit", "a minimum of 2^31-1 members")
def a_minimum_beyond_counting(tenant: Tenant) -> Any:
    return tenant.create(GROUPS, group("a", 2**31 - 1))


@AREA.refused(422, "must have at most 64 items", "a group of 1,000 roles")
def a_thousand_roles(tenant: Tenant) -> Any:
    return tenant.create(GROUPS, group("a", subGroups=[{"name": f"r{index}"} for index in range(1000)]))


@AREA.refused(422, "Too long", "annotations of 300 KiB")
def annotations_of_kilobytes(tenant: Tenant) -> Any:
    body = group("a")
    body["metadata"]["annotations"] = {f"example.com/{index}": "x" * 1000 for index in range(300)}
    return tenant.create(GROUPS, body)


@AREA.refused(422, "Invalid value", "a group named as an expression of templates")
def a_name_that_is_rendered(tenant: Tenant) -> Any:
    return tenant.create(GROUPS, group("{{ peers }}", subGroups=[role("{{ group }}")]))


@AREA.harmless(
    "the group is reported as Stalled, and tried again ever more slowly",
    "a name of 253 characters, of which no pod can be made",
)
def a_name_too_long_for_pods(tenant: Tenant) -> None:
    name = "n" * 253
    tenant.create(GROUPS, group(name, subGroups=[{"name": "w", "minMember": 1, "template": template()}]))
    tenant.wait("it is stalled", lambda: tenant.condition(name, "Stalled").get("status") == "True")


@AREA.harmless("the amount is counted exactly and fits nowhere: the pod waits", "a pod of 1,025 containers of 8Pi each")
def a_pod_beyond_counting(tenant: Tenant) -> None:
    body = pod("huge")
    asked = {"requests": {"memory": "8Pi"}}
    body["spec"]["containers"] = [{"name": f"c{index}", "image": "i", "resources": asked} for index in range(1025)]
    tenant.create(PODS, body)


@AREA.harmless("what cannot be read counts as absent", "annotations of pods and groups full of nonsense")
def annotations_of_nonsense(tenant: Tenant) -> None:
    values = ("9" * 400, "-1", "NaN", "1e400", "9999-99-99T99:99:99Z", "\u202e", "{{ peers }}")
    keys = (
        "scheduling.k8s.io/group-min-member",
        *(f"kbatch.dev/{key}" for key in ("expected-seconds", "last-checkpoint", "max-hops", "replaced")),
        *(f"kbatch.dev/{key}" for key in ("replacement-limit", "suspended")),
    )
    for index, value in enumerate(values):
        one = pod(f"p{index}")
        of = group(f"g{index}", subGroups=[{"name": "w", "minMember": 1, "template": template()}])
        for body in (one, of):
            body["metadata"]["annotations"] = dict.fromkeys(keys, value)
        tenant.create(PODS, one)
        tenant.create(GROUPS, of)


@AREA.harmless("the pod belongs to no role, and its group waits for its own", "a role that the group does not have")
def a_role_of_nobody(tenant: Tenant) -> None:
    tenant.create(GROUPS, group("g", subGroups=[{"name": "w", "minMember": 1}]))
    body = pod("p", "g")
    body["metadata"]["labels"] = {"kbatch.dev/sub-group": "other"}
    tenant.create(PODS, body)
    tenant.wait("the group says why", lambda: tenant.condition("g", "Scheduled"))
    assert not tenant.bound("p")


@AREA.refused(403, 'cannot patch resource "podgroups/status"', "to write that its group is in queue")
def a_status_of_its_own(tenant: Tenant) -> Any:
    tenant.create(GROUPS, group("g", suspend=True))
    return tenant.patch(f"{GROUPS.format(ATTACKER)}/g/status", {"status": {"phase": "InQueue"}})


@AREA.harmless("a status that comes with the object is dropped", "a group that is created as one that runs already")
def a_status_from_the_start(tenant: Tenant) -> None:
    body = {**group("g", suspend=True), "status": {"phase": "Running", "running": 1000, "allocated": {"cpu": "1000"}}}
    assert tenant.create(GROUPS, body).get("status", {}).get("phase") != "Running"
    changed = tenant.patch(f"{GROUPS.format(ATTACKER)}/g", {"status": {"phase": "Running"}})
    assert changed.get("status", {}).get("phase") != "Running"


@AREA.harmless(
    "it is the tenant's own that stays; room and queue are given back",
    "groups and pods with finalizers that nobody removes",
)
def finalizers_that_block(tenant: Tenant) -> None:
    for index in range(5):
        of, member = group(f"g{index}"), pod(f"g{index}-0", f"g{index}")
        for body in (of, member):
            body["metadata"]["finalizers"] = ["example.com/never"]
        tenant.create(GROUPS, of)
        tenant.create(PODS, member)
    tenant.wait("one runs", lambda: tenant.bound("g0-0"))
    for kind in (GROUPS, PODS):
        tenant.delete(kind.format(ATTACKER))
    tenant.wait("the queue holds nothing", lambda: not tenant.holds())


@AREA.harmless(
    "members are counted in their own namespace alone", "pods that say they are owned by the neighbour's group"
)
def owned_by_the_neighbours_group(tenant: Tenant) -> None:
    theirs = tenant.neighbours_group()
    owner = {"apiVersion": theirs["apiVersion"], "kind": "PodGroup", "controller": True,
             "name": theirs["metadata"]["name"], "uid": theirs["metadata"]["uid"]}  # fmt: skip
    body = pod("p", theirs["metadata"]["name"])
    body["metadata"]["ownerReferences"] = [owner]
    before = theirs["status"].get("running"), theirs["status"].get("pending")
    tenant.create(PODS, body)
    other = pod("q", f"{NEIGHBOUR}/{theirs['metadata']['name']}")
    tenant.create(PODS, other)
    now = tenant.neighbours_group()["status"]
    assert (now.get("running"), now.get("pending")) == before
