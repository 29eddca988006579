"""What is done to a scheduler under load, each with its measure: the short forms and the long ones are the same.

After each trial the load stops, the trouble stops, and then: nothing is lost, nothing was done twice, everything that
can be placed is placed, and the auditor has seen nothing that must not happen.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

from kbatch.localcluster.errors import ApiError
from kbatch.localcluster.nodes import node
from kbatch.localcluster.processes import wait_until
from tests.e2e.auditor.auditor import Auditor, Limits
from tests.e2e.chaos import hostile
from tests.e2e.chaos.field import Field
from tests.e2e.chaos.load import GROUPS, Stream, backlog, create, gang, path_of, persist, pod
from tests.e2e.proxy.faults import Script, everything
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


def bad_connection(field: Field, *, seconds: float, seed: int, log: Path | None = None) -> dict[str, int]:
    """A proxy between two replicas and the API server injects all that it knows; how often it injected what."""
    field.ensure_nodes(NODES)
    script = Script(seed, everything(), log=log)
    # A group whose bind failed for certain is left alone for a while, longer each time, up to half a minute; a gang
    # that cannot be completed within a minute is taken back.
    limits = Limits(partial=75, untrue=12, beneficiary=75)
    with (
        Proxy(field.api.server, field.api.certificate_authority, script) as proxy,
        field.namespace() as space,
        field.schedulers("a", "b", flags=(), server=proxy.url) as replicas,
        field.audited(limits) as auditor,
    ):
        with under_load(field, space, seed=seed):
            time.sleep(seconds)  # how long the trouble lasts
        script.quiet()
        field.drained(space, 120)
        _all_exist(field, space, auditor)
        for replica in replicas:
            assert "cycle failed" not in replica.log(), replica.log()[-4000:]
    return script.counts()


def moving_ground(field: Field, *, seconds: float, seed: int) -> None:
    """Nodes vanish, come back, are cordoned; pods, groups and namespaces are deleted, all while binds are in flight."""
    draw = random.Random(seed)
    field.ensure_nodes(NODES)
    with (
        field.namespace() as space,
        field.namespace() as doomed,
        field.schedulers("a") as (a,),
        field.audited(Limits(partial=75)) as auditor,
    ):
        create(field.api, backlog(doomed, 4, 10))
        with under_load(field, space, seed=seed, rate=3):
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                draw.choice((_cordon, _vanish, _delete_pods, _delete_group))(field, space, draw)
                time.sleep(draw.uniform(0.05, 0.4))  # between two troubles
            field.delete(f"/api/v1/namespaces/{doomed}")
        for index in range(NODES):
            _put_node(field, f"node-{index}")
        field.ensure_nodes(NODES)
        create(field.api, gang(space, "last", 20))
        field.drained(space)
        assert auditor.bound(space)
        assert "cycle failed" not in a.log(), a.log()[-4000:]


def outage(field: Field, component: str, *, paused: float | None) -> None:
    """A part of the control plane is killed and started again, or (`paused`) says nothing for so many seconds."""
    assert field.plane.components is not None
    field.ensure_nodes(NODES)
    limits = Limits(partial=75, untrue=12)
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
    field.plane.components.start_scheduler()
    with (
        field.namespace() as space,
        field.namespace() as foreign,
        field.schedulers("a"),
        field.audited() as auditor,
    ):
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
    limits = Limits(untrue=60)
    with field.namespace() as space, field.schedulers("a", flags=()) as (a,), field.audited(limits) as auditor:
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
            field.wait("an ordinary gang is placed", lambda: _nodes_of(field, space, "ordinary-") == 20, limit)
            beyond = {
                one["metadata"]["uid"]: f"{kind} {one['metadata']['name']}"
                for kind, path in _KINDS.items()
                for one in field.items(f"{path}?labelSelector={quote(hostile.BEYOND, safe='')}")
            }

            def untold() -> list[str]:
                events = field.items("/apis/events.k8s.io/v1/events?fieldSelector=reason%3DUnreadable")
                told = {event["regarding"].get("uid") for event in events}
                return [what for uid, what in beyond.items() if uid not in told]

            field.wait("each object left out has its Event", lambda: not untold(), 30 + count / 40)
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
    assert len(there) == len(set(there))


def _cordon(field: Field, space: str, draw: random.Random) -> None:
    name = f"node-{draw.randrange(NODES)}"
    with contextlib.suppress(Exception):
        field.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": draw.random() < 0.5}})


def _vanish(field: Field, space: str, draw: random.Random) -> None:
    name = f"node-{draw.randrange(NODES)}"
    field.delete(f"/api/v1/nodes/{name}")
    time.sleep(draw.uniform(0, 0.3))  # how long it is away
    _put_node(field, name)


def _put_node(field: Field, name: str) -> None:
    create(field.api, [node(name)])
    field.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": False}})


def _delete_pods(field: Field, space: str, draw: random.Random) -> None:
    names = [one["metadata"]["name"] for one in field.pods(space) if one["status"].get("phase") == "Pending"]
    for name in draw.sample(names, min(3, len(names))):
        field.delete(f"/api/v1/namespaces/{space}/pods/{name}?gracePeriodSeconds=0")


def _delete_group(field: Field, space: str, draw: random.Random) -> None:
    names = [one["metadata"]["name"] for one in field.groups(space)]
    if names:
        field.delete(f"{GROUPS}/namespaces/{space}/podgroups/{draw.choice(names[-5:])}")
