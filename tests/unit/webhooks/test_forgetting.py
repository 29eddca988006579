"""The webhook keeps nothing of what is gone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kbatch.api.names import GROUP_NAME_ANNOTATION
from kbatch.api.objects import Pod, PodGroup, ResourceQuota
from kbatch.kube.informer import Batch
from kbatch.model.events import Delete, Upsert
from kbatch.model.promised import Sums
from kbatch.model.quota import Ask
from tests.unit.webhooks.build import cores, group, quota
from webhooks import pods
from webhooks.cluster_view import ClusterView


def _containers(view: ClusterView) -> dict[str, Any]:
    return {name: value for name, value in vars(view).items() if isinstance(value, dict | set) and value}


@pytest.mark.parametrize("last", [PodGroup, ResourceQuota])
def test_a_namespace_goes_with_its_groups_and_quotas(last: type[Any]) -> None:
    view, naming = ClusterView(), {GROUP_NAME_ANNOTATION: "g"}
    for number in range(20):
        space = f"space{number}"
        for obj in (
            quota("quota", namespace=space, requests_cpu="10"),
            group("g", "4", namespace=space, token=f"token{number}", enqueued=True, phase="InQueue", minMember=2),
            msgspec.convert({"metadata": {"name": "p", "namespace": space, "annotations": naming}}, Pod),
        ):
            view.receive(Batch((Upsert(obj),), complete=True))
        gone = [Delete(Pod, space, "p"), Delete(PodGroup, space, "g"), Delete(ResourceQuota, space, "quota")]
        for event in sorted(gone, key=lambda event: event.kind is last):
            view.receive(Batch((event,), complete=True))
    assert _containers(view) == {}


def test_what_was_seen_is_as_new_as_the_last_list_or_the_newest_group() -> None:
    view = ClusterView()
    view.receive(Batch((Upsert(group("a", "4", version=5)),), complete=True, listed=(PodGroup, "70")))
    assert view.version == 70
    view.receive(Batch((Upsert(group("b", "4", version=75)),), complete=True))
    view.receive(Batch((), complete=True, listed=(ResourceQuota, "90")))
    assert view.version == 75
    view.receive(Batch((Delete(PodGroup, "ns", "b"),), complete=True, listed=(PodGroup, "95")))
    assert view.version == 95


def test_groups_that_were_over_go_too() -> None:
    view = ClusterView()
    for event in (Upsert(group("g", "4", phase="Completed")), Upsert(group("g", "4", phase="Running"))):
        view.receive(Batch((event,), complete=True))
    assert view.lapsed.among("ns") == {"g": cores(4)}
    view.lapsed.held("ns", "g")
    view.receive(Batch((Delete(PodGroup, "ns", "g"),), complete=True))
    assert _containers(view) == {}
    assert not view.lapsed


def test_the_tokens_of_a_namespace_with_quotas_stay() -> None:
    view = ClusterView()
    for event in (Upsert(quota(requests_cpu="10")), Upsert(group("g", "4", token="t")), Delete(PodGroup, "ns", "g")):
        view.receive(Batch((event,), complete=True))
    assert view.groups["ns"].seen == {"t": 1}


def test_sums_name_only_what_is_left() -> None:
    sums = Sums()
    sums.add(cores(1))
    for number in range(20):
        one = Ask({"cpu": 1000, f"example.com/{number}": 1}, {f"example.com/{number}": 1}, 1)
        sums.add(one)
        sums.remove(one)
    assert (sums.total().requests, sums.total().limits) == ({"cpu": 1000}, {})


def test_bursts_of_quotas_that_are_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pods, "_MOST_BURSTS", 10)
    used = pods.Used()
    for number in range(200):
        used.let_through((quota(f"q{number}", requests_cpu="10"),), cores(1), number * 1.0)
    assert len(used._bursts) <= 10


def test_what_is_longer_than_a_token_is_not_remembered() -> None:
    view = ClusterView()
    for version, text in enumerate(["x" * 250_000, "abcdef012345", "fedcba543210,abcdef012345"], start=1):
        view.receive(Batch((Upsert(group("g", "4", version=version, token=text)),), complete=True))
    assert view.groups["ns"].seen == {"abcdef012345": 2, "fedcba543210": 3}
