"""Objects of the stub are as long as a real server's, and have the same fields, in lists and in watches."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kbatch.kube.client import Client
from kbatch.kube.credentials import load_credentials
from kbatch.kube.kinds import PODGROUPS, PODS
from kbatch.kube.writes import as_dict, bind
from tests.bench.live.contestants import KBATCH
from tests.bench.live.load import NAMESPACE, Shape, creations
from tests.bench.stub.server import serving
from tests.e2e.test_kube import exists, install_crds, phase_is, until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.conftest import ControlPlane

pytestmark = pytest.mark.control_plane

ROW = "wire"


async def made(client: Client) -> dict[str, str]:
    """A group with a pod, bound and running; the uid of each by path."""
    uids: dict[str, str] = {}
    for path, body in creations(ROW, Shape(1, 1), KBATCH):
        answer = as_dict(await client.request("POST", path, body=body))
        uids[path] = answer["metadata"]["uid"]
    name = f"{ROW}-g0-0"
    await bind(client, namespace=NAMESPACE, name=name, uid=uids[PODS.path(NAMESPACE)], node="node-0")
    return uids


async def seen(client: Client) -> dict[str, Any]:
    """What the server says of them in a list and in a watch."""
    found: dict[str, Any] = {}
    for kind in (PODS, PODGROUPS):
        listed = as_dict(await client.request("GET", kind.path(NAMESPACE), params={"limit": "10"}))
        found[f"list of {kind.plural}"] = listed
        params = {"watch": "true", "resourceVersion": "0", "allowWatchBookmarks": "true"}
        async with client.stream(kind.path(NAMESPACE), params=params, silence=10) as lines:
            async for some in lines:
                found[f"watch of {kind.plural}"] = json.loads(some[0])
                break
    return found


def paths(value: Any, at: str = "") -> set[str]:
    """Where the value's fields are; of lists all elements together, of field managers only that there are some."""
    if isinstance(value, dict):
        return {at} | {
            one for name, inner in value.items() for one in paths(inner, f"{at}.{name}") if name != "fieldsV1"
        }
    if isinstance(value, list):
        return {f"{at}[]"} | {one for inner in value for one in paths(inner, f"{at}[]")}
    return {at}


async def shown(kubeconfig: Path) -> dict[str, Any]:
    async with Client(load_credentials(str(kubeconfig)), user_agent="kbatch-test") as client:
        await until(lambda: exists(client, f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"))
        await made(client)
        await until(lambda: phase_is(client, NAMESPACE, f"{ROW}-g0-0", "Running"))
        return await seen(client)


async def test_objects_are_as_those_of_a_real_server(control_plane: ControlPlane) -> None:
    install_crds(control_plane)
    control_plane.ensure_nodes(1)
    control_plane.run_kubectl("create", "namespace", NAMESPACE)
    try:
        real = await shown(control_plane.kubeconfig)
    finally:
        control_plane.run_kubectl("delete", "namespace", NAMESPACE, "--wait=false")
    with serving() as stub:
        ours = await shown(stub.kubeconfig)
    for what in real:
        assert paths(ours[what]) == paths(real[what]), what
        longest, shortest = len(json.dumps(real[what])), len(json.dumps(ours[what]))
        assert shortest == pytest.approx(longest, rel=0.05), what
