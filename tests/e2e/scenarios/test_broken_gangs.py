"""Gangs that lose members on the real control plane: a node goes with what stands there, or the pods on it fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.scenarios.life import role, roles, watched

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.scenarios.conftest import Installed

pytestmark = pytest.mark.installed

SIZE = 16
NODES = 17


@pytest.fixture
def nodes(kbatch: Installed) -> Iterator[list[str]]:
    """One node for each pod of a gang, and one more. Those that a test deletes are made again."""
    kbatch.ensure_nodes(NODES)
    yield [one["metadata"]["name"] for one in kbatch.items("nodes")]
    kbatch.clean()
    kbatch.ensure_nodes(NODES)


def members(kbatch: Installed, name: str) -> dict[str, dict[str, Any]]:
    """The group's pods that stand on nodes and are not on their way out, by uid."""
    return {
        one["metadata"]["uid"]: one
        for one in kbatch.items("pods")
        if one["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == name
        and one["spec"].get("nodeName")
        and one["status"]["phase"] == "Running"
        and "deletionTimestamp" not in one["metadata"]
    }


def started(kbatch: Installed, **spec: Any) -> dict[str, dict[str, Any]]:
    """A gang of 16, one pod to a node, that runs; the operator makes again what is lost."""
    kbatch.apply(roles("ranks", role("rank", SIZE, "20"), **spec))
    kbatch.wait("all run", lambda: len(members(kbatch, "ranks")) == SIZE, 60)
    kbatch.wait_phase("ranks", "Running")
    found = members(kbatch, "ranks")
    assert len({one["spec"]["nodeName"] for one in found.values()}) == SIZE
    return found


def delete_a_node(kbatch: Installed, pods: dict[str, dict[str, Any]]) -> tuple[str, str]:
    """A node of the gang is gone for good, and its pod with it, as the garbage collector would do in a minute: the uid
    of the pod, and the name of the node.
    """
    uid, lost = next(iter(pods.items()))
    node = lost["spec"]["nodeName"]
    kbatch.run("delete", "node", node, "--wait=false")
    kbatch.run("delete", "pod", lost["metadata"]["name"], "--wait=false", "--grace-period=0", "--force", check=False)
    return uid, node


def events(kbatch: Installed, name: str) -> set[str]:
    return {
        one["reason"]
        for one in kbatch.items("events.events.k8s.io")
        if one["regarding"]["kind"] == "PodGroup" and one["regarding"]["name"] == name
    }


def test_with_0_the_others_go_at_once_and_the_gang_starts_again_elsewhere(kbatch: Installed, nodes: list[str]) -> None:
    before = started(kbatch, minimumLostSeconds=0)
    with watched(kbatch) as history:
        _, gone = delete_a_node(kbatch, before)
        kbatch.wait("none of them is left", lambda: not before.keys() & members(kbatch, "ranks").keys(), 20)
        kbatch.wait("it is sent back", lambda: "Pending" in history.phases("ranks"), 20)
        kbatch.wait("all run again", lambda: len(members(kbatch, "ranks")) == SIZE, 60)
        kbatch.wait_phase("ranks", "Running")
        again = ["Pending", "InQueue", "Running"]
        kbatch.wait("it has started again", lambda: history.phases("ranks")[-3:] == again)
    after = members(kbatch, "ranks")
    assert not before.keys() & after.keys()
    assert gone not in {one["spec"]["nodeName"] for one in after.values()}
    kbatch.wait("it is told", lambda: {"Evicted", "SentBack"} <= events(kbatch, "ranks"))
    evictions = kbatch.metric("scheduler", 'kbatch_scheduler_evictions_total{action="minimumLost",result="ok"}')
    assert evictions >= SIZE - 1
    kbatch.wait_condition("ranks", "Scheduled", "True")
    kbatch.wait(
        "whole again, it begins anew",
        lambda: kbatch.get("podgroup", "ranks")["status"].get("schedulingAttempts", 0) == 0,
    )


def test_without_it_there_is_one_replacement_and_the_others_are_never_touched(
    kbatch: Installed, nodes: list[str]
) -> None:
    before = started(kbatch)
    uid, gone = delete_a_node(kbatch, before)
    kbatch.wait("one replaces it", lambda: len(members(kbatch, "ranks").keys() - before.keys()) == 1, 60)
    kbatch.wait_phase("ranks", "Running")
    kbatch.wait_condition("ranks", "Scheduled", "True")
    after = members(kbatch, "ranks")
    assert before.keys() - after.keys() == {uid}, "the fifteen are the same pods"
    (new,) = after.keys() - before.keys()
    assert after[new]["spec"]["nodeName"] in set(nodes) - {gone}
    assert all(after[one]["spec"]["nodeName"] == before[one]["spec"]["nodeName"] for one in before.keys() - {uid})
    kbatch.wait_condition("ranks", "Enqueued", "True", "Admitted")


def test_a_node_on_which_members_fail_is_avoided(kbatch: Installed, nodes: list[str]) -> None:
    """With badNodeLimit 1: the member that is made again for the first that failed comes elsewhere."""
    kbatch.apply(roles("frail", role("w", 1, "1"), badNodeLimit=1))
    kbatch.wait("it runs", lambda: len(members(kbatch, "frail")) == 1)
    ((uid, first),) = members(kbatch, "frail").items()
    bad = first["spec"]["nodeName"]
    kbatch.run("patch", "pod", "frail-w-0", "--subresource=status", "-p", '{"status":{"phase":"Failed"}}')
    failures = [{"node": bad, "pods": [uid]}]
    kbatch.wait("it is written down", lambda: kbatch.get("podgroup", "frail")["status"].get("nodeFailures") == failures)
    kbatch.wait("it is told", lambda: "NodeAvoided" in events(kbatch, "frail"))
    kbatch.wait("another runs", lambda: bool(members(kbatch, "frail").keys() - {uid}), 40)
    (second,) = members(kbatch, "frail").values()
    assert second["spec"]["nodeName"] != bad
    assert kbatch.get("podgroup", "frail")["status"]["nodeFailures"] == failures, "though its object is gone"
