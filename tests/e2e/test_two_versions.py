"""An older version's processes beside the CRDs, the chart and, one after the other, the processes of this one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from kbatch.localcluster import processes
from kbatch.localcluster.api import Api
from kbatch.localcluster.errors import ApiError
from kbatch.localcluster.host import Folder, Preparation
from kbatch.localcluster.pods import component_of
from kbatch.localcluster.processes import wait_until
from tests.e2e.chaos.load import Stream
from tests.e2e.test_upgrade import (
    CRD_NAMES,
    CRDS,
    GROUPS,
    JOBS,
    PODS,
    ROOT,
    TIMEOUT,
    Site,
    before,
    end,
    fill,
    group,
    job,
    kept_while,
    site,
)  # fmt: skip
from tests.e2e.versions import commands_of

__all__ = ["before", "site"]  # fixtures

pytestmark = [pytest.mark.control_plane, pytest.mark.long]

READY = 60.0
STREAM = "stream"
"""A namespace in which gangs come and end all the time."""


class Newer:
    """The processes of this version, each started by its Deployment while those of the older one still run."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._folder = Folder(site.folder / "newer")
        (self._folder.root / "logs").mkdir(parents=True)
        # The API server knows one address of the webhook.
        (self._folder.root / "ports.json").write_text(
            json.dumps({"webhook/webhook": site.release.folder.ports()["webhook/webhook"]})
        )
        self._preparation = Preparation(self._folder, site.api, site.release.folder.assignment())
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, component: str) -> None:
        """Have the component's process run and be ready, to work or to stand by."""
        (deployment,) = (one for one in self._preparation.deployments() if component_of(one) == component)
        self._preparation.refresh(deployment)
        spec = self._preparation.spec(deployment)
        kubeconfig = self._preparation.kubeconfig(component)
        environment = {"PATH": os.environ["PATH"], "HOME": str(kubeconfig.parent), **spec.environment}
        with self._folder.log_of(component).open("ab") as log:
            process = subprocess.Popen(
                spec.command, env=environment | {"KUBECONFIG": str(kubeconfig)}, cwd="/", stdout=log, stderr=log
            )
        self._running.append(process)

        def ready() -> bool:
            assert process.poll() is None, self._folder.log_of(component).read_text()
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{spec.ports['health']}/readyz", timeout=5) as answer:
                    return bool(answer.status == 200)
            except OSError:
                return False

        assert wait_until(ready, READY, every=0.2), self._folder.log_of(component).read_text()

    def stop(self) -> None:
        """End them."""
        for process in self._running:
            process.terminate()
        for process in self._running:
            process.wait(timeout=30)


@contextmanager
def older(site: Site, code: Path) -> Iterator[dict[str, int]]:
    """The older version's processes, which nobody ends or starts again whatever the chart says; their pids."""
    site.release.install(chart=code / "charts" / "kbatch")
    with commands_of(code, site.folder / code.name):
        site.release.start()
    try:
        pids = {component: state.pid or 0 for component, state in site.release.wait_ready().items()}
        (supervisor,) = site.release.supervisor()
        os.kill(supervisor, signal.SIGSTOP)
        yield pids
    finally:
        for pid in site.release.supervisor():
            os.kill(pid, signal.SIGCONT)
        site.release.stop()


def works(site: Site, tag: str, *, labelled: bool = True) -> None:
    """New gangs come, run and go: of a Job that names a group, of a template, of a Job by its label alone."""
    role = {
        "name": "w", "minMember": 2,
        "template": {"spec": {"containers": [{"name": "m", "image": "b", "resources": {"requests": {"cpu": 1}}}]}},
    }  # fmt: skip
    objects = [
        (GROUPS, group(f"{tag}-job", 2)),
        (JOBS, job(f"{tag}-job", 2, 1)),
        (GROUPS, group(f"{tag}-made", 2, subGroups=[role])),
    ]
    if labelled:
        objects.append((JOBS, job(f"{tag}-label", 2, 1, labels={"kbatch.dev/queue": "default"})))
    for path, body in objects:
        assert wait_until(lambda: _posted(site, path, body), TIMEOUT, every=0.2), (tag, body["metadata"])  # noqa: B023
    names = sorted({body["metadata"]["name"] for _, body in objects})
    for name in names:
        site.becomes(name, "Running")
    for name in names:
        for path in (JOBS, GROUPS):
            site.api.request("DELETE", f"{path}?propagationPolicy=Background&fieldSelector=metadata.name%3D{name}")
    assert wait_until(lambda: not _left(site, tag), TIMEOUT, every=0.2), _left(site, tag)


def _posted(site: Site, path: str, body: dict[str, Any]) -> bool:
    """Whether it is there; not while a CRD is just being changed, or a webhook replaced."""
    try:
        site.api.post(path, body)
    except ApiError as error:
        if error.status not in {429, 500}:
            raise
        return False
    return True


def _left(site: Site, tag: str) -> list[str]:
    names = [one["metadata"]["name"] for path in (JOBS, GROUPS, PODS) for one in site.items(path)]
    return [name for name in names if name.startswith(tag)]


def unfinished(site: Site) -> dict[str, str]:
    """The phases of the stream's groups of which not all pods have run to their end."""
    groups = site.items(GROUPS.replace("/default/", f"/{STREAM}/"))
    phases = {one["metadata"]["name"]: one.get("status", {}).get("phase", "") for one in groups}
    return {name: phase for name, phase in phases.items() if phase != "Completed"}


def apply_crds(site: Site) -> None:
    """The newer CRDs, without their chart."""
    with Api(site.release.kubeconfig) as api:
        for name in CRD_NAMES:
            body = yaml.safe_load((ROOT / "crds" / f"{name.partition('.')[0]}.yaml").read_text())
            path = f"{CRDS}/{name}?fieldManager=administrator&force=true"
            api.request("PATCH", path, body, content_type="application/apply-patch+yaml")


@pytest.mark.parametrize(
    "order",
    [("scheduler", "podgroup", "queue", "webhook"), ("webhook", "queue", "podgroup", "scheduler")],
    ids=["the scheduler first", "the webhook first"],
)
def test_one_process_after_the_other_is_replaced_while_groups_run(
    site: Site, before: Path, order: tuple[str, ...]
) -> None:
    newer: Newer | None = None
    with older(site, before) as pids, Api(site.release.kubeconfig) as api:
        site.api.post("/api/v1/namespaces", {"metadata": {"name": STREAM}})
        try:
            fill(site)
            with Stream(api, STREAM, seed=7, rate=1.0, sizes=(1, 4), duration=(1.0, 4.0)) as stream:
                kept_while(site, lambda: apply_crds(site))
                kept_while(site, lambda: works(site, "crds"))
                kept_while(site, site.release.install)
                # The older webhook knows no token in its path: what may pass without it does, a Job in a queue may not.
                with pytest.raises(ApiError, match="failed calling webhook") as refused:
                    site.api.post(JOBS, job("refused", 1, 1, labels={"kbatch.dev/queue": "default"}))
                assert refused.value.status == 500
                kept_while(site, lambda: works(site, "chart", labelled=False))
                newer = Newer(site)
                replaced: set[str] = set()
                for component in order:
                    alone = (
                        component == "webhook"
                    )  # it has one address here; the others stand by first, as in a cluster
                    if not alone:
                        newer.start(component)
                    processes.end([pids[component]], grace=20)
                    if alone:
                        newer.start(component)
                    replaced.add(component)
                    kept_while(site, lambda: works(site, component, labelled="webhook" in replaced))  # noqa: B023
            assert len(stream.pods) > 20
            assert wait_until(lambda: not unfinished(site), TIMEOUT, every=0.5), unfinished(site)
            assert {site.phase(name) for name in ("runs", "made", "labelled")} == {"Running"}
            assert {site.phase(name) for name in ("waits-1", "waits-2")} == {"Pending"}
            end(site, "runs")
            assert wait_until(lambda: "Running" in {site.phase("waits-1"), site.phase("waits-2")}, TIMEOUT, every=0.1)
        finally:
            if newer is not None:
                newer.stop()
