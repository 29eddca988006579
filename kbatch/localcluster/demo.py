"""What `kbatch up --demo` shows: a gang that fits, one that cannot, and what is said of each."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kbatch.localcluster.errors import ApiError, StartError, last_line
from kbatch.localcluster.folders import checkout
from kbatch.localcluster.processes import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from kbatch.localcluster.api import Api

FITS, TOO_LARGE = "qj-1", "too-large"
_PATH = "/apis/scheduling.incubator.k8s.io/v1alpha1/podgroups"
_TIMEOUT = 60.0
_NO_REASON = "-"


@dataclass(frozen=True)
class Row:
    """One PodGroup, as `kubectl get podgroups` shows it, with the reason for what it does or does not do."""

    namespace: str
    name: str
    phase: str
    minimum: int
    running: int
    reason: str
    message: str


def submit(kubectl: Path, kubeconfig: Path) -> None:
    """Apply the two examples; those that are there already stay as they are."""
    for name in (FITS, TOO_LARGE):
        manifest = checkout() / "examples" / f"{name}.yaml"
        ran = subprocess.run(
            [kubectl, "--kubeconfig", kubeconfig, "apply", "-f", manifest], capture_output=True, text=True, check=False
        )
        if ran.returncode != 0:
            raise StartError("The demo", f"{manifest.name} was refused: {last_line(ran.stderr, ('error',))}")


def wait_decided(api: Api) -> list[Row]:
    """Wait until the one gang runs, the other one says why it does not, and no more changes; return all PodGroups."""
    seen: list[list[Row]] = [[]]

    def decided() -> bool:
        try:
            seen.append(rows(api))
        except ApiError:
            return False
        shown = {row.name: row for row in seen[-1] if row.namespace == "default"}
        return (
            FITS in shown
            and shown[FITS].phase == "Running"
            and TOO_LARGE in shown
            and shown[TOO_LARGE].reason != _NO_REASON
            and seen[-1] == seen[-2]
        )

    if not wait_until(decided, _TIMEOUT, every=0.5):
        states = "; ".join(f"{row.name} is {row.phase or 'without a phase'}, {row.reason}" for row in seen[-1])
        raise StartError(
            "The demo", f"its gangs were not decided within {_TIMEOUT:.0f} s ({states or 'none is there'})"
        )
    return seen[-1]


def rows(api: Api) -> list[Row]:
    """Return all PodGroups in the order of their names."""
    return sorted((_row(item) for item in api.get(_PATH)["items"]), key=lambda row: (row.namespace, row.name))


def _row(item: dict[str, Any]) -> Row:
    status = item.get("status", {})
    scheduled: dict[str, Any] = next((one for one in status.get("conditions", []) if one["type"] == "Scheduled"), {})
    return Row(
        namespace=item["metadata"]["namespace"],
        name=item["metadata"]["name"],
        phase=status.get("phase", ""),
        minimum=item["spec"].get("minMember", 1),
        running=status.get("running", 0),
        reason=scheduled.get("reason", _NO_REASON),
        message=scheduled.get("message", ""),
    )
