"""What is done to a scheduler under load, each with its measure: the short forms and the long ones are the same.

After each trial the load stops, the trouble stops, and then: nothing is lost, nothing was done twice, everything that
can be placed is placed, and the auditor has seen nothing that must not happen.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

from kbatch.localcluster.cluster import SCHEDULER
from kbatch.localcluster.errors import ApiError
from kbatch.localcluster.nodes import node
from kbatch.localcluster.processes import wait_until
from tests.e2e.auditor.auditor import Auditor, Limits
from tests.e2e.chaos import hostile
from tests.e2e.chaos.field import Field, queue
from tests.e2e.chaos.load import GROUPS, Stream, backlog, create, elastic, gang, path_of, persist, pod
from tests.e2e.proxy.faults import Fault, Script, everything
from tests.e2e.proxy.proxy import Proxy

NODES = 8


@contextlib.contextmanager
def under_load(field: Field, space: str, *, seed: int, rate: float = 2.0) -> Iterator[Stream]:
    """A stream of gangs from a client of its own, which waits while the server is away."""
    with field.plane.api() as api, Stream(api, space, seed=seed, rate=rate) as stream:
        yield stream


def kills(field: Field, *, count: int, seed: int) -> None:
    """kill -9 at random moments, again and again; a process that starts in its place goes on."""
    draw = random.Random(seed)
    field.ensure_nodes(NODES)
    with field.namespace() as space, field.schedulers("a") as (a,), field.audited() as auditor:
        create(field.api, backlog(space, 10, 12, prefix="first"))
        with under_load(field, space, seed=seed):
            for number in range(count):
                # Some time after it has begun to bind: in the midst of a start there is nothing to lose.
                if not _goes_on(auditor, space):
                    raise AssertionError(f"nothing is bound after {number} kills\n{a.log()[-4000:]}")
                time.sleep(draw.uniform(0, 0.5))  # the random moment
                a.kill()
        field.drained(space)
        _all_exist(field, space, auditor)


def bad_connection(
    field: Field, *, seconds: float, seed: int, log: Path | None = None, faults: Sequence[Fault] | None = None
) -> dict[str, int]:
    """A proxy between two replicas and the API server injects faults, by default a bit of all; how often each."""
    field.ensure_nodes(NODES)
    script = Script(seed, everything() if faults is None else faults, log=log)
    # A group whose bind failed for certain is left alone for a while, longer each time, up to half a minute; a gang
    # that cannot be completed within a minute is taken back.
    limits = Limits(partial=75, untrue=5 + script.watch_delay(), unsaid=15 + script.watch_delay(), beneficiary=75)
    with (
        Proxy(field.api.server, field.api.certificate_authority, script) as proxy,
        field.namespace() as space,
        field.schedulers("a", "b", flags=(), server=proxy.url) as replicas,
        field.audited(limits, hindered=script.hindered) as auditor,
    ):
        with under_load(field, space, seed=seed):
            time.sleep(seconds)  # how long the trouble lasts
        script.quiet()
        field.drained(space, 120)
        _all_exist(field, space, auditor)
        for replica in replicas:
            assert "cycle failed" not in replica.log(), replica.log()[-4000:]
    return script.counts()


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
        field.audited(Limits(partial=75)) as auditor,
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

    def trouble(self) -> None:
        """Do one of all; bring back what was away for long enough."""
        now = time.monotonic()
        for name in [name for name, at in self._back.items() if at <= now]:
            self._bring_back(name)
        what = self._draw.choice(("cordon", "vanish", "silence", "pods", "group", "doom"))
        name = f"node-{self._draw.randrange(NODES)}"
        if what in {"vanish", "silence"} and (name in self._back or len(self._back) >= NODES // 2):
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
        create(self._field.api, [node(name)])
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


def contention(field: Field, *, seconds: float, seed: int, kill_every: float | None = None) -> dict[str, int]:
    """Queues take back what is theirs, and groups of higher priority take from lower ones; how many pods by which.

    One queue holds the whole cluster with groups that need few of their pods, some of them under disruption budgets,
    some not to be disrupted, some only as a whole. Another one, that deserves three quarters, asks again and again; and
    so do groups of high priority of both. With `kill_every`, the leader is killed so often.
    """
    draw = random.Random(seed)
    field.ensure_nodes(NODES)
    create(field.api, [queue("rich", 1), queue("poor", 3), _priority("chaos-low", 1), _priority("chaos-high", 1000)])
    with (
        field.namespace() as space,
        field.schedulers("a", "b", flags=()) as replicas,
        field.audited(Limits(beneficiary=30)) as auditor,
    ):
        create(field.api, _whole_cluster(space), parallel=16)
        field.wait("one queue has it all", lambda: auditor.bound(space) == NODES * 32)
        with field.plane.api() as one, field.plane.api() as other, contextlib.ExitStack() as streams:
            poor = Stream(one, space, seed=seed, rate=1.5, sizes=(4, 16), duration=(1, 4), prefix="poor", shape=_poor)
            streams.enter_context(poor)
            high = Stream(other, space, seed=seed, rate=1, sizes=(2, 6), duration=(1, 4), prefix="high", shape=_high)
            streams.enter_context(high)
            if kill_every is not None:  # else what can be taken is taken once
                more = Stream(
                    streams.enter_context(field.plane.api()), space, seed=seed, rate=1, sizes=(8, 16),
                    duration=(10, 20), prefix="more", shape=_rich,
                )  # fmt: skip
                streams.enter_context(more)
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                left = end - time.monotonic()
                time.sleep(left if kill_every is None else min(left, kill_every * draw.uniform(0.5, 1.5)))
                if kill_every is not None:
                    leader = field.leader()
                    for replica in replicas:
                        if replica.identity == leader:
                            replica.kill()
        field.drained(space, 120)
        assert auditor.bound(space)
        for replica in replicas:
            assert "cycle failed" not in replica.log(), replica.log()[-4000:]
        counts = {action: auditor.evictions(action) for action in ("reclaim", "preempt")}
    for name in ("rich", "poor"):
        field.delete(f"{GROUPS}/queues/{name}")
    return counts


def _whole_cluster(space: str) -> list[dict[str, Any]]:
    """16 groups of 16 pods that need 4 of them, in the queue `rich`: a quarter each is not to be disrupted at all, only
    as a whole, and under a budget; the rest is there for whoever has a right to it."""
    documents = []
    for index in range(16):
        disruption = ("Surplus", "Never", "Whole", "Surplus")[index % 4]
        documents += elastic(
            space, f"base-{index:02}", 16, 4, queue="rich", priority="chaos-low", disruption=disruption
        )
        if index % 4 == 3:
            documents.append(
                {
                    "apiVersion": "policy/v1",
                    "kind": "PodDisruptionBudget",
                    "metadata": {"namespace": space, "name": f"base-{index:02}"},
                    "spec": {"minAvailable": 12, "selector": {"matchLabels": {"group": f"base-{index:02}"}}},
                }
            )
    return documents


def _poor(draw: random.Random, space: str, name: str, size: int, seconds: float) -> list[dict[str, Any]]:
    priority = draw.choice(("", "chaos-low", "chaos-high"))
    return elastic(space, name, size, draw.choice((size, size // 2)), queue="poor", priority=priority, duration=seconds)


def _high(draw: random.Random, space: str, name: str, size: int, seconds: float) -> list[dict[str, Any]]:
    return elastic(space, name, size, size, queue="rich", priority="chaos-high", duration=seconds)


def _rich(draw: random.Random, space: str, name: str, size: int, seconds: float) -> list[dict[str, Any]]:
    disruption = draw.choice(("Surplus", "Surplus", "Whole"))
    return elastic(space, name, size, 2, queue="rich", priority="chaos-low", duration=seconds, disruption=disruption)


def _priority(name: str, value: int) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value,
    }  # fmt: skip


def outage(field: Field, component: str, *, paused: float | None) -> None:
    """A part of the control plane is killed and started again, or (`paused`) says nothing for so many seconds."""
    assert field.plane.components is not None
    field.ensure_nodes(NODES)
    limits = Limits(partial=75)
    with field.namespace() as space, field.schedulers("a", "b") as replicas, field.audited(limits) as auditor:
        with under_load(field, space, seed=1):
            wait_until(lambda: auditor.bound(space) > 10, 30, every=0.01)
            if paused is None:
                field.plane.components.restart(component)
            else:
                field.plane.components.pause(component)
                if component == "kube-apiserver":
                    # What was sent to it in time lies in its sockets, and is received when it goes on.
                    auditor.on_the_wire = 200
                try:
                    time.sleep(paused)  # how long it says nothing
                finally:
                    field.plane.components.resume(component)
        field.drained(space, 120)
        _all_exist(field, space, auditor)
        assert all(replica.alive for replica in replicas)


def another_scheduler(field: Field, *, seconds: float, seed: int) -> None:
    """kube-scheduler fills the same nodes at the same time."""
    assert field.plane.components is not None
    field.ensure_nodes(NODES)
    draw = random.Random(seed)
    components = field.plane.components
    components.start_scheduler()
    with (
        contextlib.ExitStack() as ended,
        field.namespace() as space,
        field.namespace() as foreign,
        field.schedulers("a"),
        field.audited() as auditor,
    ):
        ended.callback(components.kill, SCHEDULER)
        with under_load(field, space, seed=seed, rate=4):
            end = time.monotonic() + seconds
            number = 0
            while time.monotonic() < end:
                size = draw.randint(1, 20)
                documents = [
                    pod(foreign, f"f{number}-{index}", "none", duration=3, schedulerName="default-scheduler")
                    for index in range(size)
                ]
                create(field.api, documents)
                number += 1
                time.sleep(draw.uniform(0.1, 0.6))  # between two waves of the other's pods
        field.drained(space)
        field.wait("the other scheduler's pods ran", lambda: field.bound(foreign) == len(field.pods(foreign)))
        assert auditor.bound(space)


def hostile_objects(field: Field, *, count: int, seed: int) -> dict[str, int]:
    """So many pods, nodes, groups and queues with absurd fields; how many of each kind the server took.

    The loop goes on: an ordinary gang is placed at once, and each object that cannot be read is left out with an Event.
    """
    draw = random.Random(seed)
    field.ensure_nodes(NODES)
    taken: Counter[str] = Counter()
    with field.namespace() as space, field.schedulers("a", flags=()) as (a,), field.audited() as auditor:
        documents = [
            *hostile.queues(draw, count // 10),
            *hostile.nodes(draw, count // 10),
            *hostile.groups(draw, space, count // 5),
            *hostile.pods(draw, space, count - count // 10 - count // 10 - count // 5),
        ]
        try:
            with ThreadPoolExecutor(16) as pool:
                for kind in pool.map(lambda one: _offer(field, one), documents):
                    taken[kind] += bool(kind)
            create(field.api, gang(space, "ordinary", 20))
            limit = 60 + count / 100
            field.wait(
                "an ordinary gang is placed", lambda: _nodes_of(field, space, "ordinary-") == 20, limit, every=0.5
            )
            beyond = {
                one["metadata"]["uid"]: f"{kind} {one['metadata']['name']}"
                for kind, path in _KINDS.items()
                for one in field.items(f"{path}?labelSelector={quote(hostile.BEYOND, safe='')}")
            }

            def untold() -> list[str]:
                events = field.items("/apis/events.k8s.io/v1/events?fieldSelector=reason%3DUnreadable")
                told = {event["regarding"].get("uid") for event in events}
                return [what for uid, what in beyond.items() if uid not in told]

            field.wait("each object left out has its Event", lambda: not untold(), 30 + count / 40, every=2.0)
            assert beyond
            assert a.starts == 1, a.log()[-4000:]
            assert "cycle failed" not in a.log(), a.log()[-4000:]
            assert auditor.bound(space)
        finally:
            for path in (f"{GROUPS}/queues", "/api/v1/nodes"):
                names = [one["metadata"]["name"] for one in field.items(path)]
                with ThreadPoolExecutor(16) as pool:
                    list(pool.map(field.delete, [f"{path}/{name}" for name in names if name.startswith("hostile-")]))
    return dict(taken)


_KINDS = {
    "Pod": "/api/v1/pods", "Node": "/api/v1/nodes", "PodGroup": f"{GROUPS}/podgroups", "Queue": f"{GROUPS}/queues",
}  # fmt: skip


def _offer(field: Field, document: dict[str, Any]) -> str:
    """Try to create an object; its kind, or nothing where the server refuses it."""
    try:
        persist(lambda: field.api.post(path_of(document), document))
    except ApiError as error:
        if error.status not in {400, 403, 409, 422}:
            raise
        return ""
    return str(document["kind"])


def _nodes_of(field: Field, space: str, prefix: str) -> int:
    return sum(
        bool(one["spec"].get("nodeName")) for one in field.pods(space) if one["metadata"]["name"].startswith(prefix)
    )


def _goes_on(auditor: Auditor, space: str) -> bool:
    """Return as soon as one more pod is bound; False if none is for half a minute."""
    before = auditor.bound(space)
    return wait_until(lambda: auditor.bound(space) > before, 30, every=0.002)


def _all_exist(field: Field, space: str, auditor: Auditor) -> None:
    """Nobody deleted a pod here: all that were made are there, on the node that they were bound to, once."""
    there = {one["metadata"]["uid"]: one["spec"].get("nodeName") for one in field.pods(space)}
    bound = [one for one in auditor.writes() if one.resource == "pods/binding" and one.succeeded]
    nodes = {one.body["metadata"]["uid"]: one.body["target"]["name"] for one in bound if one.namespace == space}
    assert all(there.get(uid) == node for uid, node in nodes.items())
    assert auditor.look().ever.get(space, set()) == there.keys(), "a pod went, or was replaced"
