"""The model's sums do not depend on the order of events, and follow every change."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch.api.objects import (
    AnyObject,
    Condition,
    Job,
    JobSpec,
    JobStatus,
    Metadata,
    OwnerReference,
    Pod,
    PodCondition,
    PodTemplate,
    SubGroup,
)
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Event, Unreadable, Upsert
from kbatch.model.image import build_model, take_image
from tests.examples import examples
from tests.unit.engine.worlds import group, node, pod, priority_class, queue

NAMES = st.sampled_from(["a", "b", "c"])
UPSERTS: list[AnyObject] = [
    node("n1"),
    node("n2", "8"),
    node("n1", "2", unschedulable=True),
    queue("q"),
    queue(),
    priority_class("low", 3),
]
DELETES: list[AnyObject] = [group("a"), group("b"), node("n1"), node("n2"), queue("q")]
ROLES = (
    SubGroup(name="r", min_member=1, template={"spec": {"containers": [{"resources": {"requests": {"cpu": "2"}}}]}}),
    SubGroup(name="s", min_member=1),
)
NODES = st.sampled_from(["", "n1", "n2", "n3"])
SAID: list[tuple[Condition, ...] | None] = [
    None,
    *(
        (Condition(type=type_, status=status, reason=reason, last_transition_time="2026-01-01T00:00:20Z"),)
        for type_, status, reason in (
            ("Enqueued", "False", "WaitingInQueue"), ("Enqueued", "False", "QuotaExceeded"), ("Enqueued", "True", ""),
            ("Scheduled", "True", ""), ("Completed", "True", ""),
        )
    ),
]  # fmt: skip


@st.composite
def events(draw: st.DrawFn) -> Event:
    kind = draw(st.integers(0, 11))
    name = draw(NAMES)
    if kind <= 4:
        return Upsert(_pod(draw, name))
    if kind == 5:
        return Upsert(copy.deepcopy(draw(st.sampled_from(UPSERTS))))
    if kind == 6:
        least = draw(st.integers(1, 3))
        found = group(name, least, queue=draw(st.sampled_from(["q", "default"])))
        five: dict[str, str | int | float] = {"cpu": "5"}
        found.metadata.uid = draw(st.sampled_from(["", "g1", "g2"]))
        found.spec.min_resources = draw(st.sampled_from([None, five]))
        found.spec.sub_groups = draw(st.sampled_from([None, ROLES]))
        found.status.conditions = draw(st.sampled_from(SAID))
        found.status.scheduling_attempts = draw(st.sampled_from([0, 0, 1]))
        return Upsert(found)
    if kind == 7:
        return Unreadable(Pod, "ns", name, f"u-{name}", draw(NODES), "broken")
    if kind >= 10:
        return Upsert(_job(draw, name)) if draw(st.integers(0, 3)) else Delete(Job, "ns", name)
    if draw(st.booleans()):
        return Delete(Pod, "ns", name)
    gone = draw(st.sampled_from(DELETES))
    return Delete(type(gone), gone.metadata.namespace, gone.metadata.name)


def _job(draw: st.DrawFn, name: str) -> Job:
    """A batch Job: held, let go, suspended by its user or ended; its pods name a group, or it has a queue."""
    of = draw(st.sampled_from(["", "a", "b"]))
    mark = draw(st.sampled_from([None, "true", "false"]))
    template = pod("t", str(draw(st.integers(0, 2))), of=of, scheduler=draw(st.sampled_from(["kube-batch", "other"])))
    over = draw(st.sampled_from([None, None, (PodCondition(type="Complete", status="True"),)]))
    return Job(
        metadata=Metadata(
            name=name, namespace="ns", uid=draw(st.sampled_from(["o-rs", f"j-{name}"])),
            labels=draw(st.sampled_from([None, {"kbatch.dev/queue": "q"}])),
            annotations={"kbatch.dev/suspended": mark} if mark is not None else None,
        ),
        spec=JobSpec(
            suspend=draw(st.booleans()), parallelism=draw(st.sampled_from([None, 1, 3])),
            completions=draw(st.sampled_from([None, 1, 4])),
            template=PodTemplate(metadata=template.metadata, spec=template.spec),
        ),
        status=JobStatus(succeeded=draw(st.integers(0, 2)), conditions=over),
    )  # fmt: skip


def _pod(draw: st.DrawFn, name: str) -> Pod:
    found = pod(
        name, str(draw(st.integers(0, 3))), of=draw(st.sampled_from(["", "a", "b"])), on=draw(NODES),
        scheduler=draw(st.sampled_from(["kube-batch", "kube-batch", "other"])), queue=draw(st.sampled_from(["", "q"])),
        owner=draw(st.sampled_from(["", "rs"])),
    )  # fmt: skip
    made = draw(st.sampled_from(["", "", "g1", "g2"]))
    if made:
        version = "scheduling.incubator.k8s.io/v1alpha1"
        owner = OwnerReference(api_version=version, kind="PodGroup", name="a", uid=made, controller=True)
        found.metadata.owner_references = (owner,)
    found.metadata.uid = draw(st.sampled_from([f"u-{name}", f"v-{name}"]))
    found.status.phase = draw(st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]))
    if draw(st.integers(0, 4)) == 0:
        found.metadata.deletion_timestamp = "2026-01-01T00:00:30Z"
    if not found.spec.node_name and draw(st.booleans()):
        found.status.nominated_node_name = "n1"
    found.status.start_time = draw(st.sampled_from([None, "2026-01-01T00:00:10Z"]))
    found.metadata.resource_version = str(draw(st.integers(1, 3)))
    return found


@settings(deadline=None, max_examples=examples(30))
@given(st.lists(events(), max_size=25), st.lists(st.tuples(st.integers(0, 3), NAMES), max_size=25))
def test_sums_follow_any_events(stream: list[Event], own: list[tuple[int, str]]) -> None:
    model = ClusterModel()
    for at, event in enumerate(stream):
        model.apply(event)
        if at < len(own):
            what, name = own[at]
            uid = f"u-{name}"
            if what == 0:
                model.assume(f"ns/{name}", uid, "n1")
            elif what == 1:
                model.forget(f"ns/{name}", uid)
            elif what == 2:
                model.evicting(f"ns/{name}", uid)
            else:
                model.not_evicting(f"ns/{name}", uid)
        model.validate()


@settings(deadline=None, max_examples=examples(30))
@given(st.lists(events(), max_size=25), st.lists(st.tuples(st.booleans(), NAMES), max_size=10))
def test_a_task_changed_in_place_is_as_one_read_anew(stream: list[Event], own: list[tuple[bool, str]]) -> None:
    model = ClusterModel()
    for at, event in enumerate(stream):
        model.apply(event)
        if at < len(own):
            evicts, name = own[at]
            if evicts:
                model.evicting(f"ns/{name}", f"u-{name}")
            else:
                model.assume(f"ns/{name}", f"u-{name}", "n1")
    assert _tasks(model) == _tasks(build_model(take_image(model)))


def _tasks(model: ClusterModel) -> Any:
    return {
        key: (
            {name: getattr(task, name) for name in task.__struct_fields__ if name != "cls"},
            task.cls.request,
        )
        for key, task in model.tasks.items()
    }


@settings(deadline=None, max_examples=examples(30))
@given(
    st.lists(events().filter(lambda event: isinstance(event, Upsert)), max_size=14), st.randoms(use_true_random=False)
)
def test_the_order_of_kinds_does_not_matter(stream: list[Any], mixer: Any) -> None:
    last: dict[tuple[type[AnyObject], str], Upsert] = {}
    for event in stream:
        meta: Metadata = event.obj.metadata
        last[type(event.obj), f"{meta.namespace}/{meta.name}"] = event
    unique = list(last.values())
    mixed = list(unique)
    mixer.shuffle(mixed)
    one, two = ClusterModel(), ClusterModel()
    for event in unique:
        one.apply(event)
    for event in mixed:
        two.apply(event)
    assert _facts(one) == _facts(two)


def _facts(model: ClusterModel) -> Any:
    jobs = {
        key: (job.created, job.minimum, job.queue, job.priority, job.request, job.allocated, job.holding)
        for key, job in model.jobs.items()
    }
    queues = {
        name: (record.allocated, record.request) for name, record in model.queues.items() if record.queue is not None
    }
    return jobs, queues, model.capacity, {name: column.tolist() for name, column in model.table.idle.items()}
