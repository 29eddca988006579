"""Who comes in queue where it depends on one unit, or on what was promised before."""

from kbatch.api.objects import Condition, PodGroup
from tests.unit.engine.worlds import EVERYTHING, group, members, node, pod, policy, queue, run, stamp, world

ALL = policy(EVERYTHING)


def wanting(name: str, cpu: int, at: int = 0, **more: object) -> PodGroup:
    return group(name, at=at, min_resources={"cpu": str(cpu)}, **more)  # type: ignore[arg-type]


def let_in(*objects: object, now: int = 0) -> dict[str, bool | None]:
    verdicts = run(world(*objects), ALL, now=now).verdicts
    return {name.removeprefix("ns/"): verdict.enqueued for name, verdict in verdicts.items() if not verdict.shadow}


def test_all_promises_of_a_cycle_count_for_those_behind() -> None:
    groups = [wanting("a", 2), wanting("b", 2, 1), wanting("c", 2, 2), wanting("d", 1, 3)]
    assert let_in(queue(), node("n1", "5"), groups) == {"a": True, "b": True, "c": False, "d": True}


def test_a_queue_may_be_promised_its_cap_to_the_last_unit() -> None:
    groups = [wanting("a", 2), wanting("b", 2, 1), wanting("c", 1, 2)]
    assert let_in(queue(capability={"cpu": "4"}), node("n1", "8"), groups) == {"a": True, "b": True, "c": False}


def test_a_share_is_promised_once() -> None:
    running = [pod(f"x-{at}", queue="q1", on="n1") for at in range(8)]
    groups = [wanting("a", 3, queue="q2"), wanting("b", 3, 1, queue="q2"), wanting("c", 1, 2, queue="q2")]
    found = let_in(queue("q1"), queue("q2"), node("n1", "8"), running, groups)
    assert found == {"a": True, "b": False, "c": True}


def test_one_group_comes_in_by_its_age() -> None:
    groups = [wanting("a", 4), wanting("b", 4, 1)]
    assert let_in(queue(), node("n1", "4"), pod("x", "3", on="n1"), groups, now=700) == {"a": True, "b": False}


def test_what_a_group_is_nominated_to_is_not_promised_to_it_besides() -> None:
    """One of its two pods was nominated to a node that is gone; the other waits where it may stay."""
    gang = group("g", 2, min_resources={"cpu": "2"})
    gang.status.conditions = (Condition(type="Enqueued", status="True", last_transition_time=stamp(0)),)
    pods = members("g", 2)
    for one, where in zip(pods, ("n1", "gone"), strict=True):
        one.status.nominated_node_name = where
    ending = pod("d", "3", on="n1")
    ending.metadata.deletion_timestamp = stamp(100)
    assert let_in(queue(), node("n1", "3"), ending, gang, pods, wanting("b", 1, 1), now=5) == {"g": True, "b": True}
