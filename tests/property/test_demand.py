"""What a group asks for does not depend on how its work was submitted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kbatch.api.configuration import DEFAULT
from kbatch.api.objects import (
    Condition,
    Container,
    Job,
    JobSpec,
    Metadata,
    OwnerReference,
    Pod,
    PodGroup,
    PodTemplate,
    ResourceQuota,
    ResourceQuotaSpec,
    ResourceRequirements,
    SubGroup,
)
from kbatch.api.reasons import NotEnoughResources
from kbatch.engine import build_policy
from kbatch.model.demand import quota_ask
from kbatch.model.events import Upsert
from kbatch.model.least import Offer, least_of
from kbatch.model.quota import charge, usage
from kbatch.resources import add, positive
from tests.examples import examples
from tests.unit.engine.worlds import group, members, node, pod, queue, run, stamp, world

POLICY = build_policy(DEFAULT)
CPU = 1000


@dataclass(frozen=True)
class Work:
    """So many pods of one role that must run together, each of so many CPU; `submitted`: how many in which way."""

    role: str
    cpu: int
    submitted: tuple[tuple[str, int], ...]

    @property
    def count(self) -> int:
        return sum(count for _, count in self.submitted)


def template(work: Work) -> PodTemplate:
    made = pod("t", str(work.cpu), of="g", role=work.role)
    cpu: dict[str, str | int | float] = {"cpu": str(work.cpu)}
    made.spec.containers = (Container(resources=ResourceRequirements(requests=cpu, limits=cpu)),)
    return PodTemplate(metadata=made.metadata, spec=made.spec)


def objects(works: list[Work], promised: dict[str, str] | None) -> list[Any]:
    """The group, its pods and its Jobs; a released Job has some of its pods already."""
    found: list[Any] = []
    roles = []
    for work in works:
        made = template(work)
        templated = False
        for number, (way, count) in enumerate(work.submitted):
            name = f"{work.role}{number}"
            owner = OwnerReference(kind="Job", name=name, uid=f"j-{name}", controller=True)
            if way == "role":
                templated = True  # it makes what the others leave
            elif way == "pods":
                found += [_pod(made, f"{name}-{index}", ()) for index in range(count)]
            else:
                here = count // 2 if way == "released" else 0
                found += [_pod(made, f"{name}-{index}", (owner,)) for index in range(here)]
                found.append(
                    Job(
                        metadata=Metadata(
                            name=name, namespace="ns", uid=f"j-{name}",
                            annotations={"kbatch.dev/suspended": "false" if way == "released" else "true"},
                        ),
                        spec=JobSpec(suspend=way == "held", parallelism=count, completions=count, template=made),
                    )
                )  # fmt: skip
        raw = {
            "spec": {
                "containers": [{"resources": {"requests": {"cpu": str(work.cpu)}, "limits": {"cpu": str(work.cpu)}}}]
            }
        }
        roles.append(SubGroup(name=work.role, min_member=work.count, template=raw if templated else None))
    whole = group("g", sum(work.count for work in works), min_resources=promised)
    whole.spec.sub_groups = tuple(roles)
    return [queue(), whole, *found]


def _pod(made: PodTemplate, name: str, owners: tuple[OwnerReference, ...]) -> Pod:
    meta = made.metadata
    return Pod(
        metadata=Metadata(
            name=name, namespace="ns", uid=f"u-{name}", labels=meta.labels, annotations=meta.annotations,
            owner_references=owners,
        ),
        spec=made.spec,
    )  # fmt: skip


@st.composite
def submissions(draw: st.DrawFn) -> list[Work]:
    works = []
    for role in draw(st.sampled_from([["a"], ["a", "b"]])):
        # A template makes what is missing of its role, so at most one other way stands beside it, of pods that exist.
        if draw(st.booleans()):
            ways: tuple[tuple[str, int], ...] = (("pods", draw(st.integers(0, 2))), ("role", draw(st.integers(1, 3))))
        else:
            kinds = st.tuples(st.sampled_from(["pods", "held", "released"]), st.integers(1, 4))
            ways = tuple(draw(st.lists(kinds, min_size=1, max_size=3)))
        works.append(Work(role, draw(st.integers(1, 3)), ways))
    return works


def needs(works: list[Work]) -> int:
    return sum(work.cpu * work.count for work in works)


@settings(deadline=None, max_examples=examples(30))
@given(submissions(), st.booleans(), st.integers(1, 40))
def test_however_work_is_submitted_it_asks_for_the_same(works: list[Work], promises: bool, cpu: int) -> None:
    least = {"cpu": str(needs(works))} if promises else None
    model = world(*objects(works, least), node("n1", str(cpu)))
    model.validate()
    job = model.jobs["ns/g"]
    asked = {"cpu": needs(works) * CPU}
    assert model.queues["default"].request == asked
    assert model.deserved()["default"] == {"cpu": min(cpu, needs(works)) * CPU}
    found = model.demand(job)
    assert (found.minimum, found.room, found.short) == (asked, asked, 0)
    assert found.missing == sum(work.count for work in works)
    assert found.uncreated == found.missing - len(job.tasks)


@settings(deadline=None, max_examples=examples(30))
@given(submissions(), st.sets(st.sampled_from(["cpu", "requests.cpu", "limits.cpu", "pods"])))
def test_quotas_count_each_pod_once(works: list[Work], named: set[str]) -> None:
    """What the pods that exist use of a quota, and what is asked beside them, is the whole minimum."""
    pods = sum(work.count for work in works)
    amounts = {"cpu": needs(works), "requests.cpu": needs(works), "limits.cpu": needs(works), "pods": pods}
    promised = {name: str(amounts[name]) for name in sorted(named)} or None
    model = world(*objects(works, promised), node("n1"))
    job = model.jobs["ns/g"]
    hard = {"requests.cpu": "1k", "limits.cpu": "1k", "pods": "1k"}
    quota = ResourceQuota(metadata=Metadata(name="q", namespace="ns"), spec=ResourceQuotaSpec(hard=dict(hard)))
    used = usage(quota, [task.pod for task in job.tasks.values()])
    assert add(used, charge(quota, quota_ask(job))) == {
        "requests.cpu": needs(works) * CPU, "limits.cpu": needs(works) * CPU, "pods": pods,
    }  # fmt: skip


TWO_ROLES = [Work("a", 1, (("pods", 2),)), Work("b", 1, (("pods", 0), ("role", 1)))]
HARD_AND_EASY = [Work("a", 1, (("held", 3),)), Work("b", 3, (("pods", 2),))]


@settings(deadline=None, max_examples=examples(25))
@given(submissions(), st.lists(st.integers(1, 6), min_size=1, max_size=3), st.booleans())
@example(TWO_ROLES, [2], False)
@example(HARD_AND_EASY, [4, 2], False)
def test_pods_that_do_not_exist_are_counted_like_those_that_do(
    works: list[Work], cpus: list[int], promises: bool
) -> None:
    nodes = [node(f"n{index}", str(cpu)) for index, cpu in enumerate(cpus)]
    least = {"cpu": str(needs(works))} if promises else None
    plain = [Work(work.role, work.cpu, (("pods", work.count),)) for work in works]
    one = run(world(*objects(works, least), *nodes), POLICY).verdicts["ns/g"]
    other = run(world(*objects(plain, least), *nodes), POLICY).verdicts["ns/g"]
    assert one.enqueued == other.enqueued
    if not other.enqueued:
        assert isinstance(other.reason, NotEnoughResources)
        assert one.reason == other.reason


@settings(deadline=None, max_examples=examples(25))
@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 1200), st.integers(0, 3))
def test_a_group_without_pods_keeps_nobody_from_coming_in(cpu: int, least: int, late: int, pods: int) -> None:
    """With and without a group in queue whose pods never come; of which some may exist."""

    def decide(*ghost: PodGroup) -> bool | None:
        model = world(
            queue(), node("n1", str(cpu)), pod("busy", "1", on="n1"), group("g", least, at=late),
            members("g", least, at=late), *ghost, members("ghost", pods, cpu="0") if ghost else [],
        )  # fmt: skip
        return run(model, POLICY, now=1300).verdicts["ns/g"].enqueued

    ghost = group("ghost", 4, min_resources={"memory": "1Mi"}, schedule_timeout_seconds=100_000)
    ghost.status.conditions = (Condition(type="Enqueued", status="True", last_transition_time=stamp(0)),)
    assert decide(ghost) == decide()


@st.composite
def offers(draw: st.DrawFn) -> tuple[dict[str, list[Offer]], dict[str, int], int, dict[str, int]]:
    """A few pods of up to two roles, how many of each must be taken, how many besides, and the most of each besides."""
    request = st.fixed_dictionaries({}, optional={"cpu": st.integers(0, 4), "gpu": st.integers(1, 2)})
    alike = st.lists(st.tuples(request, st.integers(1, 2)), min_size=1, max_size=2)
    pods: dict[str, list[Offer]] = draw(st.dictionaries(st.sampled_from(["", "a"]), alike, min_size=1))
    own = {role: draw(st.integers(0, sum(count for _, count in some))) for role, some in pods.items()}
    more = draw(st.dictionaries(st.sampled_from(["", "a"]), st.integers(0, 2)))
    return pods, own, draw(st.integers(0, 3)), more


@settings(deadline=None, max_examples=examples(40))
@given(offers())
def test_the_least_is_what_the_smallest_choice_asks_for_in_each_dimension(
    drawn: tuple[dict[str, list[Offer]], dict[str, int], int, dict[str, int]],
) -> None:
    pods, own, rest, more = drawn
    each = [(role, request) for role, some in pods.items() for request, count in some for _ in range(count)]
    sums = []
    for choice in combinations(each, sum(own.values()) + rest):
        taken = Counter(role for role, _ in choice)
        if all(0 <= taken[role] - own[role] <= more.get(role, len(each)) for role in pods):
            sums.append(add(*(request for _, request in choice)))
    assume(sums)
    smallest = {name: min(found.get(name, 0) for found in sums) for name in ("cpu", "gpu")}
    assert least_of(pods, own, rest, more) == positive(smallest)


MEMBERS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from("ab"), st.booleans()), min_size=2, max_size=6
)
"""CPU, GiB of memory and role of each pod; whether it is yet to be made."""


@settings(deadline=None, max_examples=examples(40))
@given(MEMBERS, st.integers(1, 4), st.integers(0, 2), st.integers(1, 8), st.integers(1, 8))
@example([(3, 0, "a", False), (1, 0, "a", False), (1, 0, "a", False), (1, 0, "a", False)], 3, 0, 4, 8)
def test_no_group_is_kept_out_of_which_some_choice_of_pods_fits(
    drawn: list[tuple[int, int, str, bool]], least: int, of_a: int, cpu: int, hard: int
) -> None:
    whole = group("g", least, roles={"a": of_a, "b": 0})
    model = world(queue(capability={"cpu": str(hard)}), node("n1", str(cpu), "6Gi"), whole)
    for number, (cores, memory, role, to_come) in enumerate(drawn):
        made = pod(f"g-{number}", str(cores), of="g", role=role, memory=f"{memory}Gi" if memory else "")
        if to_come:
            held = PodTemplate(metadata=made.metadata, spec=made.spec)
            marks = {"kbatch.dev/suspended": "true"}
            meta = Metadata(name=f"j-{number}", namespace="ns", uid=f"j-{number}", annotations=marks)
            model.apply(Upsert(Job(metadata=meta, spec=JobSpec(suspend=True, parallelism=1, template=held))))
        else:
            model.apply(Upsert(made))
    fits = any(
        sum(cores for cores, *_ in choice) <= min(cpu, hard)
        and sum(memory for _, memory, *_ in choice) <= 6
        and sum(role == "a" for _, _, role, _ in choice) >= of_a
        for choice in combinations(drawn, max(least, of_a))
    )
    assert run(model, POLICY).verdicts["ns/g"].enqueued or not fits


@settings(deadline=None, max_examples=examples(40))
@given(MEMBERS, st.integers(1, 4), st.integers(0, 2), st.integers(0, 2), st.none() | st.integers(2, 3))
@example([(1, 0, "a", True)] * 3 + [(3, 0, "b", True)] * 3, 3, 1, 0, 1)
@example([(3, 0, "a", False)] * 3 + [(1, 0, "b", False)] * 3, 3, 1, 0, 1)
def test_what_is_reserved_is_what_pods_ask_for_that_may_be_placed_together(
    drawn: list[tuple[int, int, str, bool]], least: int, of_a: int, of_b: int, most_of_a: int | None
) -> None:
    """No pod counts that maxMember of its role keeps out; where too few are left, nothing is reserved."""
    whole = group("g", least)
    whole.spec.sub_groups = (
        SubGroup(name="a", min_member=of_a, max_member=most_of_a), SubGroup(name="b", min_member=of_b)
    )  # fmt: skip
    model = world(queue(), node("n1"), whole)
    for number, (cores, memory, role, to_come) in enumerate(drawn):
        made = pod(f"g-{number}", str(cores), of="g", role=role, memory=f"{memory}Gi" if memory else "")
        if to_come:
            held = PodTemplate(metadata=made.metadata, spec=made.spec)
            meta = Metadata(
                name=f"j-{number}", namespace="ns", uid=f"j-{number}", annotations={"kbatch.dev/suspended": "true"}
            )
            model.apply(Upsert(Job(metadata=meta, spec=JobSpec(suspend=True, parallelism=1, template=held))))
        else:
            model.apply(Upsert(made))
    found = model.demand(model.jobs["ns/g"])
    sums = []
    for choice in combinations(drawn, max(least, of_a + of_b)):
        roles = Counter(role for _, _, role, _ in choice)
        if roles["a"] >= of_a and roles["b"] >= of_b and roles["a"] <= (len(drawn) if most_of_a is None else most_of_a):
            asked = [{"cpu": cores * CPU, "memory": memory << 30} for cores, memory, *_ in choice]
            sums.append(positive(add(*asked)))
    assert (found.short > 0) == (not sums)
    assert found.room is None if found.short else positive(found.room or {}) in sums


def test_a_role_that_has_pods_on_nodes_may_have_fewer_more() -> None:
    """Of role a one pod runs, of two at the most: the third of the minimum is one of the large ones."""
    whole = group("g", 4)
    whole.spec.sub_groups = (SubGroup(name="a", min_member=1, max_member=2), SubGroup(name="b", min_member=0))
    of_a = [pod(f"a-{number}", "1", of="g", role="a", on="n1" if not number else "") for number in range(3)]
    of_b = [pod(f"b-{number}", "3", of="g", role="b") for number in range(3)]
    model = world(queue(), node("n1"), whole, of_a, of_b)
    assert model.demand(model.jobs["ns/g"]).room == {"cpu": (1 + 3 + 3) * CPU}


def test_a_group_that_was_sent_back_asks_for_its_pods_alone() -> None:
    """Its place was kept for pods that did not come: until it is let in again that raises no share."""
    whole = group("g", 4, min_resources={"cpu": "4"})
    model = world(queue(), node("n1"), whole, pod("g-0", "1", of="g"))
    assert model.queues["default"].request == {"cpu": 4 * CPU}
    back = Condition(type="Enqueued", status="False", reason="SentBack", last_transition_time=stamp(0))
    model.apply(Upsert(replace(whole, status=replace(whole.status, conditions=(back,), scheduling_attempts=1))))
    assert model.jobs["ns/g"].sent_back
    assert model.queues["default"].request == {"cpu": CPU}
