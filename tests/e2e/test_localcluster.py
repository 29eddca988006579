"""The local control plane: it starts, it is the real thing, and nothing of it stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import ControlPlane

pytestmark = pytest.mark.control_plane


def test_the_shared_control_plane_is_kubernetes_with_nodes(control_plane: ControlPlane) -> None:
    assert control_plane.kubectl_json("version")["serverVersion"]["gitVersion"] == "v1.36.1"
    control_plane.ensure_nodes(3)
    names = {item["metadata"]["name"] for item in control_plane.kubectl_json("get", "nodes")["items"]}
    assert {"node-0", "node-1", "node-2"} <= names
