"""Nodes, pods, groups and namespaces are pulled away under a scheduler's feet."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter

from kbatch.localcluster.errors import ApiError
from kbatch.localcluster.nodes import node
from tests import varied
from tests.e2e.auditor.allowances import FAILING, Limits
from tests.e2e.chaos.field import Field
from tests.e2e.chaos.load import GROUPS, backlog, create, gang
from tests.e2e.chaos.stream import NODES, under_load


def moving_ground(field: Field, *, seconds: float, seed: int, lasting: bool = False) -> None:
    """Nodes vanish, stop being Ready, are cordoned; pods, groups and namespaces go; all while binds are in flight.

    With `lasting`, one node is away and one not Ready for the whole time: long enough for the control plane to give up
    the pods that are on them.
    """
    draw = random.Random(seed)
    field.ensure_nodes(NODES)
    with (
        field.namespace() as space,
        field.schedulers("a") as (a,),
        field.audited(Limits(partial=FAILING)) as auditor,
    ):
        ground = _Ground(field, space, draw)
        try:
            with under_load(field, space, seed=seed, rate=3):
                ground.doom()
                if lasting:
                    ground.take("node-0", seconds)
                    ground.silence("node-1", seconds)
                end = time.monotonic() + seconds
                while time.monotonic() < end:
                    ground.trouble()
                    time.sleep(draw.uniform(0.05, 0.4))  # between two troubles
        finally:
            ground.settle()
        assert min(ground.done[what] for what in ("vanish", "silence", "cordon")) > 0, ground.done
        create(field.api, gang(space, "last", 20))
        field.drained(space)
        assert auditor.bound(space)
        assert "cycle failed" not in a.log(), a.log()[-4000:]
        ground.all_doomed_are_gone()


class _Ground:
    """Nodes that come and go, and what else is pulled away under a scheduler's feet."""

    def __init__(self, field: Field, space: str, draw: random.Random) -> None:
        self.done: Counter[str] = Counter()
        self._field = field
        self._space = space
        self._draw = draw
        self._back: dict[str, float] = {}
        """When nodes that are away or silent come back."""
        self._doomed: list[str] = []
        self._next: list[str] = []

    def trouble(self) -> None:
        """Do one of all; bring back what was away for long enough."""
        now = time.monotonic()
        for name in [name for name, at in self._back.items() if at <= now]:
            self._bring_back(name)
        if not self._next:  # each in its turn, so that a short run has all of them, too
            self._next = self._draw.sample(_TROUBLES, len(_TROUBLES))
        what = self._next.pop()
        free = [index for index in range(NODES) if f"node-{index}" not in self._back]
        name = f"node-{self._draw.choice(free)}"
        if what in {"vanish", "silence"} and len(self._back) >= NODES // 2:
            return
        self.done[what] += 1
        if what == "cordon":
            self._cordon(name)
        elif what == "vanish":
            self.take(name, self._draw.choice((0.0, 0.2, 2.0)))
        elif what == "silence":
            self.silence(name, self._draw.uniform(0.5, 3))
        elif what == "pods":
            self._delete_pods()
        elif what == "group":
            self._delete_group()
        elif len(self._doomed) < 1 + self.done["doom"] // 10:
            self.doom()

    def take(self, name: str, seconds: float) -> None:
        """A node is gone, for a while."""
        self._field.delete(f"/api/v1/nodes/{name}")
        self._back[name] = time.monotonic() + seconds

    def silence(self, name: str, seconds: float) -> None:
        """A node's kubelet is not Ready, for a while."""
        path = f"/api/v1/nodes/{name}"
        with contextlib.suppress(ApiError):  # where it is away just now
            self._field.patch(path, {"metadata": {"annotations": {_KUBELET: "silent"}}})
            ready = {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "as a test wants it"}
            patch = {"status": {"conditions": [ready]}}
            self._field.patch(f"{path}/status", patch, content_type="application/strategic-merge-patch+json")
        self._back[name] = time.monotonic() + seconds

    def doom(self) -> None:
        """A namespace begins to be deleted while what is in it is being placed."""
        name = f"{self._space}-doomed-{self.done['doom']}"
        self.done["doom"] += 1
        create(self._field.api, [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}])
        usable = f"/api/v1/namespaces/{name}/serviceaccounts"
        self._field.wait("the namespace is usable", lambda: bool(self._field.items(usable)))
        create(self._field.api, backlog(name, 2, 10), parallel=16)
        self._field.delete(f"/api/v1/namespaces/{name}")
        self._doomed.append(name)

    def settle(self) -> None:
        """All nodes are as they were at first."""
        for index in range(NODES):
            self._bring_back(f"node-{index}")
        self._field.ensure_nodes(NODES)

    def all_doomed_are_gone(self) -> None:
        """Wait until nothing keeps a namespace from going."""
        path = "/api/v1/namespaces"

        def left() -> set[str]:
            return {one["metadata"]["name"] for one in self._field.items(path)} & set(self._doomed)

        self._field.wait("the namespaces are gone", lambda: not left())

    def _bring_back(self, name: str) -> None:
        self._back.pop(name, None)
        create(self._field.api, [varied.marked(node(name), int(name.removeprefix("node-")))])
        wanted = {"metadata": {"annotations": {_KUBELET: None}}, "spec": {"unschedulable": False}}
        self._field.patch(f"/api/v1/nodes/{name}", wanted)

    def _cordon(self, name: str) -> None:
        with contextlib.suppress(ApiError):  # where it is away just now
            self._field.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": self._draw.random() < 0.5}})

    def _delete_pods(self) -> None:
        pods = self._field.pods(self._space)
        names = [one["metadata"]["name"] for one in pods if one["status"].get("phase") == "Pending"]
        for name in self._draw.sample(names, min(3, len(names))):
            self._field.delete(f"/api/v1/namespaces/{self._space}/pods/{name}?gracePeriodSeconds=0")

    def _delete_group(self) -> None:
        names = [one["metadata"]["name"] for one in self._field.groups(self._space)]
        if names:
            self._field.delete(f"{GROUPS}/namespaces/{self._space}/podgroups/{self._draw.choice(names[-5:])}")


_KUBELET = "simulate.kbatch.dev/kubelet"
_TROUBLES = ("cordon", "vanish", "silence", "pods", "group", "doom")
