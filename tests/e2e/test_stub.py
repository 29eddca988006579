"""The stub of an API server that benchmarks use speaks as a real one does: the tests of `kbatch.kube` hold on both.

Left out of them is what the stub does not have, disruption budgets, schemas and a restart that forgets nothing, and
what takes seconds and asks nothing more of the server.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from kbatch.localcluster.api import Api
from kbatch.localcluster.nodes import ensure_nodes
from tests.bench.stub.server import Stub, serving
from tests.e2e import test_kube
from tests.e2e.test_kube import client, namespace  # noqa: F401  (fixtures of those tests)

pytestmark = pytest.mark.control_plane

LEFT_OUT = {
    "test_evict_respects_uid_budget_and_dry_run",
    "test_an_informer_outlives_the_api_server_and_learns_what_the_gap_hid",
    "test_a_leader_cut_off_stops_before_another_begins",
    "test_a_stolen_lease_ends_the_leadership",
    "test_a_silent_connection_is_given_up",
    "test_a_status_with_a_field_that_the_schema_lacks_is_refused",
}
globals().update(
    {name: test for name, test in vars(test_kube).items() if name.startswith("test_") and name not in LEFT_OUT}
)


class StubPlane:
    """The stub, where those tests expect a control plane."""

    def __init__(self, stub: Stub) -> None:
        self.kubeconfig: Path = stub.kubeconfig
        with Api(stub.kubeconfig) as api:
            self.server = api.server

    def ensure_nodes(self, count: int) -> None:
        """Have these nodes."""
        with Api(self.kubeconfig) as api:
            ensure_nodes(api, count)


@pytest.fixture(scope="module")
def control_plane() -> Iterator[StubPlane]:
    """In the place of the real one."""
    with serving() as stub:
        yield StubPlane(stub)


@pytest.fixture(scope="module")
def crds() -> None:
    """The stub knows kbatch's kinds from the start."""


def test_the_tests_are_those_of_the_real_server() -> None:
    assert vars(test_kube).keys() >= LEFT_OUT
    assert sum(name.startswith("test_") for name in globals()) >= 19


def test_the_stub_is_another_server(control_plane: StubPlane) -> None:
    assert urlsplit(control_plane.server).hostname == "127.0.0.1"
    assert "kbatch-stub-" in str(control_plane.kubeconfig)
