"""etcd is restored to an older revision while kbatch runs: what was written since has never been, for anybody."""

from __future__ import annotations

import os
import re
import signal
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from kbatch.localcluster.processes import wait_until
from kbatch.localcluster.programs import Programs
from kbatch.localcluster.release import addresses
from tests.e2e.etcdutl.backup import Backup
from tests.e2e.site import GROUPS, JOBS, PODS, Site, container, standing

pytestmark = [pytest.mark.control_plane, pytest.mark.long]

RELISTS: Final = "kbatch_watch_relists_total"
RELIST_SECONDS: Final = 30.0
CORES: Final = 32_000


@pytest.fixture
def site(programs: Programs, tmp_path: Path) -> Iterator[Site]:
    with standing(f"restore-{os.getpid()}", programs, tmp_path) as site:
        yield site


def test_what_was_written_since_the_snapshot_has_never_been(site: Site, programs: Programs, tmp_path: Path) -> None:
    backup = Backup(site.cluster, programs, tmp_path / "snapshot.db")
    kept = before_snapshot(site, backup)
    after_snapshot(site)
    processes = {name: (state.pid, relists(site, name)) for name, state in site.release.states().items()}

    backup.restore()

    back = time.monotonic()

    def relisted() -> bool:
        """Whether each process has listed anew: the one that ran, or the one that was started in its place."""
        return all(
            state.ready and (state.pid != processes[name][0] or relists(site, name) > processes[name][1])
            for name, state in site.release.states().items()
        )

    assert wait_until(relisted, RELIST_SECONDS, every=0.2), site.release.states()
    print(f"all have listed anew {time.monotonic() - back:.1f} s after the API server was back")
    # All have seen groups and pods in versions that there are no more, and began anew: for that, unless their Lease had
    # run out before they were listed anything.
    ends = {
        name: re.findall(r"kbatch-\w+ ends: ([^\"]+)", site.release.folder.log_of(name).read_text(encoding="utf-8"))
        for name in processes
    }
    print(ends)
    assert any("restored from a backup" in one for one in ends["webhook"]), ends
    for why in ends.values():
        assert any("restored from a backup" in one or "the Lease was lost" in one for one in why), ends

    site.runs("always", "big", "partly", "made")  # no gang stays bound in part
    assert site.phase("held") == "Pending"
    assert site.api.get(f"{JOBS}/held")["spec"]["suspend"] is True
    assert not site.pods("held")
    assert not site.status("after")
    assert not site.pods("after")
    # What had a node then has it still, and nothing came beside it.
    now = places(site)
    assert kept.items() <= now.items()
    assert now.keys() == kept.keys() | {name for name in now if name.startswith("partly-")}
    assert within_the_node(site)
    # And it goes on from there: who waited starts when there is room, who ended ends once more, and runs no more.
    for name in ("big-0", "big-1"):
        site.api.request("DELETE", f"{PODS}/{name}")
    site.runs("held")
    assert len(site.pods("held")) == 2
    finish(site, "made")
    site.soon(lambda: site.phase("made") == "Completed", "made")
    assert {pod["metadata"]["uid"] for pod in site.pods("made")} == {
        uid for name, (uid, _) in kept.items() if "made" in name
    }
    site.gang("new")
    site.runs("new")
    assert within_the_node(site)


def before_snapshot(site: Site, backup: Backup) -> dict[str, tuple[str, str]]:
    """A gang that runs, one of a template, one that waits for room, one that is bound in part: the pods with nodes."""
    site.gang("big", cpu="14")
    site.group("made", subGroups=[{"name": "w", "minMember": 2, "template": {"spec": {"containers": [container()]}}}])
    site.runs("big", "made")
    site.group("held")
    site.job("held", cpu="14")
    site.soon(lambda: site.phase("held") == "Pending", "held")
    with paused(site, "scheduler"):  # it leaves this as it is
        site.gang("partly", size=4)
        node = {"apiVersion": "v1", "kind": "Node", "name": "node-0"}
        for name in ("partly-0", "partly-1"):
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": node}
            site.api.post(f"{PODS}/{name}/binding", binding)
        site.soon(lambda: site.status("partly").get("running") == 2, "partly")
        backup.save()
        return places(site)


def after_snapshot(site: Site) -> None:
    """The gang in part is made whole, one more runs, the one of a template ends, and the big one makes room."""
    site.gang("after")
    site.runs("partly", "after")
    finish(site, "made")
    site.soon(lambda: site.phase("made") == "Completed", "made")
    for path in (f"{PODS}/big-0", f"{PODS}/big-1", f"{GROUPS}/big"):
        site.api.request("DELETE", path)
    site.runs("held")
    site.soon(lambda: len([pod for pod in site.pods("held") if pod["status"]["phase"] == "Running"]) == 2, "held")


def finish(site: Site, group: str) -> None:
    """A kubelet says that the group's pods have ended well."""
    patch = {"status": {"phase": "Succeeded"}}
    for pod in site.pods(group):
        path = f"{PODS}/{pod['metadata']['name']}/status"
        site.api.request("PATCH", path, patch, content_type="application/merge-patch+json")


@contextmanager
def paused(site: Site, component: str) -> Iterator[None]:
    """One process stands still."""
    pid = site.release.states()[component].pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def places(site: Site) -> dict[str, tuple[str, str]]:
    """Each pod that has a node, with its uid and that node."""
    return {
        pod["metadata"]["name"]: (pod["metadata"]["uid"], pod["spec"]["nodeName"])
        for pod in site.pods("")
        if pod["spec"].get("nodeName")
    }


def within_the_node(site: Site) -> bool:
    """Whether what runs on the one node has room there."""

    def millis(pod: dict[str, Any]) -> int:
        text = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
        return int(text.removesuffix("m")) * (1 if text.endswith("m") else 1000)

    live = [pod for pod in site.pods("") if pod["spec"].get("nodeName") and pod["status"]["phase"] != "Succeeded"]
    return sum(millis(pod) for pod in live) <= CORES


def relists(site: Site, component: str) -> float:
    """How often a process has listed anything anew."""
    try:
        with urllib.request.urlopen(addresses(site.release.states()[component])[0], timeout=5) as answer:  # noqa: S310
            lines = answer.read().decode().splitlines()
    except OSError:  # it is just being started
        return 0.0
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{RELISTS}{{"))
