"""The control plane of a run: its own, with fake nodes, and what its API server counts."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kbatch.kube.client import Client
from kbatch.localcluster.cluster import COMPONENTS, Cluster, Options
from kbatch.localcluster.nodes import ensure_nodes
from kbatch.localcluster.programs import Programs, ensure_programs
from tests.bench.live.contestants import used_by

ROOT = Path(__file__).parents[3]
AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
- level: None
"""


@dataclass
class Plane:
    """A running control plane and a scratch folder."""

    cluster: Cluster
    programs: Programs
    folder: Path
    nodes: int = 0

    @property
    def words(self) -> dict[str, str]:
        """What contestants' texts may name."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        return {
            "kubeconfig": str(self.cluster.kubeconfig),
            "folder": str(self.folder),
            "programs": str(self.programs.bin),
            "port": str(port),
        }

    def cpu(self) -> float:
        """Seconds of CPU that the control plane and the fake kubelets have used so far."""
        pids = (self.cluster.pid(component) for component in COMPONENTS)
        return sum(used_by(pid).cpu for pid in pids if pid is not None)

    def ensure_nodes(self, count: int) -> None:
        """Have so many nodes Ready, of 32 CPU, 256 GiB and 110 pods each."""
        with self.cluster.api() as api:
            ensure_nodes(api, count)
        self.nodes = count


@contextlib.contextmanager
def plane(folder: Path, *, audited: bool = False) -> Iterator[Plane]:
    """Start a control plane for this run; it ends with the context.

    Its API server has priority and fairness and limits of requests as by default; `audited` switches its audit log on.
    """
    programs = ensure_programs(lambda line: print(f"control plane: {line}", flush=True))
    policy = folder / "audit-policy.yaml"
    policy.write_text(AUDIT_POLICY, "utf-8")
    cluster = Cluster(f"bench-{os.getpid()}")
    with cluster.locked():
        if cluster.folder.exists():
            cluster.remove()
        cluster.start(programs, Options(audit_policy=policy if audited else None, priority_and_fairness=True))
    try:
        yield Plane(cluster, programs, folder)
    finally:
        with cluster.locked():
            cluster.remove()


_COUNTED = re.compile(r"^apiserver_request_total\{(?P<labels>[^}]*)\} (?P<value>\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_NO_WORK = {"leases", "tokenreviews", "subjectaccessreviews", "endpointslices", "nodes"}


async def requests_so_far(client: Client) -> Counter[str]:
    """All answered requests by verb and resource, of everybody; reads of the whole apart from watches included."""
    text = (await client.request("GET", "/metrics")).decode()
    found: Counter[str] = Counter()
    for match in _COUNTED.finditer(text):
        labels = dict(_LABEL.findall(match["labels"]))
        resource = labels.get("resource", "")
        if not resource or resource in _NO_WORK:
            continue
        sub = labels.get("subresource", "")
        found[f"{labels.get('verb', '')} {resource}{'/' + sub if sub else ''}"] += int(float(match["value"]))
    return found
