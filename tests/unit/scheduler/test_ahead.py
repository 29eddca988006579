"""What is known of nodes ahead of the model: the same sums that the model comes to, and what keeps a pod away."""

from __future__ import annotations

import random

import pytest

from kbatch.api.objects import Container, ContainerPort, Pod, ResourceRequirements
from kbatch.model.events import Delete, Unreadable
from operators.scheduler.ahead import MOST_STRANGERS, Ahead
from operators.scheduler.cache import Cache
from tests.unit.scheduler.fakes import cache_with, group, node, pod, told


def foreign(name: str, on: str = "n", *, cpu: str = "1", port: int = 0, phase: str = "Running") -> Pod:
    """A pod that another scheduler has bound."""
    one = pod(name, node=on, version="2")
    one.spec.scheduler_name = "default-scheduler"
    ports = (ContainerPort(host_port=port),) if port else None
    one.spec.containers = (Container(resources=ResourceRequirements(requests={"cpu": cpu}), ports=ports),)
    one.status.phase = phase
    return one


def obstacle(cache: Cache, name: str, on: str = "n", look: int | None = None) -> str | None:
    """Why a pod of which the bind is decided cannot go there; decided by the last look, unless another is named."""
    return cache.ahead.obstacle(cache.model.tasks[f"ns/{name}"], on, cache.ahead.looks if look is None else look)


def test_room_that_a_stranger_took_while_a_cycle_holds_the_model_is_gone() -> None:
    cache = cache_with(node("n", cpu="2"), pod("a"), pod("b"))
    with cache.held():
        cache.assume("ns/a", "uid-a", "n")
        cache.assume("ns/b", "uid-b", "n")
        assert obstacle(cache, "a") is None
        cache.receive(told(foreign("f")))
        assert obstacle(cache, "a") == "has no cpu left"
        cache.forget("ns/b", "uid-b")
        assert obstacle(cache, "a") is None, "what was not sent makes room for the rest"
    assert obstacle(cache, "a") is None
    cache.receive(told(foreign("g")))
    assert obstacle(cache, "a") == "has no cpu left", "the model itself says so when no cycle holds it"


def test_only_what_the_pod_needs_counts() -> None:
    cache = cache_with(node("n", cpu="1"), pod("a"), foreign("f"))
    cache.model.tasks["ns/a"].pod.spec.containers = ()
    bare = pod("c")
    bare.spec.containers = (Container(),)
    cache.receive(told(bare))
    with cache.held():
        cache.assume("ns/c", "uid-c", "n")
        cache.receive(told(foreign("g")))
        assert obstacle(cache, "c") is None


def test_a_pod_that_left_makes_room_for_a_stranger() -> None:
    cache = cache_with(node("n", cpu="2"), pod("a"), foreign("old"))
    with cache.held():
        cache.assume("ns/a", "uid-a", "n")
        cache.receive(told(Delete(Pod, "ns", "old"), foreign("new")))
        assert obstacle(cache, "a") is None


def test_what_was_decided_and_is_confirmed_is_no_stranger() -> None:
    cache = cache_with(node("n", cpu="1"), pod("a"))
    with cache.held():
        cache.assume("ns/a", "uid-a", "n")
        cache.receive(told(pod("a", version="2"), pod("a", node="n", version="3")))
        assert cache.ahead.used("n") == {"cpu": 1000, "pods": 1}
        assert obstacle(cache, "a") is None


def test_a_pod_of_ours_that_somebody_else_bound_counts_where_it_is() -> None:
    cache = cache_with(node("n", cpu="1"), node("m", cpu="1"), pod("a"), pod("b"))
    cache.assume("ns/b", "uid-b", "n")
    with cache.held():
        cache.assume("ns/a", "uid-a", "m")
        cache.receive(told(pod("b", node="m", version="2")))
        assert cache.ahead.used("n") == {}
        assert obstacle(cache, "a", "m") == "has no cpu left"


def test_a_node_that_shrinks_or_cannot_be_read_takes_nobody() -> None:
    cache = cache_with(node("n"), node("m"), node("o"), pod("a"))
    with cache.held():
        for name in ("n", "m", "o"):
            assert obstacle(cache, "a", name) is None
        cache.assume("ns/a", "uid-a", "n")
        cache.receive(told(node("n", cpu="500m"), node("m", cpu="many")))
        cache.receive(told(Unreadable(Pod, "ns", "x", "uid-x", "o", "what is this")))
        assert obstacle(cache, "a", "n") == "has no cpu left"
        assert obstacle(cache, "a", "m") == "cannot be read any more"
        assert obstacle(cache, "a", "o") == "has a pod of which nobody can read what it uses"
    assert obstacle(cache, "a", "o") == "has a pod of which nobody can read what it uses"


def test_a_stranger_that_cannot_be_read_closes_its_node() -> None:
    cache = cache_with(node("n"), pod("a"))
    with cache.held():
        cache.receive(told(foreign("f", cpu="many")))
        assert obstacle(cache, "a") == "has a pod of which nobody can read what it uses"


def with_port(name: str, port: int) -> Pod:
    one = pod(name)
    one.spec.containers = (Container(ports=(ContainerPort(host_port=port),)),)
    return one


@pytest.mark.parametrize("held", [True, False])
def test_a_host_port_that_a_stranger_took_since_the_decision(held: bool) -> None:
    cache = cache_with(node("n"), with_port("a", 80), with_port("b", 81), foreign("before", port=80))
    with cache.held():
        decision = cache.ahead.looks
        cache.assume("ns/a", "uid-a", "n")
        if held:
            cache.receive(told(foreign("f", port=80)))
    cache.receive(told(foreign("f", port=80)))
    assert obstacle(cache, "a") == "has a host port taken by ns/f"
    assert obstacle(cache, "b") is None
    with cache.held():
        assert obstacle(cache, "a") is None, "whoever was there when it was decided is the engine's affair"
        assert obstacle(cache, "a", look=decision) == "has a host port taken by ns/f"
    cache.receive(told(foreign("f", port=80, phase="Succeeded")))
    assert obstacle(cache, "a", look=decision) is None


@pytest.mark.parametrize("alone", ["mine", "theirs", ""])
def test_a_node_for_one_group_alone_to_which_another_groups_pod_came(alone: str) -> None:
    groups = [group("mine"), group("theirs")]
    for one in groups:
        one.spec.exclusive = one.metadata.name == alone
    cache = cache_with(node("n"), *groups, pod("a", group="mine"), pod("b", group="theirs"), pod("c", group="mine"))
    with cache.held():
        cache.assume("ns/a", "uid-a", "n")
        cache.receive(told(pod("c", group="mine", node="n", version="2"), foreign("f")))
        assert obstacle(cache, "a") is None
        cache.receive(told(pod("b", group="theirs", node="n", version="2")))
        wanted = "has ns/b, and one of the two is to stand alone" if alone else None
        assert obstacle(cache, "a") == wanted
    assert obstacle(cache, "a") == wanted
    cache.receive(told(Delete(Pod, "ns", "b")))
    assert obstacle(cache, "a") is None


def test_nothing_is_kept_before_anything_is_decided_nor_without_bound() -> None:
    cache = Cache(cache_with(node("n")).model)
    assert cache.ahead.looks == 0
    cache.receive(told(*(foreign(f"f{number}", f"n{number}") for number in range(3))))
    assert not cache.ahead._strangers
    ahead = Ahead(cache.model)
    ahead.look()
    ahead.heard(told(*(foreign(f"g{number}", f"n{number}") for number in range(MOST_STRANGERS))).events, lags=False)
    ahead.look()
    assert len(ahead._strangers) == MOST_STRANGERS
    ahead.heard(told(foreign("last", "another")).events, lags=False)
    ahead.look()
    assert not ahead._strangers


@pytest.mark.parametrize("seed", range(40))
def test_the_sums_are_those_that_the_model_comes_to(seed: int) -> None:
    """Whatever happens while a cycle holds the model, and before: each pod is made, bound by whoever, ends, goes."""
    draw = random.Random(seed)
    nodes = ["n0", "n1", "n2"]
    cache = cache_with(*(node(name, cpu="100") for name in nodes))
    alive: dict[str, Pod] = {}
    number = 0
    decided: set[str] = set()

    def happen() -> None:
        nonlocal number
        kind = draw.choice(
            ["made", "bound", "assumed", "made", "bound", "assumed", "forgotten", "ended", "gone", "told"]
        )
        key = draw.choice(sorted(alive)) if alive else ""
        one = alive.get(key)
        if kind == "made" or one is None:
            name = f"p{draw.randrange(12)}"
            if name not in alive:
                number += 1
                one = alive[name] = pod(name, uid=f"uid-{number}")
                one.spec.containers = (
                    Container(resources=ResourceRequirements(requests={"cpu": str(draw.randint(1, 3))})),
                )
                cache.receive(told(one))
            return
        changed = pod(key, uid=one.metadata.uid, node=one.spec.node_name, version=str(number))
        changed.spec.containers, changed.status.phase = one.spec.containers, one.status.phase
        uid, where = one.metadata.uid, draw.choice(nodes)
        ended = one.status.phase == "Succeeded"
        if kind == "bound" and not one.spec.node_name and not ended:
            changed.spec.node_name = where
        elif kind == "ended":
            changed.status.phase = "Succeeded"
        task = cache.model.tasks.get(f"ns/{key}")
        if kind == "gone":
            del alive[key]
            cache.receive(told(Delete(Pod, "ns", key)))
        elif kind == "assumed":  # as an engine does: of a pod that waits in its picture, once in a cycle
            if task is not None and task.pending and task.uid not in decided:
                decided.add(task.uid)
                cache.assume(task.key, task.uid, where)
        elif kind == "forgotten":
            if not one.spec.node_name:  # it was read before, and has no node
                cache.forget(f"ns/{key}", uid)
        else:
            alive[key] = changed
            cache.receive(told(changed))

    for _ in range(20):
        for _ in range(draw.randint(0, 10)):
            happen()
        decided.clear()
        with cache.held():
            for _ in range(draw.randint(0, 12)):
                happen()
            sums = {name: cache.ahead.used(name) for name in nodes}
        assert sums == {name: cache.model.nodes[name].used for name in nodes}
        assert sums == {name: cache.ahead.used(name) for name in nodes}
