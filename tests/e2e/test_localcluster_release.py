"""The chart on a local control plane: its Deployments' processes come, follow what Helm does, and go."""

from __future__ import annotations

import base64
import os
import signal
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kbatch.localcluster import processes
from kbatch.localcluster.api import Api
from kbatch.localcluster.cluster import Cluster
from kbatch.localcluster.release import COMPONENTS, NAMESPACE, RELEASE, Release, addresses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kbatch.localcluster.host import ProcessState
    from kbatch.localcluster.programs import Programs

pytestmark = pytest.mark.control_plane

TIMEOUT = 30.0
PAIRS = Path(__file__).parents[1] / "unit" / "webhooks" / "certificates"


@pytest.fixture(scope="module")
def release(programs: Programs) -> Iterator[Release]:
    cluster = Cluster(f"release-{os.getpid()}")
    with cluster.locked():
        cluster.start(programs)
    release = Release(cluster.kubeconfig, cluster.host_folder, programs)
    try:
        release.install()
        release.start()
        release.wait_ready()
        yield release
    finally:
        with cluster.locked():
            cluster.remove()
    assert not release.supervisor()


def arguments(state: ProcessState) -> list[str]:
    assert state.pid
    return processes.arguments(state.pid)


def answer(url: str) -> tuple[int, str]:
    with urllib.request.urlopen(url, timeout=5) as reply:  # noqa: S310 - an address that we were given
        return reply.status, reply.read().decode()


def test_every_process_runs_and_answers_where_it_is_said_to(release: Release) -> None:
    states = release.states()
    assert set(states) == set(COMPONENTS)
    ports = [port for state in states.values() for port in state.ports.values()]
    assert len(ports) == len(set(ports)) == 9
    for component, state in states.items():
        # The shipped command by its own path, the shipped arguments.
        assert f"kbatch-{component}" in arguments(state)[1]
        assert "--bind-address=127.0.0.1" in arguments(state)
        metrics, health = addresses(state)
        assert answer(health)[0] == 200
        assert "# TYPE" in answer(metrics)[1]


def test_a_change_of_values_reaches_the_processes(release: Release) -> None:
    before = release.states()
    release.install(["--set", "logLevel=debug"])
    after = release.wait_ready()
    for component in COMPONENTS:
        assert after[component].pid != before[component].pid
        assert "--log-level=debug" in arguments(after[component])
        assert not processes.alive(before[component].pid or 0)
        # The address that others were told stays.
        assert after[component].ports == before[component].ports


def test_a_change_of_the_configuration_reaches_the_running_scheduler(release: Release, tmp_path: Path) -> None:
    mounted = release.folder.pod("scheduler") / "volumes" / "configuration" / "scheduler.yaml"
    before, pid = mounted.read_text(), release.states()["scheduler"].pid
    values = tmp_path / "values.yaml"
    values.write_text(
        "scheduler:\n  configuration: |\n    # changed\n" + "".join(f"    {line}\n" for line in before.splitlines())
    )
    release.install(["--set", "logLevel=debug", "--values", str(values)])
    assert processes.wait_until(lambda: "# changed" in mounted.read_text(), TIMEOUT)
    assert release.states()["scheduler"].pid == pid


def test_a_killed_process_is_started_again(release: Release) -> None:
    pid = release.states()["queue"].pid
    assert pid
    os.kill(pid, signal.SIGKILL)

    def again() -> Any:
        state = release.states()["queue"]
        return state.ready and state.pid not in {None, pid}

    assert processes.wait_until(again, TIMEOUT)


def test_the_processes_end_with_their_supervisor_and_come_back_with_the_next(release: Release) -> None:
    before = release.states()
    os.kill(release.supervisor()[0], signal.SIGKILL)
    assert processes.wait_until(lambda: not any(processes.alive(state.pid or 0) for state in before.values()), TIMEOUT)
    assert release.abandoned()
    assert release.states() == {}

    release.start()
    after = release.wait_ready()
    assert not release.abandoned()
    assert {state.pid for state in after.values()}.isdisjoint({state.pid for state in before.values()})


def test_uninstalling_ends_the_processes(release: Release) -> None:
    pids = [state.pid for state in release.states().values()]
    release.helm("uninstall", RELEASE, "--namespace", NAMESPACE)
    assert processes.wait_until(lambda: not any(processes.alive(pid or 0) for pid in pids), TIMEOUT)
    assert processes.wait_until(lambda: release.states() == {}, TIMEOUT)
    assert not release.installed()


def test_metrics_are_for_accounts_that_may_read_them(release: Release, programs: Programs) -> None:
    """What a Prometheus would show is asked for by the processes' own accounts, with the rights of the chart."""
    pair = {f"tls.{kind}": (PAIRS / f"first.{kind}").read_bytes() for kind in ("crt", "key")}
    secret = {
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pair"},
        "data": {name: base64.b64encode(content).decode() for name, content in pair.items()},
    }  # fmt: skip
    core = f"/api/v1/namespaces/{NAMESPACE}"
    with Api(release.kubeconfig) as api:
        api.post(f"{core}/secrets", secret)
        for name in ("prometheus", "somebody"):
            api.post(f"{core}/serviceaccounts", {"metadata": {"name": name}})
        subject = {"kind": "ServiceAccount", "name": "prometheus", "namespace": NAMESPACE}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "kbatch-metrics-reader"}
        binding = {"metadata": {"name": "prometheus"}, "subjects": [subject], "roleRef": role}
        api.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
        tokens = {
            name: api.post(f"{core}/serviceaccounts/{name}/token", {"spec": {}})["status"]["token"]
            for name in ("prometheus", "somebody")
        }
    release.install(["--set", "metrics.tls.secretName=pair", "--set", "metrics.authorization.enabled=true"])
    states = release.wait_ready()
    context = ssl.create_default_context(cafile=PAIRS / "first.crt")
    context.check_hostname = False

    def scraped(component: str, token: str | None) -> tuple[int, bytes]:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        url = f"https://127.0.0.1:{states[component].ports['metrics']}/metrics"
        request = urllib.request.Request(url, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=10, context=context) as reply:  # noqa: S310
                return reply.status, reply.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    for component in COMPONENTS:
        assert scraped(component, None) == (401, b"")
        assert scraped(component, "made-up") == (401, b"")
        assert scraped(component, tokens["somebody"]) == (403, b"")
        status, text = scraped(component, tokens["prometheus"])
        assert (status, b"# TYPE" in text) == (200, True)
        assert answer(addresses(states[component])[1])[0] == 200
