"""Many requests in a short time. What they cost the neighbour in time is measured in test_floods.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.e2e.tenant.attack import Area
from tests.e2e.tenant.tenant import ATTACKER, GROUPS, JOBS, PODS, config_map, group, job, pod, template

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.tenant.tenant import Tenant

AREA = Area("Floods")
COUNT = 100
"""Requests of a flood in the list."""


def groups_made_and_deleted(tenant: Tenant, number: int) -> None:
    tenant.create(GROUPS, group(f"f{number}", minResources={"cpu": "1"}))
    tenant.delete(f"{GROUPS.format(ATTACKER)}/f{number}")


def dry_runs(tenant: Tenant, number: int) -> None:
    text = "{% for p in peers %}{{ p }}{% endfor %}"
    role = {"name": "w", "minMember": 1, "maxMember": 500, "template": template(args=[text])}
    tenant.create(GROUPS, group(f"f{number}", subGroups=[role]), query="?dryRun=All")
    tenant.create(PODS, pod(f"f{number}"), query="?dryRun=All")


def pods_made_and_deleted(tenant: Tenant, number: int) -> None:
    tenant.create(PODS, pod(f"f{number}", f"f{number % 7}"))
    tenant.delete(f"{PODS.format(ATTACKER)}/f{number}?gracePeriodSeconds=0")


def jobs_made_and_deleted(tenant: Tenant, number: int) -> None:
    tenant.create(JOBS, job(f"f{number}"))
    tenant.delete(f"{JOBS.format(ATTACKER)}/f{number}?propagationPolicy=Background")


def config_maps_made_and_deleted(tenant: Tenant, number: int) -> None:
    """Nothing of kbatch's: what any flood costs those who use the same API server."""
    path = f"/api/v1/namespaces/{ATTACKER}/configmaps"
    tenant.api.post(path, config_map(f"f{number}"))
    tenant.delete(f"{path}/f{number}")


FLOODS: dict[str, Callable[[Tenant, int], None]] = {
    "groups": groups_made_and_deleted,
    "dry runs": dry_runs,
    "pods": pods_made_and_deleted,
    "jobs": jobs_made_and_deleted,
}
GO_ON = "the neighbour's gangs start between; the API server shares its time out"


def _flooded(tenant: Tenant, act: Callable[[Tenant, int], None]) -> None:
    statuses = tenant.flood(COUNT, lambda number: act(tenant, number))
    assert set(statuses) <= {200, 409, 429}, statuses
    assert statuses.get(200, 0) > COUNT / 2, statuses
    tenant.neighbours_gang()


@AREA.harmless(GO_ON, f"{COUNT} groups, made and deleted at once")
def flood_of_groups(tenant: Tenant) -> None:
    _flooded(tenant, groups_made_and_deleted)


@AREA.harmless(f"{GO_ON}, and nothing is remembered of them", f"{COUNT} dry runs of groups with templates, and of pods")
def flood_of_dry_runs(tenant: Tenant) -> None:
    _flooded(tenant, dry_runs)
    assert not tenant.items(GROUPS)


@AREA.harmless(GO_ON, f"{COUNT} pods of 7 groups, made and deleted at once")
def flood_of_pods(tenant: Tenant) -> None:
    _flooded(tenant, pods_made_and_deleted)


@AREA.harmless(GO_ON, f"{COUNT} Jobs with a queue, made and deleted at once")
def flood_of_jobs(tenant: Tenant) -> None:
    _flooded(tenant, jobs_made_and_deleted)


@AREA.harmless(GO_ON, f"{COUNT} changes of one group that waits")
def flood_of_changes(tenant: Tenant) -> None:
    tenant.create(GROUPS, group("g", minResources={"cpu": "1000"}))

    def change(_: Tenant, number: int) -> Any:
        body = {"spec": {"minResources": {"cpu": str(900 + number)}}, "metadata": {"labels": {"n": str(number)}}}
        return tenant.patch(f"{GROUPS.format(ATTACKER)}/g", body)

    _flooded(tenant, change)


@AREA.harmless(GO_ON, "100 watches of groups and pods, and changes that all of them are told of")
def flood_of_watches(tenant: Tenant) -> None:
    with tenant.watching(100):
        _flooded(tenant, groups_made_and_deleted)


@AREA.harmless(GO_ON, f"{COUNT} lists of all groups and pods of its namespace")
def flood_of_lists(tenant: Tenant) -> None:
    tenant.create_all(GROUPS, [group(f"g{index}", suspend=True) for index in range(100)])
    _flooded(tenant, lambda one, _: one.api.get(GROUPS.format(ATTACKER)))
