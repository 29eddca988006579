"""What the operator remembers, in whatever order it hears of it."""

from __future__ import annotations

import itertools
import logging

import pytest

from kbatch.api.names import IN_QUEUE_GATE
from kbatch.api.objects import Job, Pod, PodCondition, PodGroup, SchedulingGate
from kbatch.model.events import Delete, Unreadable, Upsert
from operators.podgroup.member_index import MemberIndex, Stage
from tests.unit.podgroup.build import group, index, job, pod


def test_every_event_names_the_groups_it_touches() -> None:
    seen = MemberIndex()
    assert seen.apply(Upsert(group())) == {"ns/pg"}
    assert seen.apply(Upsert(pod("a"))) == {"ns/pg"}
    assert seen.apply(Upsert(pod("b", named=""))) == set()
    assert seen.apply(Upsert(pod("a", named="other"))) == {"ns/pg", "ns/other"}
    assert seen.apply(Delete(Pod, "ns", "a")) == {"ns/other"}
    assert seen.apply(Delete(Pod, "ns", "unknown")) == set()
    assert seen.apply(Upsert(job())) == {"ns/pg"}
    assert seen.apply(Upsert(job(named=""))) == {"ns/pg"}
    assert seen.apply(Delete(Job, "ns", "job")) == set()
    assert seen.apply(Delete(PodGroup, "ns", "pg")) == {"ns/pg"}


def test_what_changes_nothing_that_is_kept_touches_no_group() -> None:
    seen = index(group(), pod("a"))
    again = pod("a")
    again.status.conditions = (PodCondition(type="Initialized", status="True"),)
    assert seen.put_pod(again) == (set(), True)
    assert seen.put_pod(pod("a", node="n")) == ({"ns/pg"}, True)


def test_a_pod_is_ordinary_while_its_group_has_nothing_to_do_about_it() -> None:
    seen = index(group())
    for ordinary in (pod("a"), pod("a", node="n"), pod("a", "Running", node="n")):
        assert seen.put_pod(ordinary) == ({"ns/pg"}, True)
    for odd in (
        pod("a", "Failed", node="n"),
        pod("a", "Running", node="n"),  # after it had failed
        pod("a", "Running", node="n", leaving=True),
        gated("a"),
        pod("a"),  # its gate is gone
        pod("a", named=""),
    ):
        assert seen.put_pod(odd) == ({"ns/pg"}, False), odd


def gated(name: str) -> Pod:
    of = pod(name)
    of.spec.scheduling_gates = (SchedulingGate(name=IN_QUEUE_GATE),)
    return of


def test_an_owner_touches_the_groups_it_owns() -> None:
    seen = index(group(owner="j"))
    assert seen.apply(Upsert(job("j", named=""))) == {"ns/pg"}
    seen.drop_group("ns/pg")
    assert seen.apply(Upsert(job("j", named=""))) == set()


def test_the_order_of_events_does_not_matter() -> None:
    things: tuple[PodGroup | Pod | Job, ...] = (group(), pod("a", node="n"), pod("b"), job())
    pictures = set()
    for order in itertools.permutations(things):
        seen = index(*order)
        members = sorted((member.stage.name, member.role) for member in seen.members("ns/pg"))
        pictures.add((tuple(members), tuple(maker.uid for maker in seen.makers("ns/pg")), tuple(seen.groups)))
    assert len(pictures) == 1


def test_nothing_is_left_of_what_is_gone() -> None:
    seen = index(group(owner="j"), pod("a"), job("j"))
    for event in (Delete(Pod, "ns", "a"), Delete(Job, "ns", "job"), Delete(PodGroup, "ns", "pg")):
        seen.apply(event)
    assert all(not kept for name, kept in vars(seen).items() if name != "scheduler_name")


def test_a_pod_that_can_no_longer_be_read_is_no_member() -> None:
    seen = index(pod("a"))
    assert seen.apply(Unreadable(Pod, "ns", "a", "uid-a", "", "bad")) == {"ns/pg"}
    assert not list(seen.members("ns/pg"))


def test_a_request_that_cannot_be_counted_hides_no_pod(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        seen = index(pod("a", node="n", cpu="lots"))
    (member,) = seen.members("ns/pg")
    assert (member.stage, member.request) == (Stage.BOUND, {})
    assert "ns/a" in caplog.text


# --- versions ---------------------------------------------------------------------------------------------------------


def test_an_older_version_of_a_group_does_not_undo_a_newer_one() -> None:
    seen = index(group(3, version="20"))
    assert seen.apply(Upsert(group(2, version="19"))) == set()
    assert seen.groups["ns/pg"].spec.min_member == 3
    assert seen.apply(Upsert(group(4, version="100"))) == {"ns/pg"}


def test_a_group_made_anew_is_not_dropped_with_the_old_one() -> None:
    seen = index(group(uid="new"))
    assert seen.drop_group("ns/pg", "old") == set()
    assert seen.drop_group("ns/pg", "new") == {"ns/pg"}
