"""The auditor sees on a real API server what its rules are about: each misdeed is done by hand, and told.

That a pod is bound twice the server itself prevents; that rule is tried with made-up events only.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from kbatch.localcluster.api import Api
from kbatch.localcluster.processes import wait_until
from tests.e2e.auditor.allowances import Limits
from tests.e2e.auditor.auditor import Auditor
from tests.e2e.chaos.field import LEASES, queue
from tests.e2e.chaos.load import GROUPS, create, gang, group, pod

if TYPE_CHECKING:
    from tests.e2e.chaos.field import Field

pytestmark = pytest.mark.faults

LEASE = "staged"
QUICK = Limits(partial=0.5, untrue=0.5, beneficiary=0.5, race=0.3)


@contextmanager
def replica(field: Field, identity: str) -> Iterator[Api]:
    """A client that the audit log takes for a replica of the scheduler."""
    with field.plane.api() as api:
        api._headers = api._headers | {"User-Agent": f"kbatch-scheduler/0 ({identity})"}
        yield api


def bind(by: Api, space: str, name: str, node: str) -> None:
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
    by.post(f"/api/v1/namespaces/{space}/pods/{name}/binding", body)


def evict(by: Api, space: str, name: str, *, action: str, whom: str = "") -> None:
    why = {"kbatch.dev/evicted-by": action} | ({"kbatch.dev/evicted-for": whom} if whom else {})
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "annotations": why}}
    by.post(f"/api/v1/namespaces/{space}/pods/{name}/eviction", body)


def lease(holder: str) -> dict[str, Any]:
    now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": now, "acquireTime": now}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": LEASE}, "spec": spec}


def test_each_misdeed_is_seen(field: Field) -> None:
    field.ensure_nodes(8, alike=True)
    create(field.api, [queue("other")])
    with (
        field.namespace() as space,
        Auditor(field.plane.kubeconfig, field.log, QUICK, lease=LEASE) as auditor,
        replica(field, "a") as a,
        replica(field, "b") as b,
    ):
        a.post(LEASES, lease("a"))
        documents = [
            *gang(space, "half", 2),
            *gang(space, "huge", 1, cpu="33"),
            *gang(space, "closed", 1),
            group(space, "says", 1),
            *gang(space, "greedy", 5, cpu="32"),
            *gang(space, "waits", 5, cpu="32", queue="other"),
            *gang(space, "victim", 1),
            pod(space, "fine", "none"),
        ]
        create(field.api, documents)
        bind(a, space, "fine", "node-0")
        bind(a, space, "victim-0", "node-0")
        field.patch("/api/v1/nodes/node-7", {"spec": {"unschedulable": True}})
        assert not auditor.verdict(), "nothing has gone wrong yet"

        says = {"status": {"conditions": [_condition("Scheduled", "True"), _condition("Enqueued", "True")]}}
        field.patch(f"{GROUPS}/namespaces/{space}/podgroups/says/status", says)
        evict(a, space, "fine", action="reclaim", whom=f"{space}/greedy")
        assert wait_until(lambda: auditor.evictions("reclaim") == 1, 10, every=0.01)
        early = {violation.rule for violation in auditor.verdict()}
        assert early <= {"untrue condition", "evicted in vain"}, "nothing else has gone wrong, however long that took"

        bind(b, space, "half-0", "node-0")  # by the one that does not lead; and the gang stays as it is
        bind(a, space, "huge-0", "node-1")
        for index in range(5):
            bind(a, space, f"greedy-{index}", f"node-{2 + index}")
        evict(a, space, "victim-0", action="preempt")

        def seen() -> set[str]:
            return {violation.rule for violation in auditor.verdict()}

        def about(rule: str) -> set[str]:
            return {violation.about for violation in auditor.verdict() if violation.rule == rule}

        b.request("PUT", f"{LEASES}/{LEASE}", field.api.get(f"{LEASES}/{LEASE}") | {"spec": lease("b")["spec"]})
        expected = {
            "not the leader", "two leaders", "partial gang", "over allocatable", "closed node", "untrue condition",
            "evicted in vain", "above deserved",
        }  # fmt: skip
        assert wait_until(lambda: "node-7" in auditor.look().closed_nodes, 5, every=0.05)
        closed = auditor.look().closed_nodes["node-7"]  # the grace counts from when the auditor has heard of it
        wait_until(lambda: QUICK.race < time.monotonic() - closed, 5, every=0.05)
        bind(b, space, "closed-0", "node-7")
        assert wait_until(lambda: seen() >= expected, 4, every=0.1), expected - seen()
        victim = f"{space}/victim-0"
        assert wait_until(lambda: victim in about("evicted in vain"), 4, every=0.1), "though the leader has changed"
        assert about("not the leader") == {"b"}
        with pytest.raises(AssertionError, match="over allocatable"):
            auditor.silent()
        field.delete(f"{LEASES}/{LEASE}")
    field.patch("/api/v1/nodes/node-7", {"spec": {"unschedulable": False}})
    field.delete(f"{GROUPS}/queues/other")


def _condition(kind: str, status: str) -> dict[str, str]:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"type": kind, "status": status, "reason": "Staged", "message": "", "lastTransitionTime": stamp}
