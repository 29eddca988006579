"""When room is expected, and when no more."""

from kbatch.api.objects import Pod
from kbatch.engine.state.cycle_state import QueueClock
from kbatch.engine.state.timeline import Timeline, releases, releases_by_lifetime
from kbatch.model.cluster import ClusterModel
from kbatch.model.expected import Expected
from kbatch.times import SECOND
from tests.unit.engine.worlds import EPOCH, group, node, pod, stamp, world

GRACE = 30 * SECOND


def dying(name: str, where: str, until: int) -> Pod:
    found = pod(name, on=where)
    found.metadata.deletion_timestamp = stamp(until)
    return found


def timeline(model: ClusterModel, now: int) -> Timeline:
    return Timeline(model.table, EPOCH + now * SECOND, GRACE)


def test_a_pod_is_stuck_thirty_seconds_after_its_grace() -> None:
    model = world(node("n1"), node("n2"), dying("a", "n1", 10), dying("b", "n2", 60), pod("c", on="n2"))
    assert [task.key for _, task in timeline(model, 39).stuck()] == []
    assert timeline(model, 39).next_stuck() == EPOCH + 40 * SECOND
    assert [(row, task.key) for row, task in timeline(model, 40).stuck()] == [(0, "ns/a")]
    assert timeline(model, 40).next_stuck() == EPOCH + 90 * SECOND
    assert [task.key for _, task in timeline(model, 90).stuck()] == ["ns/a", "ns/b"]
    assert timeline(model, 90).next_stuck() is None


def test_the_longest_of_some_nodes_counts() -> None:
    model = world(node("n1"), node("n2"), node("n3"), dying("a", "n1", 10), dying("b", "n2", 60))
    assert timeline(model, 5).latest([0]) == EPOCH + 40 * SECOND
    assert timeline(model, 5).latest([0, 1, 2]) == EPOCH + 90 * SECOND
    assert timeline(model, 5).latest([2]) == EPOCH + 5 * SECOND


def test_of_an_eviction_without_an_answer_nobody_knows_the_end() -> None:
    model = world(node("n1"), pod("a", on="n1"))
    model.evicting("ns/a", "u-a")
    assert timeline(model, 5000).latest([0]) is None
    assert list(timeline(model, 5000).stuck()) == []


def test_a_clock_counts_while_it_runs() -> None:
    clock = QueueClock(100)
    assert clock.elapsed(150) == 50
    halted = clock.halted(150)
    assert (halted.elapsed(150), halted.elapsed(900)) == (50, 50)
    assert halted.halted(900) == halted
    again = halted.resumed(900)
    assert (again.elapsed(900), again.elapsed(910)) == (50, 60)
    assert again.resumed(950) == again
    assert again.halted(910).elapsed(2000) == 60


def test_room_is_expected_of_pods_of_which_the_end_is_known() -> None:
    model = world(
        node("n1"),
        node("n2"),
        pod("a", on="n2", active_deadline_seconds=10),
        pod("b", on="n1", active_deadline_seconds=20),
        pod("c", on="n1"),
        pod("d", active_deadline_seconds=30),
        pod("e", on="n1", active_deadline_seconds=40, scheduler="another"),
    )
    found = releases(model.table, model.tasks.values(), Expected(model, EPOCH))
    ends = [((end.at - EPOCH) // SECOND, end.row, end.key) for end in sorted(found)]
    assert ends == [(10, 1, "ns/a"), (20, 0, "ns/b"), (40, 0, "ns/e")]


def test_a_lifetime_gives_room_to_those_who_take_it_when_the_pods_have_gone() -> None:
    model = world(
        node("n1"),
        group("g", lifetime_seconds=100),
        pod("a", of="g", on="n1", termination_grace_period_seconds=5),
        pod("b", of="g", on="n1"),
        pod("c", of="g"),
    )
    found = releases_by_lifetime(model.table, model.jobs["ns/g"], EPOCH)
    assert [((end.at - EPOCH) // SECOND, end.task.key) for end in found] == [(105, "ns/a"), (130, "ns/b")]
    late = releases_by_lifetime(model.table, model.jobs["ns/g"], EPOCH + 500 * SECOND)
    assert [(end.at - EPOCH) // SECOND for end in late] == [505, 530]


def test_a_lifetime_gives_no_room_while_the_group_may_not_be_evicted() -> None:
    young = world(node("n1"), group("g", lifetime_seconds=100, min_runtime_seconds=200), pod("a", of="g", on="n1"))
    found = releases_by_lifetime(young.table, young.jobs["ns/g"], EPOCH)
    assert [(end.at - EPOCH) // SECOND for end in found] == [230]
    never = world(node("n1"), group("g", lifetime_seconds=100, disruption="Never"), pod("a", of="g", on="n1"))
    assert list(releases_by_lifetime(never.table, never.jobs["ns/g"], EPOCH)) == []
