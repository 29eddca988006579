"""`kbatch up`, `kbatch down` and `kbatch status`: one cluster from nothing to ready, and back."""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbatch.localcluster.cluster import Cluster, Options, State, started
from kbatch.localcluster.demo import Row, submit, wait_decided
from kbatch.localcluster.errors import NoSuchClusterError, StartError
from kbatch.localcluster.folders import checkout, state_root
from kbatch.localcluster.nodes import ensure_nodes
from kbatch.localcluster.processes import wait_until
from kbatch.localcluster.programs import Programs, ensure_programs
from kbatch.localcluster.release import Release, addresses, components

if TYPE_CHECKING:
    from collections.abc import Callable

    Progress = Callable[[str], None]


_PATIENCE = 30.0
_PODS_AT_ONCE = 32
"""As many kubelets as would be at work at one time: pods run as soon as they are bound."""


@dataclass(frozen=True)
class ProcessReport:
    """One process of the installed chart: its pid and the addresses of its metrics and of its health."""

    pid: int | None
    """None while it is being restarted."""
    metrics: str
    health: str


@dataclass(frozen=True)
class Report:
    """What a user needs in order to use a cluster; `json()` is what `kbatch up -o json` prints."""

    name: str
    kubeconfig: str
    kubectl: str
    processes: dict[str, ProcessReport] = field(default_factory=dict)

    def json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return asdict(self)


def up(
    name: str, *, nodes: int, control_plane_only: bool, progress: Progress, priority_and_fairness: bool = False
) -> Report:
    """Bring a cluster up, or find it up, and return when everything in it is ready.

    Calling it again changes nothing, except that missing nodes are added. A left-over of a crash is removed first.

    Raises:
        LocalClusterError: with a sentence that says what to do; nothing that this call started is left running.
    """
    checkout()
    cluster = Cluster(name)
    programs = ensure_programs(progress)
    options = Options(pods_at_once=_PODS_AT_ONCE, priority_and_fairness=priority_and_fairness)
    with cluster.locked():
        found = cluster.state()
        if found is State.BROKEN and cluster.complete():
            # Busy or just restarted, perhaps: a cluster that can still answer is not thrown away.
            progress(f"waiting for the API server of {name}")
            if wait_until(cluster.healthy, _PATIENCE, every=0.5):
                found = State.RUNNING
        if found is State.BROKEN:
            progress(f"the cluster {name} is left over from a crash: cleaning it up")
            cluster.remove()
        absent = found is not State.RUNNING
        try:
            if absent:
                progress(f"starting the control plane {name}")
                cluster.start(programs, options)
            progress(f"waiting for {nodes} nodes")
            with cluster.api() as api:
                ensure_nodes(api, nodes)
            if not control_plane_only:
                _ensure_release(Release(cluster.kubeconfig, cluster.host_folder, programs), progress)
        except BaseException as error:
            if absent:
                _keep_log(error, cluster)
                cluster.remove()
            raise
        return _report(cluster, programs)


def _ensure_release(release: Release, progress: Progress) -> None:
    """Have the chart installed and its processes ready; what is so already stays as it is."""
    if not (release.supervisor() and release.installed()):
        progress("installing the chart with Helm")
        release.install()
    progress("starting kbatch's processes")
    ran_before = release.supervisor()
    try:
        release.start()
        release.wait_ready()
    except BaseException:
        if not ran_before:
            release.stop()
        raise


def _keep_log(error: BaseException, cluster: Cluster) -> None:
    """Save the log that an error points at from the removal of everything else."""
    if isinstance(error, StartError) and error.log and error.log.exists():
        kept = state_root() / "failed" / f"{cluster.name}-{error.log.name}"
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(error.log, kept)
        error.moved(kept)


def demo(name: str, progress: Progress) -> list[Row]:
    """Submit the two example gangs to a running cluster, and return what became of them."""
    cluster = Cluster(name)
    record = cluster.record()
    if record is None:
        raise NoSuchClusterError(name, started())
    progress("submitting a gang that fits and one that cannot")
    submit(Programs(bin=Path(record.programs)).kubectl, cluster.kubeconfig)
    with cluster.api() as api:
        return wait_decided(api)


def down(name: str) -> bool:
    """End a cluster and everything in it; False if there was none."""
    cluster = Cluster(name)
    with cluster.locked():
        if cluster.state() is State.ABSENT:
            return False
        cluster.remove()
    return True


def status(name: str) -> tuple[State, Report]:
    """Return how a cluster is, and what `up` said about it; NoSuchClusterError if there is none."""
    cluster = Cluster(name)
    state = cluster.state()
    record = cluster.record()
    if state is State.ABSENT or record is None:
        raise NoSuchClusterError(name, started())
    programs = Programs(bin=Path(record.programs))
    if Release(cluster.kubeconfig, cluster.host_folder, programs).abandoned():
        state = State.BROKEN
    return state, _report(cluster, programs)


def _report(cluster: Cluster, programs: Programs) -> Report:
    states = Release(cluster.kubeconfig, cluster.host_folder, programs).states()
    running = {component: (states[component], *addresses(states[component])) for component in components(states)}
    return Report(
        cluster.name,
        str(cluster.kubeconfig),
        str(programs.kubectl),
        {
            component: ProcessReport(state.pid, metrics, health)
            for component, (state, metrics, health) in running.items()
        },
    )
