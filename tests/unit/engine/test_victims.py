"""Who may go for whom, where little is missing for another answer."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kbatch.api.objects import (
    LabelSelector,
    Metadata,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
)
from kbatch.engine.plugin import NoArguments, Plugin, Preemptor, Unit, Vote
from kbatch.engine.preemption.polling import Victim
from kbatch.engine.preemption.reuse import likeness
from kbatch.engine.preemption.search import cost_of
from kbatch.engine.session.consent import Consent, surplus
from kbatch.engine.session.voting import Voting
from kbatch.times import SECOND
from tests.unit.engine.worlds import (
    EPOCH,
    EVERYTHING,
    group,
    members,
    node,
    pod,
    policy,
    priority_class,
    queue,
    run,
    session_of,
    world,
)

NO_ENQUEUE = EVERYTHING.replace("enqueue, ", "")
BY = policy(NO_ENQUEUE)
CLASSES = [priority_class("low", 1), priority_class("mid", 50), priority_class("high", 100)]


def budget(name: str = "b", allowed: int | None = None, **spec: Any) -> PodDisruptionBudget:
    """Of the pods of the app v; `allowed` is what its controller says."""
    found = PodDisruptionBudget(
        metadata=Metadata(name=name, namespace="ns"),
        spec=PodDisruptionBudgetSpec(selector=LabelSelector(match_labels={"app": "v"}), **spec),
    )
    if allowed is not None:
        found.status = PodDisruptionBudgetStatus(disruptions_allowed=allowed, expected_pods=2, observed_generation=1)
    return found


# --- budgets ----------------------------------------------------------------------------------------------------------


def test_no_budget_keeps_pods_that_have_not_started() -> None:
    """The eviction API asks no budget about a pod whose phase is Pending; nor does it count with those that may go."""

    def evicted(phase: str, *budgets: PodDisruptionBudget) -> set[str]:
        holding = members("low", 2, on="n1", priority=1)
        for one in holding:
            one.status.phase, one.metadata.labels = phase, {"app": "v"}
        return set(
            run(
                world(
                    *CLASSES, queue(), node("n1", "2"), group("low", priority_class_name="low"), holding, *budgets,
                    group("high", at=5, priority_class_name="high"), pod("h", of="high", at=5, priority=100),
                ),
                BY,
            ).evicted
        )  # fmt: skip

    assert len(evicted("Pending", budget(allowed=0))) == 1
    assert len(evicted("Pending", budget(allowed=0), budget("other", allowed=0))) == 1
    assert len(evicted("Running", budget(allowed=1))) == 1
    assert evicted("Running", budget(allowed=0)) == set()


# --- what serves another preemptor ------------------------------------------------------------------------------------


def test_who_stays_gets_what_one_with_a_lifetime_just_like_it_may_not_have() -> None:
    """Of equal priority a group with a lifetime takes nothing from one without; the next, which has none, may."""
    found = run(
        world(
            queue(), node("n1", "4"), group("big"), members("big", 4, on="n1"),
            group("a", at=1, lifetime_seconds=60), pod("a-0", of="a", at=1),
            group("b", at=2), pod("b-0", of="b", at=2),
        ),
        BY,
    )  # fmt: skip
    assert len(found.evicted) == 1
    assert found.nominated == {"b-0": "n1"}


def test_who_matters_more_gets_what_one_just_like_it_that_comes_first_may_not_have() -> None:
    """Where jobs come by age, a group that matters less is tried first, in vain."""
    found = run(
        world(
            [*CLASSES, queue(), node("n1", "2"), group("v", priority_class_name="mid"), *members("v", 2, on="n1")],
            group("a", at=1, priority_class_name="low"), pod("a-0", of="a", at=1),
            group("b", at=2, priority_class_name="high"), pod("b-0", of="b", at=2),
        ),
        policy(NO_ENQUEUE.replace("{name: priority}", "{name: priority, enableJobOrder: false}")),
    )  # fmt: skip
    assert len(found.evicted) == 1
    assert found.nominated == {"b-0": "n1"}


def test_who_holds_less_gets_what_one_just_like_it_that_holds_more_may_not_have() -> None:
    """Where jobs come by age, one with two of six pods is tried first, in vain, and then one with a single pod."""
    found = run(
        world(
            [queue(), node("n1", "6"), group("v"), *members("v", 3, on="n1")],
            [group("a", at=1), *members("a", 2, on="n1"), pod("a-9", of="a", at=1)],
            [group("b", at=2), *members("b", 1, on="n1"), pod("b-9", of="b", at=2)],
        ),
        policy(NO_ENQUEUE.replace("{name: drf}", "{name: drf, enableJobOrder: false}")),
    )
    assert len(found.evicted) == 1
    assert found.evicted[0].startswith("v-")
    assert found.nominated == {"b-9": "n1"}


def test_jobs_that_hold_more_or_less_are_not_alike() -> None:
    """What the one may not take, for its share, the other may: the search of neither serves the other."""
    model = world(queue(), node("n1", "6"), group("a"), group("b"), members("a", 1), members("b", 1))
    session = session_of(model, BY)

    def holding(name: str, cpu: int) -> Preemptor:
        task = model.tasks[f"ns/{name}-0"]
        lacks = frozenset({"cpu"})
        return Preemptor(session.job(task.job), (task,), task.cls.request, lacks=lacks, held={"cpu": cpu})

    assert likeness(holding("a", 1000)) == likeness(holding("b", 1000))
    assert likeness(holding("a", 1000)) != likeness(holding("b", 2000))


def test_jobs_of_other_priorities_are_not_alike() -> None:
    """What the one may not take the other may."""
    groups = [group("a", priority_class_name="low"), group("b", priority_class_name="high")]
    model = world(*CLASSES, queue(), node("n1", "6"), *groups, members("a", 1), members("b", 1))
    session = session_of(model, BY)
    marks = []
    for name in "ab":
        task = model.tasks[f"ns/{name}-0"]
        marks.append(likeness(Preemptor(session.job(task.job), (task,), task.cls.request, lacks=frozenset({"cpu"}))))
    assert marks[0] != marks[1]


@pytest.mark.parametrize(("spec", "may"), [({}, True), ({"lifetime_seconds": 600}, False)], ids=["endless", "ends"])
def test_only_who_stays_may_follow_who_has_outlived_its_lifetime(spec: dict[str, Any], may: bool) -> None:
    groups = [group("old", lifetime_seconds=60), group("next", at=1, **spec)]
    model = world(queue(), node("n1", "1"), *groups, members("old", 1, on="n1"), members("next", 1, at=1))
    session = session_of(model, BY, now=70)
    assert Consent(session).may_follow(session.job("ns/next"), session.job("ns/old")) is may


def test_a_set_of_victims_costs_more_where_a_queue_then_lacks_its_share() -> None:
    """Also where the other set matters more: what a queue deserves comes before priorities."""
    groups = [group("low", priority_class_name="low"), group("high", priority_class_name="high")]
    model = world(*CLASSES, queue(), node("n1", "2"), *groups, members("low", 1, on="n1"), members("high", 1, on="n1"))
    session = session_of(model, BY)

    def victim(name: str, deficit: dict[str, int]) -> Victim:
        task = model.tasks[f"ns/{name}-0"]
        return Victim(Unit(session.job(task.job), (task,), whole=False, request=task.cls.request), 1, deficit)

    assert cost_of([victim("low", {"cpu": 1})]) > cost_of([victim("high", {})])


# --- disruption budgets -----------------------------------------------------------------------------------------------


def test_a_victim_that_was_only_tried_uses_up_no_budget() -> None:
    """The gang would need two, of which one may go: nobody goes for it, and one for the single pod behind it."""
    found = run(
        world(
            [*CLASSES, queue(), node("n1", "2"), budget(min_available=1)],
            [group("v", priority_class_name="low"), *members("v", 2, on="n1", labels={"app": "v"})],
            [group("a", 2, at=1, priority_class_name="high"), *members("a", 2, at=1)],
            [group("b", at=2, priority_class_name="high"), pod("b-0", "500m", of="b", at=2)],
        ),
        BY,
    )
    assert len(found.evicted) == 1
    assert found.nominated == {"b-0": "n1"}


@pytest.mark.parametrize("evicting", [True, False])
def test_evictions_that_the_budgets_controller_has_not_seen_count(evicting: bool) -> None:
    model = world(
        [*CLASSES, queue(), node("n1", "3"), budget(allowed=1)],
        [group("v", priority_class_name="low"), *members("v", 3, on="n1", labels={"app": "v"})],
        [group("a", 1, at=1, priority_class_name="high"), pod("a-0", "2" if evicting else "1", of="a", at=1)],
    )
    if evicting:
        model.evicting("ns/v-0", "u-v-0")
    assert len(run(model, BY).evicted) == (0 if evicting else 1)


# --- candidates -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("disruption", "evicted"), [("Never", 0), ("Surplus", 1)])
def test_who_is_never_disrupted_stays_whoever_comes(disruption: str, evicted: int) -> None:
    found = run(
        world(
            [*CLASSES, queue(), node("n1", "2"), group("v", priority_class_name="low", disruption=disruption)],
            [*members("v", 2, on="n1"), group("a", at=1, priority_class_name="high"), pod("a-0", of="a", at=1)],
        ),
        BY,
    )
    assert len(found.evicted) == evicted


def test_who_is_never_disrupted_stays_where_another_that_matters_more_can_go() -> None:
    """Others of the queue may give something, so the pods on the node are looked at one by one: those of v too."""
    found = run(
        world(
            [*CLASSES, queue(), node("n1", "4")],
            [group("v", priority_class_name="low", disruption="Never"), *members("v", 2, on="n1")],
            [group("w", priority_class_name="mid"), *members("w", 2, on="n1")],
            [group("a", at=1, priority_class_name="high"), pod("a-0", of="a", at=1)],
        ),
        BY,
    )
    assert [name[0] for name in found.evicted] == ["w"]


@pytest.mark.parametrize(("now", "evicted"), [(59, 0), (60, 1)])
def test_a_group_may_go_from_the_very_end_of_its_minimum_of_run_time(now: int, evicted: int) -> None:
    model = world(
        [*CLASSES, queue(), node("n1", "2"), group("v", priority_class_name="low", min_runtime_seconds=60)],
        [*members("v", 2, on="n1"), group("a", at=1, priority_class_name="high"), pod("a-0", of="a", at=1)],
    )
    found = run(model, BY, now=now)
    assert len(found.evicted) == evicted
    assert found.outcome is not None
    assert evicted or found.outcome.next_wake == EPOCH + 60 * SECOND


# --- what victims cost ------------------------------------------------------------------------------------------------


def test_who_ends_exactly_at_its_share_goes_before_who_would_end_below() -> None:
    """Of six cores each queue deserves two; the large pod is the youngest, and would take its queue below that."""
    found = run(
        world(
            [queue("a"), queue("b"), queue("r"), node("n1", "3"), node("n2", "1"), node("n3", "2")],
            [pod(f"a-{at}", queue="a", on="n1") for at in range(3)],
            [pod("b-small", queue="b", on="n2"), pod("b-large", "2", queue="b", on="n3", at=5)],
            [pod(f"r-{at}", queue="r", at=9) for at in range(2)],
        ),
        BY,
        now=10,
    )
    assert "b-small" in found.evicted
    assert [name[:2] for name in found.evicted] == ["a-", "b-"]


def test_one_pod_goes_and_not_two_that_are_younger() -> None:
    found = run(
        world(
            [*CLASSES, queue(), node("n1", "2"), node("n2", "2"), group("v", priority_class_name="low")],
            [pod("v-large", "2", of="v", on="n1"), *members("v", 2, on="n2", at=5)],
            [group("a", at=9, priority_class_name="high"), pod("a-0", "2", of="a", at=9)],
        ),
        BY,
        now=10,
    )
    assert found.evicted == ["v-large"]


def test_of_two_of_which_one_is_enough_who_matters_more_stays() -> None:
    """One after the other, for each pod of the gang: then it is seen that the second has made room for both."""
    found = run(
        world(
            [*CLASSES, queue(), node("n1", "4"), priority_class("lower", 0)],
            [group("v", priority_class_name="lower"), pod("v-0", "1", of="v", on="n1")],
            [group("w", priority_class_name="low"), pod("w-0", "3", of="w", on="n1")],
            [
                group("a", 2, at=9, priority_class_name="high"),
                pod("a-0", "1", of="a", at=9),
                pod("a-1", "2", of="a", at=9),
            ],
        ),
        BY,
        now=10,
    )
    assert found.evicted == ["w-0"]


def test_who_gave_just_enough_for_all_lets_the_other_stay() -> None:
    found = run(
        world(
            [*CLASSES, queue(), node("n1", "3"), priority_class("lower", 0)],
            [group("v", priority_class_name="lower"), pod("v-0", "1", of="v", on="n1")],
            [group("w", priority_class_name="low"), pod("w-0", "2", of="w", on="n1")],
            [group("a", 2, at=9, priority_class_name="high"), *members("a", 2, at=9)],
        ),
        BY,
        now=10,
    )
    assert found.evicted == ["w-0"]


def test_a_donors_last_unit_takes_it_below_its_share_by_what_the_receiver_gains() -> None:
    """Of two cores each deserves one; the donor holds both with one pod, and would lack one."""
    donor = pod("b-0", "2", queue="b", on="n1")
    found = run(world(queue("b"), queue("r"), node("n1", "2"), donor, pod("r-0", queue="r", at=1)), BY)
    assert found.evicted == ["b-0"]


def test_a_cap_above_the_share_lets_nobody_reclaim_more() -> None:
    """The first pod asks for more than the share, and for no more than the cap; the second does for the minimum."""
    found = run(
        world(
            [queue("q1", 2), queue("q2", capability={"cpu": "3"}), node("n1", "6"), group("a", queue="q1")],
            [pod(f"a-{at}", "3", of="a", on="n1") for at in range(2)],
            [group("b", queue="q2", at=1), pod("b-0", "3", of="b", at=1), pod("b-1", "2", of="b", at=2)],
        ),
        BY,
    )
    assert len(found.evicted) == 1
    assert found.nominated == {"b-1": "n1"}


def test_donors_together_lose_no_more_of_their_shares_than_the_receiver_gains() -> None:
    """Of eight cores the receiver deserves its three, each donor two and a half: by four each they would lack five."""
    found = run(
        world(
            [queue("b"), queue("c"), queue("r", 2)],
            [node(name, "4", labels={"name": name}) for name in ("n1", "n2")],
            [pod("b-0", "4", queue="b", on="n1"), pod("c-0", "4", queue="c", on="n2"), group("g", 2, queue="r")],
            [pod(f"g-{at}", "1500m", of="g", node_selector={"name": f"n{at}"}) for at in (1, 2)],
        ),
        BY,
    )
    assert found.evicted == []


def test_a_node_that_seemed_cheaper_than_it_is_gives_way() -> None:
    """On the first node the pod that matters least is too small, and the other matters more than that on the second."""
    found = run(
        world(
            [*CLASSES, priority_class("lower", 0), queue(), node("n1", "3"), node("n2", "2")],
            [group("u", priority_class_name="low"), pod("u-0", "2", of="u", on="n2")],
            [group("v", priority_class_name="lower"), pod("v-0", "1", of="v", on="n1")],
            [group("w", priority_class_name="mid"), pod("w-0", "2", of="w", on="n1")],
            [group("a", at=9, priority_class_name="high"), pod("a-0", "2", of="a", at=9)],
        ),
        BY,
        now=10,
    )
    assert found.evicted == ["u-0"]


def test_what_a_node_costs_for_a_large_pod_says_nothing_of_a_small_one() -> None:
    """On n2 the large pod would push aside what matters more, the small one what matters least."""
    found = run(
        world(
            [*CLASSES, priority_class("lower", 0), queue(), *(node(f"n{at}", "4") for at in (1, 2, 3))],
            [group("u", priority_class_name="lower"), *members("u", 4, on="n1", at=1)],
            [group("v", priority_class_name="lower"), pod("v-0", "1", of="v", on="n2", at=2)],
            [group("w", priority_class_name="mid"), pod("w-0", "3", of="w", on="n2")],
            [group("x", priority_class_name="low"), *members("x", 4, on="n3")],
            [group("a", 2, roles={"large": 1, "small": 1}, at=9, priority_class_name="high")],
            [pod("a-0", "4", of="a", at=9, role="large"), pod("a-1", "1", of="a", at=9, role="small")],
        ),
        BY,
        now=10,
    )
    assert found.evicted == [*(f"u-{at}" for at in range(4)), "v-0"]


def test_a_queue_at_its_cap_gives_up_what_the_new_pod_needs_and_no_more() -> None:
    found = run(
        world(
            [*CLASSES, queue(capability={"cpu": "2"}), node("n1", "4")],
            [group("v", priority_class_name="low"), *members("v", 2, on="n1")],
            [group("a", at=9, priority_class_name="high"), pod("a-0", of="a", at=9)],
        ),
        BY,
        now=10,
    )
    assert len(found.evicted) == 1


@pytest.mark.parametrize(("cpu", "may"), [("500m", False), ("1", True)])
def test_proportion_lets_no_donor_fall_further_below_its_share_than_the_preemptor_asks(cpu: str, may: bool) -> None:
    model = world(
        queue("b"), queue("r"), node("n1", "2"), pod("b-0", "2", queue="b", on="n1"), pod("r-0", cpu, queue="r")
    )
    session = session_of(model, BY)
    claim, held = model.tasks["ns/r-0"], model.tasks["ns/b-0"]
    request = claim.cls.request
    preemptor = Preemptor(session.job(claim.job), (claim,), request, lacks=frozenset({"cpu"}), held={})
    unit = Unit(session.job(held.job), (held,), whole=False, request=held.cls.request)
    assert session.plugins.voting.ask("reclaimable", preemptor, unit)[0] is may


@pytest.mark.parametrize("confirmed", [True, False])
def test_a_gang_gives_nothing_up_that_a_bind_under_way_would_have_to_make_good(confirmed: bool) -> None:
    third = pod("v-2", of="v", on="n1" if confirmed else "")
    model = world(
        [*CLASSES, queue(), node("n1", "3"), group("v", 2, priority_class_name="low")],
        [*members("v", 2, on="n1"), third, group("a", at=9, priority_class_name="high"), pod("a-0", of="a", at=9)],
    )
    model.assume("ns/v-2", "u-v-2", "n1")
    assert len(run(model, BY, now=10).evicted) == (1 if confirmed else 0)


@pytest.mark.parametrize(("pods", "may"), [(2, False), (3, True)])
def test_surplus_is_what_a_group_has_above_its_minimum(pods: int, may: bool) -> None:
    job = session_of(world(queue(), node("n1", "4"), group("v", 2), members("v", pods, on="n1")), BY).job("ns/v")
    task = job.job.tasks["ns/v-0"]
    assert surplus(Unit(job, (task,), whole=False, request=task.cls.request)) is may


def test_the_first_tier_that_consents_decides_how_willingly_a_unit_goes() -> None:
    class Consents(Plugin):
        def preemptable(self, preemptor: Preemptor, unit: Unit) -> Vote:
            return Vote.YES

    parts = [SimpleNamespace(tier=tier, enabled=lambda switch: True) for tier in range(2)]
    plugins = [Consents(NoArguments(), cast("Any", None)) for _ in parts]
    voting = Voting(cast("Any", SimpleNamespace(plugins=parts)), plugins)
    assert voting.ask("preemptable", cast("Any", None), cast("Any", None)) == (True, 0)
