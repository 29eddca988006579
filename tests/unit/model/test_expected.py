"""When pods are expected to end, and how long they would run."""

import pytest

from kbatch.api.objects import Job, JobSpec, JobStatus, Metadata, OwnerReference, Pod
from kbatch.model.annotations import seconds_of
from kbatch.model.expected import Expected, end_after
from kbatch.times import SECOND
from tests.unit.engine.worlds import EPOCH, group, node, pod, stamp, world

EXPECTED = "kbatch.dev/expected-seconds"


def saying(found: Pod, seconds: str) -> Pod:
    found.metadata.annotations = {**(found.metadata.annotations or {}), EXPECTED: seconds}
    return found


def of_job(found: Pod, name: str) -> Pod:
    found.metadata.owner_references = (OwnerReference(kind="Job", name=name, uid=f"j-{name}", controller=True),)
    return found


def job(name: str, *, says: str = "", deadline: int | None = None, since: int | None = None) -> Job:
    return Job(
        metadata=Metadata(name=name, namespace="ns", uid=f"j-{name}", annotations={EXPECTED: says} if says else None),
        spec=JobSpec(active_deadline_seconds=deadline),
        status=JobStatus(start_time=stamp(since) if since is not None else None),
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("60", 60 * SECOND), ("0.5", 500_000), ("1.000001", 1_000_001), ("0", None), ("0.0", None), ("-1", None),
        ("", None), ("1e3", None), ("1.0000001", None), ("1234567890", None), ("10 ", None), ("٣", None),
    ],
)  # fmt: skip
def test_seconds_are_read_to_the_microsecond(text: str, found: int | None) -> None:
    assert seconds_of(text) == found


def test_who_runs_past_its_end_is_expected_a_tenth_later() -> None:
    assert end_after(100, 50, 100) == 150
    assert end_after(100, 50, 149) == 150
    assert end_after(100, 50, 150) == 155
    assert end_after(100, 50, 154) == 155
    assert end_after(100, 50, 155) == 160
    assert end_after(100, 50, 1_000) == 1_005
    assert end_after(0, 3, 3) == 4  # 3.3, rounded up
    for now in range(100, 400):
        assert end_after(100, 7, now) > now


def end_of(name: str, now: int, *objects: object) -> int | None:
    model = world(node("n1", "64"), *objects)
    found = Expected(model, EPOCH + now * SECOND).end(model.tasks[f"ns/{name}"])
    return None if found is None else (found - EPOCH) // SECOND


def length_of(name: str, now: int, *objects: object) -> int | None:
    model = world(node("n1", "64"), *objects)
    found = Expected(model, EPOCH + now * SECOND).length(model.tasks[f"ns/{name}"])
    return None if found is None else found // SECOND


def test_nobody_says_anything() -> None:
    assert end_of("a", 5, pod("a", on="n1")) is None
    assert length_of("a", 5, pod("a")) is None


def test_the_pods_deadline() -> None:
    assert end_of("a", 5, pod("a", on="n1", at=2, active_deadline_seconds=30)) == 32
    assert length_of("a", 5, pod("a", active_deadline_seconds=30)) == 30


def test_the_pods_own_word_comes_before_its_jobs_and_its_groups() -> None:
    annotated = group("g")
    annotated.metadata.annotations = {EXPECTED: "300"}
    member = of_job(pod("a", of="g", on="n1"), "j")
    assert end_of("a", 5, annotated, member) == 300
    assert end_of("a", 5, annotated, member, job("j", says="200")) == 200
    assert end_of("a", 5, annotated, saying(member, "100"), job("j", says="200")) == 100


def test_what_cannot_be_read_says_nothing() -> None:
    annotated = group("g")
    annotated.metadata.annotations = {EXPECTED: "300"}
    assert end_of("a", 5, annotated, saying(pod("a", of="g", on="n1"), "soon")) == 300


def test_a_jobs_deadline_counts_from_when_the_job_began() -> None:
    member = of_job(pod("a", on="n1", at=50), "j")
    assert end_of("a", 60, member, job("j", deadline=100, since=10)) == 110
    assert end_of("a", 60, member, job("j", deadline=100)) == 150
    assert length_of("b", 60, of_job(pod("b"), "j"), job("j", deadline=100, since=10)) == 50
    assert length_of("b", 60, of_job(pod("b"), "j"), job("j", deadline=100)) == 100


def test_a_job_of_another_uid_is_not_the_pods() -> None:
    other = job("j", deadline=100)
    other.metadata.uid = "another"
    assert end_of("a", 5, of_job(pod("a", on="n1"), "j"), other) is None


def test_the_first_of_several_ends_counts() -> None:
    assert end_of("a", 5, saying(pod("a", on="n1", active_deadline_seconds=30), "20")) == 20
    assert end_of("a", 25, saying(pod("a", on="n1", active_deadline_seconds=30), "20")) == 26
    assert end_of("a", 29, saying(pod("a", on="n1", active_deadline_seconds=30), "20")) == 30


def test_the_time_of_a_bind_under_way_begins_now() -> None:
    model = world(node("n1"), saying(pod("a", at=1), "20"))
    model.assume("ns/a", "u-a", "n1")
    assert Expected(model, EPOCH + 50 * SECOND).end(model.tasks["ns/a"]) == EPOCH + 70 * SECOND
