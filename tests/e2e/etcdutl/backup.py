"""A snapshot of a local cluster's etcd, and a restore of it, as etcd's documentation and Kubernetes' say."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kbatch.localcluster.cluster import Cluster
from kbatch.localcluster.components import Components
from kbatch.localcluster.ports import LOOPBACK
from kbatch.localcluster.programs import Programs
from tests.golang import built

BUMP: Final = 1_000_000_000
"""Revisions that are left out, so that none is used twice; what etcd's documentation takes."""


@dataclass(frozen=True)
class Backup:
    """Where a cluster's snapshot is kept."""

    cluster: Cluster
    programs: Programs
    file: Path

    def save(self) -> None:
        """Take the snapshot, over etcd's HTTP gateway: what `etcdctl snapshot save` asks for."""
        request = urllib.request.Request(
            f"http://{LOOPBACK}:{self._ports()[0]}/v3/maintenance/snapshot", data=b"{}", method="POST"
        )
        with urllib.request.urlopen(request, timeout=60) as answer, self.file.open("wb") as file:  # noqa: S310
            for line in answer:
                file.write(base64.b64decode(json.loads(line)["result"].get("blob", "")))

    def restore(self) -> None:
        """Stop the API server, etcd and the controllers, restore, and start them again.

        Of kbatch nothing is touched, and kwok is left alone: a new one would wait for minutes for the Leases of nodes.
        """
        tool = built(Path(__file__).parent, "etcdutl", print, package="go.etcd.io/etcd/etcdutl/v3")
        components = Components(self.cluster, self.programs)
        for component in ("kube-apiserver", "kube-controller-manager", "etcd"):
            components.kill(component)
        data = self.cluster.runtime / "etcd"
        shutil.rmtree(data)
        peer = f"http://{LOOPBACK}:{self._ports()[1]}"
        subprocess.run(
            [
                tool, "snapshot", "restore", self.file, "--data-dir", data, "--name", "node0",
                "--initial-cluster", f"node0={peer}", "--initial-advertise-peer-urls", peer,
                "--bump-revision", str(BUMP), "--mark-compacted",
            ],
            check=True, capture_output=True,
        )  # fmt: skip
        components.start_dead()

    def _ports(self) -> list[int]:
        """etcd's ports: of its clients, of its peers."""
        record = self.cluster.record()
        assert record is not None
        return record.ports[1:3]
