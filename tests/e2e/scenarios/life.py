"""What the tests of a group's life submit, and how they watch it: every change, not samples."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

from tests.e2e.auditor.watch import Tell, Watcher

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.scenarios.conftest import Installed

GROUP = "scheduling.k8s.io/group-name"
DURATION = "simulate.kbatch.dev/duration"


def job(
    name: str, pods: int, cpu: str, *, queue: str = "default", group: str = "", seconds: str = "", **spec: Any
) -> dict[str, Any]:
    """A Job of pods that run all at one time: of its queue, or of the group that it names."""
    annotations = {DURATION: seconds} if seconds else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {} if group else {"kbatch.dev/queue": queue},
        },
        "spec": {
            "completions": pods,
            "parallelism": pods,
            **spec,
            "template": {
                "metadata": {"annotations": {**annotations, **({GROUP: group} if group else {})}},
                "spec": {
                    "schedulerName": "kube-batch",
                    "restartPolicy": "Never",
                    "containers": [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}],
                },
            },
        },
    }


def roles(name: str, *subgroups: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A group whose pods the operator makes."""
    return {
        "apiVersion": "scheduling.incubator.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"subGroups": list(subgroups), **spec},
    }


def role(
    name: str, least: int, cpu: str, *, most: int | None = None, seconds: str = "", args: str = ""
) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
    if args:
        container["args"] = [args]
    found: dict[str, Any] = {
        "name": name,
        "minMember": least,
        "template": {
            "metadata": {"annotations": {DURATION: seconds}} if seconds else {},
            "spec": {"restartPolicy": "Never", "containers": [container]},
        },
    }
    return found if most is None else {**found, "maxMember": most}


class History:
    """All changes of pods and groups of a namespace, in the order in which the API server made them.

    Of each object only what the questions below are about is kept: there are tens of thousands of changes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: list[tuple[int, str, str, dict[str, Any]]] = []
        self._phases: dict[str, tuple[int, str]] = {}

    def tell(self, kind: str, change: str, obj: dict[str, Any]) -> None:
        if change not in {"ADDED", "MODIFIED", "DELETED"}:
            return
        metadata, version = obj["metadata"], int(obj["metadata"]["resourceVersion"])
        phase = obj.get("status", {}).get("phase", "")
        kept = {
            "metadata": {
                "name": metadata["name"],
                "uid": metadata["uid"],
                "annotations": {GROUP: metadata.get("annotations", {}).get(GROUP, "")},
            },
            "status": {"phase": phase},
        }
        with self._lock:
            self._seen.append((version, kind, change, kept))
            if kind == "PodGroup" and version >= self._phases.get(metadata["name"], (0, ""))[0]:
                self._phases[metadata["name"]] = version, phase if change != "DELETED" else ""

    def __len__(self) -> int:
        """How many changes there were."""
        with self._lock:
            return len(self._seen)

    def groups(self, phase: str) -> int:
        """How many groups are in this phase now."""
        with self._lock:
            return sum(now == phase for _, now in self._phases.values())

    def all(self) -> list[tuple[str, str, dict[str, Any]]]:
        with self._lock:
            ordered = sorted(self._seen, key=lambda one: one[0])
        return [(kind, change, obj) for _, kind, change, obj in ordered]

    def phases(self, group: str) -> list[str]:
        """The phases that a group went through."""
        found: list[str] = []
        for kind, _, obj in self.all():
            if kind == "PodGroup" and obj["metadata"]["name"] == group:
                phase = obj.get("status", {}).get("phase", "")
                if phase and (not found or found[-1] != phase):
                    found.append(phase)
        return found

    def early(self) -> list[str]:
        """Pods that were made while their group was not let in: each with the group's phase then."""
        phases: dict[str, str] = {}
        found: list[str] = []
        known: set[str] = set()
        for kind, change, obj in self.all():
            name = obj["metadata"]["name"]
            if kind == "PodGroup":
                phases[name] = obj.get("status", {}).get("phase", "")
            elif change != "DELETED" and obj["metadata"]["uid"] not in known:
                known.add(obj["metadata"]["uid"])
                group = obj["metadata"].get("annotations", {}).get(GROUP, "")
                if phases.get(group) not in {"InQueue", "Running"}:
                    found.append(f"{name} while {group} was {phases.get(group)!r} of {self.phases(group)}")
        return found

    def most_promised(self, pods: int) -> int:
        """The most groups that were in queue at one time without so many pods of theirs."""
        waiting: set[str] = set()
        made: dict[str, set[str]] = {}
        most = 0
        for kind, _, obj in self.all():
            meta = obj["metadata"]
            if kind == "PodGroup":
                in_queue = obj["status"]["phase"] == "InQueue"
                (waiting.add if in_queue else waiting.discard)(meta["name"])
            else:
                made.setdefault(meta["annotations"][GROUP], set()).add(meta["uid"])
            most = max(most, sum(len(made.get(name, ())) < pods for name in waiting))
        return most

    def most_alive(self) -> int:
        """The most pods that existed and had not ended at one time."""
        alive: set[str] = set()
        most = 0
        for kind, change, obj in self.all():
            if kind == "Pod":
                ended = change == "DELETED" or obj["status"].get("phase") in {"Succeeded", "Failed"}
                (alive.discard if ended else alive.add)(obj["metadata"]["uid"])
                most = max(most, len(alive))
        return most


@contextlib.contextmanager
def watched(kbatch: Installed) -> Iterator[History]:
    """Watch pods and groups from now on."""
    history = History()
    with watching(kbatch, history.tell):
        yield history


@contextlib.contextmanager
def watching(kbatch: Installed, tell: Tell, *kinds: str) -> Iterator[None]:
    """Tell of pods and groups in the namespace `default`, and of these kinds that have no namespace, from now on."""
    here = "metadata.namespace=default"
    watchers = [
        Watcher(kbatch.kubeconfig, kind, tell, selector=selector)
        for kind, selector in (("Pod", here), ("PodGroup", here), *((kind, "") for kind in kinds))
    ]
    for watcher in watchers:
        watcher.start()
    try:
        for watcher in watchers:
            assert watcher.listed.wait(20)
        yield
    finally:
        for watcher in watchers:
            watcher.stop()


def completed(kbatch: Installed) -> list[str]:
    """Names of the Jobs that are complete."""
    return [
        found["metadata"]["name"]
        for found in kbatch.items("jobs")
        if any(c["type"] == "Complete" and c["status"] == "True" for c in found["status"].get("conditions", []))
    ]


def reasons(kbatch: Installed, kind: str, name: str) -> list[str]:
    """Reasons of the Events on an object that kbatch wrote."""
    found = kbatch.items("events.events.k8s.io")
    return [
        event["reason"]
        for event in found
        if event["regarding"]["kind"] == kind
        and event["regarding"]["name"] == name
        and event.get("reportingController", "").startswith("kbatch")
    ]
