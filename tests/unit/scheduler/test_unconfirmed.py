"""Which of the groups that something is under way of are looked at, and when all of them are."""

from __future__ import annotations

from kbatch.api.objects import Pod
from kbatch.engine import Verdict
from kbatch.model.events import Delete, Event, Upsert
from operators.scheduler.cache import Cache
from operators.scheduler.status_diff import Wanted
from operators.scheduler.unconfirmed import WHOLE_SECONDS, WHOLE_SHARE, Unconfirmed
from tests.unit.scheduler.fakes import cache_with, group, node, pod, queue

WANTED = Wanted("uid", (), 0)


def verdict(name: str, *, scheduled: bool) -> Verdict:
    return Verdict(f"ns/{name}", shadow=False, enqueued=True, scheduled=scheduled, job=f"ns/{name}")


def world() -> Cache:
    names = ("a", "b", "c")
    return cache_with(queue(), node("n"), *map(group, names), *(pod(f"{name}-0", group=name) for name in names))


def three(cache: Cache) -> Unconfirmed:
    """Two groups whose binds are under way, and one that is evicted; all of them were looked at at 100."""
    held = Unconfirmed(cache.model)
    for name, scheduled in (("a", True), ("b", True), ("c", False)):
        held.put(f"ns/{name}", WANTED, verdict(name, scheduled=scheduled))
    assert keys(held, 100.0) == ["ns/a", "ns/b", "ns/c"]
    return held


def keys(held: Unconfirmed, now: float, *, took: float = 0.0, whole: bool = False) -> list[str]:
    found = [key for key, _ in held.due(now, whole=whole)]
    held.looked(now + took)
    return found


def of(name: str) -> Event:
    return Upsert(pod(f"{name}-0", group=name, node="n", version="2"))


def test_only_those_that_something_was_heard_of_are_looked_at_and_those_that_leave() -> None:
    held = three(world())
    assert keys(held, 100.1) == ["ns/c"]
    held.heard((of("b"), Delete(Pod, "ns", "a-0"), Upsert(node("n"))))
    assert keys(held, 100.2) == ["ns/c", "ns/b"]
    assert keys(held, 100.3) == ["ns/c"], "once"
    held.heard((Upsert(group("a", version="11")), of("nobody")))
    assert keys(held, 100.4) == ["ns/c", "ns/a"]


def test_all_are_looked_at_now_and_then_and_when_that_is_asked_for() -> None:
    held = three(world())
    assert keys(held, 100.0 + WHOLE_SECONDS) == ["ns/a", "ns/b", "ns/c"]
    assert keys(held, 100.1 + WHOLE_SECONDS) == ["ns/c"]
    assert keys(held, 100.2 + WHOLE_SECONDS, whole=True) == ["ns/a", "ns/b", "ns/c"]
    assert keys(held, 100.3 + WHOLE_SECONDS) == ["ns/c"]


def test_where_that_takes_long_it_is_seldom() -> None:
    held = three(world())
    assert keys(held, 200.0, took=1.0) == ["ns/a", "ns/b", "ns/c"]
    assert keys(held, 200.0 + WHOLE_SHARE) == ["ns/c"]
    assert keys(held, 201.0 + WHOLE_SHARE) == ["ns/a", "ns/b", "ns/c"]


def test_one_that_comes_anew_is_looked_at_soon_and_one_that_is_given_up_never() -> None:
    held = three(world())
    held.heard((of("b"),))
    for key in ("ns/b", "ns/c"):
        held.discard(key)
    held.put("ns/d", WANTED, verdict("d", scheduled=True))
    assert (len(held), "ns/b" in held, "ns/d" in held) == (2, False, True)
    assert keys(held, 100.1) == ["ns/d"]
    assert keys(held, 100.2) == []
