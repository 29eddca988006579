import pytest

from kbatch.api.objects import SubGroup, Taint, Toleration
from kbatch.api.reasons import NotEnoughResources
from tests.unit.engine.worlds import EVERYTHING, group, members, node, pod, policy, queue, run, stamp, world


def test_a_gang_is_placed_whole_and_spread_by_least_requested() -> None:
    found = run(world(queue(), node("n1"), node("n2"), group("g", 4), members("g", 4)))
    assert sorted(found.binds) == ["g-0", "g-1", "g-2", "g-3"]
    assert sorted(found.binds.values()) == ["n1", "n1", "n2", "n2"]
    assert len(found.transactions) == 1
    assert found.verdicts["ns/g"].scheduled


def test_a_gang_that_does_not_fit_holds_nothing_and_blocks_nobody() -> None:
    found = run(
        world(
            queue(),
            node("n1", "10"),
            group("big", 3),
            members("big", 3, "4"),
            group("small", at=1),
            members("small", 1, "3"),
        )
    )
    assert list(found.binds) == ["small-0"]
    reason = found.verdicts["ns/big"].reason
    assert reason is not None
    assert reason.code == "NotEnoughResources"
    assert "2" in reason.message
    assert "3" in reason.message


def test_too_few_pods_is_said_and_leaves_the_room_to_others() -> None:
    found = run(world(queue(), node("n1", "2"), group("g", 4), members("g", 2), pod("p", at=5)))
    assert list(found.binds) == ["p"]
    assert found.reason("g") == "NotEnoughTasks"


def test_one_gang_of_two_queues_fits() -> None:
    found = run(
        world(
            [queue("q1"), queue("q2"), node("n1", "4"), group("a", 3, queue="q1"), group("b", 3, queue="q2", at=1)],
            members("a", 3), members("b", 3),
        )
    )  # fmt: skip
    assert sorted(found.binds) == ["a-0", "a-1", "a-2"]
    assert found.reason("b") == "NotEnoughResources"


def test_minimum_first_then_the_smaller_share() -> None:
    found = run(world(queue(), node("n1", "10"), group("a", 2), members("a", 10), group("b", 6, at=1), members("b", 6)))
    assert sum(name.startswith("a-") for name in found.binds) == 4
    assert sum(name.startswith("b-") for name in found.binds) == 6


def test_queues_share_whatever_the_number_of_their_jobs() -> None:
    many = [pod(f"m{index}", queue="q1", at=index) for index in range(50)]
    found = run(
        world(queue("q1"), queue("q2"), node("n1", "40"), many, group("one", 1, queue="q2"), members("one", 50))
    )
    assert sum(name.startswith("m") for name in found.binds) == 20
    assert sum(name.startswith("one-") for name in found.binds) == 20


def test_dominant_shares_of_two_kinds_of_pods() -> None:
    found = run(
        world(
            [queue(), node("n1", "9", "18Gi"), group("a"), group("b", at=1)],
            members("a", 9, "1", memory="4Gi"), members("b", 9, "3", memory="1Gi"),
        )
    )  # fmt: skip
    assert sum(name.startswith("a-") for name in found.binds) == 3
    assert sum(name.startswith("b-") for name in found.binds) == 2


def test_a_queue_of_no_weight_runs_on_what_is_left() -> None:
    found = run(world(queue("none", 0), node("n1", "2"), group("g", queue="none"), members("g", 2)))
    assert len(found.binds) == 2


def test_a_dimension_that_nobody_asks_for_does_not_stop_sharing() -> None:
    found = run(
        world(
            [queue("q1"), queue("q2"), node("n1", "8", "16Gi", extra={"hugepages-2Mi": "0"})],
            [group("a", queue="q1"), group("b", queue="q2")],
            members("a", 1, "500m", memory="1Gi"), members("b", 15, "500m", memory="1Gi"),
        )
    )  # fmt: skip
    assert len(found.binds) == 16


def test_two_pods_of_504m_do_not_share_one_core() -> None:
    found = run(world(queue(), node("n1", "1"), group("g"), members("g", 2, "504m")))
    assert len(found.binds) == 1


def test_an_unknown_queue_and_a_missing_group_are_said() -> None:
    found = run(world(queue(), node("n1"), group("g", queue="nowhere"), members("g", 1), pod("p", of="ghost")))
    assert found.binds == {}
    assert found.reason("g") == "QueueNotFound"
    assert found.reason("ghost") == "PodGroupNotFound"


def test_taints_and_selectors_are_counted_by_reason() -> None:
    taint = Taint(key="dedicated", effect="NoSchedule", value="x")
    nodes = [node("n1", taints=(taint,)), node("n2", unschedulable=True), node("n3", "1")]
    found = run(world(queue(), nodes, group("g"), members("g", 1, "2")))
    reason = found.verdicts["ns/g"].reason
    assert reason is not None
    assert "1 insufficient cpu" in reason.message
    tolerates = Toleration(key="dedicated", operator="Exists")
    found = run(world(queue(), nodes, group("g"), [pod("g-0", "2", of="g", tolerations=(tolerates,))]))
    assert found.binds == {"g-0": "n1"}


def test_roles_need_their_own_minimum() -> None:
    objects = [queue(), node("n1", "4"), group("g", 1, roles={"master": 1, "worker": 2})]
    found = run(world(objects, [pod(f"w{i}", of="g", role="worker") for i in range(3)]))
    assert found.binds == {}
    found = run(
        world(objects, [pod(f"w{i}", of="g", role="worker") for i in range(5)], pod("m", of="g", role="master", at=9))
    )
    assert "m" in found.binds
    assert len(found.binds) == 4


@pytest.mark.parametrize("taken", ["2", "0"], ids=["now", "even without others"])
def test_what_a_role_lacks_is_said_of_its_smallest_pods(taken: str) -> None:
    model = world(
        queue(), node("n1", "4" if taken == "2" else "2"), pod("other", taken, on="n1"),
        group("g", roles={"ps": 1, "worker": 2}), pod("g-p", of="g", role="ps"),
        [pod(f"g-w{cpu}-{at}", cpu, of="g", role="worker", at=at) for at, cpu in enumerate(("3", "1", "1"))],
    )  # fmt: skip
    reason = run(model).verdicts["ns/g"].reason
    assert isinstance(reason, NotEnoughResources)
    assert (reason.placeable, reason.needed, reason.role) == (2, 3, "worker")
    assert (reason.resource, reason.missing) == ("cpu", 1000)
    assert ", no more of role worker; short of 1 cpu; " in reason.message


@pytest.mark.parametrize(("hard", "started"), [(None, 3), (2, 2)])
def test_a_role_without_template_and_maximum_may_have_any_number_of_pods(hard: int | None, started: int) -> None:
    role = SubGroup(name="w", min_member=1, max_member=hard)
    whole = group("g")
    whole.spec.sub_groups = (role,)
    found = run(world(queue(), node("n1", "4"), whole, members("g", 3, role="w")))
    assert len(found.binds) == started


def test_capability_is_a_hard_cap() -> None:
    found = run(
        world(
            queue(capability={"cpu": "2"}), node("n1", "8"), group("g"), members("g", 4), group("h", 3), members("h", 3)
        )
    )
    assert len(found.binds) == 2
    assert found.reason("h") == "QueueCapabilityExceeded"


def test_what_terminates_counts_no_longer_for_a_capability() -> None:
    leaving = members("old", 2, "2", queue="default", on="n1")
    for each in leaving:
        each.metadata.deletion_timestamp = stamp(30)
    found = run(world(queue(capability={"cpu": "4"}), node("n1", "6"), leaving, group("g"), members("g", 3)))
    assert sorted(found.binds) == ["g-0", "g-1"]  # where room is idle; the third waits for its room
    assert list(found.nominated) == ["g-2"]


def test_a_capability_below_what_the_queue_holds_evicts_nobody() -> None:
    held = members("old", 3, "2", queue="default", on="n1")
    found = run(
        world(queue(capability={"cpu": "4"}), node("n1", "8"), held, group("g"), members("g", 1)), policy(EVERYTHING)
    )
    assert found.transactions == []
    assert found.reason("g") == "QueueCapabilityExceeded"


def test_a_closed_queue_takes_nothing() -> None:
    found = run(world(queue(state="Closed"), node("n1"), group("g"), members("g", 1)))
    assert found.binds == {}
    assert found.reason("g") == "QueueClosed"


def test_the_first_node_by_name_wins_among_equals() -> None:
    found = run(world(queue(), node("b"), node("a"), node("c"), pod("p")), policy())
    assert found.binds == {"p": "a"}


def test_a_queue_that_is_alone_lacks_capacity_not_share() -> None:
    objects = [queue(), node("n1", "4"), group("a", 4), members("a", 4, on="n1"), group("b", 2, at=1), members("b", 2)]
    found = run(world(*objects))
    assert found.reason("b") == "NotEnoughResources"
    assert found.verdicts["ns/b"].pods_unschedulable


def test_the_share_is_blamed_while_another_queue_waits_for_its_own() -> None:
    found = run(
        world(
            [queue("q1"), queue("q2"), node("n1", "4"), group("a", 4, queue="q1"), group("b", 2, queue="q1", at=1)],
            members("a", 4, on="n1"), members("b", 2), group("c", 2, queue="q2", at=2), members("c", 2),
        )
    )  # fmt: skip
    assert found.reason("b") == "QueueOverused"
    assert not found.verdicts["ns/b"].pods_unschedulable
    assert found.reason("c") == "NotEnoughResources"
