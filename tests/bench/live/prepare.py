"""What must stand in a cluster before anything is measured: CRDs, the namespace, the default queue."""

from __future__ import annotations

import json
import subprocess

from tests.bench.live.contestants import Contestant
from tests.bench.live.load import NAMESPACE
from tests.bench.live.plane import ROOT, Plane


def prepare(made: Plane, contestants: list[Contestant]) -> None:
    """Apply what the contestants need."""
    kubectl = [str(made.programs.kubectl), "--kubeconfig", str(made.cluster.kubeconfig)]
    for contestant in contestants:
        if contestant.crds:
            folder = str(ROOT / contestant.crds)
            subprocess.run([*kubectl, "apply", "--server-side", "-f", folder], check=True, stdout=subprocess.DEVNULL)
            wait = [*kubectl, "wait", "--for=condition=Established", "--timeout=60s", "-f", folder]
            subprocess.run(wait, check=True, stdout=subprocess.DEVNULL)
    queue = {"apiVersion": "scheduling.incubator.k8s.io/v1alpha1", "kind": "Queue", "metadata": {"name": "default"}}
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    for document in (queue, space):
        text = json.dumps(document).encode()
        subprocess.run([*kubectl, "apply", "-f", "-"], input=text, check=True, stdout=subprocess.DEVNULL)
