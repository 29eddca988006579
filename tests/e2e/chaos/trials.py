"""What is done to a scheduler under load, each with its measure: the short forms and the long ones are the same.

After each trial the load stops, the trouble stops, and then: nothing is lost, nothing was done twice, everything that
can be placed is placed, and the auditor has seen nothing that must not happen.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

from kbatch.localcluster.cluster import SCHEDULER
from kbatch.localcluster.errors import ApiError
from kbatch.localcluster.processes import wait_until
from tests.e2e.auditor.allowances import FAILING, IN_SOCKETS, Limits
from tests.e2e.auditor.auditor import Auditor
from tests.e2e.auditor.world import GROUP_NAME
from tests.e2e.chaos import hostile
from tests.e2e.chaos.field import Field
from tests.e2e.chaos.load import GROUPS, backlog, create, gang, persist
from tests.e2e.chaos.stream import NODES, differing, under_load
from tests.e2e.proxy.faults import Fault, Script, everything
from tests.e2e.proxy.proxy import Proxy
from tests.varied import path_of


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
    field: Field,
    *,
    seconds: float,
    seed: int,
    log: Path | None = None,
    faults: Sequence[Fault] | None = None,
    page: int | None = None,
) -> dict[str, int]:
    """A proxy between two replicas and the API server injects faults, by default a bit of all; how often each.

    With `page`, lists come in pages of so many objects.
    """
    field.ensure_nodes(NODES)
    script = Script(seed, everything() if faults is None else faults, log=log, page=page)
    # A group whose bind failed for certain is left alone for a while, longer each time, up to half a minute; a gang
    # that cannot be completed within a minute is taken back.
    limits = Limits(partial=FAILING, beneficiary=FAILING)
    late = script.watch_delay()
    limits = dataclasses.replace(limits, untrue=limits.untrue + late, unsaid=limits.unsaid + late)
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


def outage(field: Field, component: str, *, paused: float | None) -> None:
    """A part of the control plane is killed and started again, or (`paused`) says nothing for so many seconds."""
    assert field.plane.components is not None
    field.ensure_nodes(NODES)
    limits = Limits(partial=FAILING)
    with field.namespace() as space, field.schedulers("a", "b") as replicas, field.audited(limits) as auditor:
        with under_load(field, space, seed=1):
            wait_until(lambda: auditor.bound(space) > 10, 30, every=0.01)
            if paused is None:
                field.plane.components.restart(component)
            else:
                field.plane.components.pause(component)
                if component == "kube-apiserver":
                    # What was sent to it in time lies in its sockets, and is received when it goes on.
                    auditor.on_the_wire = IN_SOCKETS
                try:
                    time.sleep(paused)  # how long it says nothing
                finally:
                    field.plane.components.resume(component)
        field.drained(space, 120)
        _all_exist(field, space, auditor)
        assert all(replica.alive for replica in replicas)


def another_scheduler(field: Field, *, seconds: float, seed: int) -> None:
    """kube-scheduler fills the same nodes at the same time, with pods that all differ, too; not all have room.

    Where it takes the room of binds that are decided, a gang may stand in part until its minute is over.
    """
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
        field.audited(Limits(partial=FAILING)) as auditor,
    ):
        ended.callback(components.kill, SCHEDULER)
        with under_load(field, space, seed=seed, rate=4):
            end = time.monotonic() + seconds
            number = 0
            while time.monotonic() < end:
                create(field.api, _foreign(draw, foreign, f"f{number}"))
                number += 1
                time.sleep(draw.uniform(0.1, 0.6))  # between two waves of the other's pods
        field.drained(space)
        field.wait("the other scheduler's pods ran", lambda: field.bound(foreign) == len(field.pods(foreign)))
        assert auditor.bound(space)


def _foreign(draw: random.Random, space: str, name: str) -> list[dict[str, Any]]:
    """Pods for kube-scheduler, without a group, larger than ours."""
    documents = [one for one in differing(draw, space, name, draw.randint(1, 20), 3) if one["kind"] != "PodGroup"]
    for one in documents:
        if one["kind"] == "Pod":
            del one["metadata"]["annotations"][GROUP_NAME]
            one["spec"]["schedulerName"] = "default-scheduler"
            one["spec"]["containers"][0]["resources"] = {"requests": {"cpu": f"{draw.randint(1000, 5000)}m"}}
    return documents


def hostile_objects(field: Field, *, count: int, seed: int) -> dict[str, int]:
    """So many pods, nodes, groups and queues with absurd fields; how many of each kind the server took.

    The loop goes on: an ordinary gang is placed at once, and each object that cannot be read is left out with an Event.
    """
    draw = random.Random(seed)
    field.ensure_nodes(NODES, alike=True)
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
