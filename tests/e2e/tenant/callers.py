"""Who pretends to be somebody else: reviews that the API server never sent, borrowed identities, open ports."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import urllib.request
from typing import TYPE_CHECKING, Any

from kbatch.localcluster.errors import ApiError
from tests.e2e.tenant.attack import Area
from tests.e2e.tenant.tenant import ATTACKER, CONFIGMAPS, GROUPS, NEIGHBOUR, PODS, SECONDS, SYSTEM, group, pod

if TYPE_CHECKING:
    from tests.e2e.tenant.tenant import Tenant

AREA = Area("Callers")
HANDLERS = ("podgroup-defaults", "podgroups", "job-suspension", "pod-reservations", "queue-deletion")


def review(name: str = "forged") -> bytes:
    """A review of a group of the neighbour, as the API server would send it."""
    made = {**group(name), "metadata": {"name": name, "namespace": NEIGHBOUR}}
    asked = {
        "uid": "1", "kind": {"group": "scheduling.incubator.k8s.io", "version": "v1alpha1", "kind": "PodGroup"},
        "resource": {"group": "scheduling.incubator.k8s.io", "version": "v1alpha1", "resource": "podgroups"},
        "operation": "CREATE", "namespace": NEIGHBOUR, "name": name, "userInfo": {"username": "u"}, "object": made,
    }  # fmt: skip
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}).encode()


def must_be(status: int, expected: int, what: str) -> None:
    """Raise what the API server's client would, so that all refusals read alike."""
    if status == expected:
        raise ApiError("POST", what, status, "nothing is reviewed here")
    raise AssertionError(f"{what} answered {status}")


@AREA.refused(404, "nothing is reviewed here", "forged reviews to the webhook's port, without a token")
def forged_reviews(tenant: Tenant) -> None:
    for handler in HANDLERS[1:]:
        assert tenant.knock(f"/{handler}", review()) == 404, handler
    must_be(tenant.knock(f"/{HANDLERS[0]}", review()), 404, HANDLERS[0])


@AREA.refused(404, "nothing is reviewed here", "the same with 12 guessed tokens, one of them very long")
def guessed_tokens(tenant: Tenant) -> None:
    tokens = [*(f"{number:064x}" for number in range(11)), "f" * 7000]
    found = {tenant.knock(f"/podgroup-defaults/{token}", review()) for token in tokens}
    must_be(max(found), 404, "/podgroup-defaults/TOKEN")


@AREA.harmless(
    "who knows no path gets 404 before anything of what he sends is read",
    "a review of 64 MiB that is said, and not sent",
)
def a_review_that_never_comes(tenant: Tenant) -> None:
    for _ in range(8):
        connection = tenant.connection()
        connection.putrequest("POST", "/podgroup-defaults/x")
        connection.putheader("Content-Length", str(2**26))
        connection.endheaders()
        assert connection.getresponse().status == 404
        connection.close()


@AREA.harmless(
    "each of them holds a connection, and groups are reviewed meanwhile",
    "100 connections to the webhook that say nothing more",
)
def connections_that_say_nothing(tenant: Tenant) -> None:
    with contextlib.ExitStack() as stack:
        for index in range(100):
            connection = tenant.connection() if index % 20 == 0 else None
            if connection is not None:
                stack.callback(connection.close)
                connection.connect()
                assert connection.sock is not None
                connection.sock.sendall(b"POST /podgroup-defaults/x HTTP/1.1\r\nHost: x\r\nContent-Len")
            else:
                stack.enter_context(socket.create_connection(tenant.webhook, timeout=SECONDS)).sendall(b"\x16\x03")
        made = tenant.create(GROUPS, group("meanwhile", suspend=True, subGroups=[
            {"name": "w", "minMember": 1, "template": {"spec": {"containers": [
                {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}}}]))  # fmt: skip
        assert made["spec"]["minResources"], "the webhook filled it in"


@AREA.harmless("they are no HTTP, and nothing is logged of them", "lines that are no HTTP, to the webhook's port")
def no_http(tenant: Tenant) -> None:
    for _ in range(10):
        connection = tenant.connection()
        connection.connect()
        assert connection.sock is not None
        connection.sock.sendall(b"\x00\xff" * 5000 + b"\r\n\r\n")
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection.sock.recv(100)
        connection.close()


@AREA.harmless(
    "what they show is counted already, and they are no part of what decides",
    "40 readings of the metrics of each process",
)
def readings_of_metrics(tenant: Tenant) -> None:
    for process in tenant.installed.report()["processes"].values():
        for _ in range(40):
            with urllib.request.urlopen(process["metrics"], timeout=SECONDS) as answer:  # noqa: S310 -- on loopback
                assert answer.read(100)


@AREA.refused(403, "cannot impersonate", "the name of the scheduler, by impersonation")
def impersonate_the_scheduler(tenant: Tenant) -> Any:
    return tenant.alone(**{"Impersonate-User": f"system:serviceaccount:{SYSTEM}:kbatch-scheduler"}).get(
        GROUPS.format(NEIGHBOUR)
    )


@AREA.refused(403, 'cannot create resource "serviceaccounts/token"', "a token of the podgroup operator")
def a_token_of_the_operator(tenant: Tenant) -> Any:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return tenant.api.post(f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/kbatch-podgroup/token", body)


@AREA.refused(403, 'cannot create resource "rolebindings"', "a role of the administrator for itself")
def more_rights(tenant: Tenant) -> Any:
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "more"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "kbatch-queue-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "user", "namespace": ATTACKER}],
    }  # fmt: skip
    return tenant.api.post(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{ATTACKER}/rolebindings", binding)


def with_object(kind: str, version: str, namespace: str = ATTACKER) -> dict[str, Any]:
    body = {"apiVersion": version, "kind": kind, "metadata": {"name": "made", "namespace": namespace}}
    return group("o", objects=[body])


@AREA.refused(422, "only these kinds can be made here", "a RoleBinding, made by the podgroup operator")
def rights_by_the_operator(tenant: Tenant) -> Any:
    return tenant.create(GROUPS, with_object("RoleBinding", "rbac.authorization.k8s.io/v1"))


@AREA.refused(422, "only these kinds can be made here", "a Secret, made by the podgroup operator")
def secrets_by_the_operator(tenant: Tenant) -> Any:
    return tenant.create(GROUPS, with_object("Secret", "v1"))


@AREA.harmless(
    "the namespace is not taken: objects are made in the group's",
    "a ConfigMap next door, made by the podgroup operator",
)
def objects_next_door(tenant: Tenant) -> None:
    made = tenant.create(GROUPS, with_object("ConfigMap", "v1", NEIGHBOUR))
    assert "namespace" not in made["spec"]["objects"][0]["metadata"]
    tenant.create(PODS, pod("o-0", "o"))
    tenant.wait("it is made", lambda: "made" in names(tenant, ATTACKER))
    assert "made" not in names(tenant, NEIGHBOUR)


def names(tenant: Tenant, namespace: str) -> set[str]:
    return {one["metadata"]["name"] for one in tenant.items(CONFIGMAPS, namespace)}
