"""What the auditor says of pods on nodes that are not theirs, and of caps: made-up misdeeds, and what is right."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.auditor.test_rules import Story

TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "zone"}
        ]
    }
}


def term(operator: str, *values: str, key: str = "zone") -> dict[str, Any]:
    expression = {"key": key, "operator": operator, "values": list(values)}
    terms = [{"matchExpressions": [expression]}]
    return {"affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
    }}}  # fmt: skip


def bound(story: Story, name: str = "p", node: str = "n1", **extra: Any) -> list[str]:
    """Make a pod, bind it; the rules that this broke."""
    before = len(story.rules)
    story.pod(name, **extra)
    story.pod(name, node=node, **extra)
    return story.rules[before:]


@pytest.mark.parametrize(
    ("asks", "welcome"),
    [
        ({"nodeSelector": {"zone": "a"}}, True),
        ({"nodeSelector": {"zone": "b"}}, False),
        (term("In", "a", "b"), True),
        (term("In", "b"), False),
        (term("NotIn", "a"), False),
        (term("NotIn", "b"), True),
        (term("Exists"), True),
        (term("Exists", key="disk"), False),
        (term("DoesNotExist"), False),
        (term("Gt", "3", key="rank"), True),
        (term("Gt", "4", key="rank"), False),
        (term("Lt", "5", key="rank"), True),
        (term("Lt", "x", key="rank"), False),
    ],
)
def test_a_pod_stands_where_it_asks_to(asks: dict[str, Any], welcome: bool) -> None:
    story = Story()
    story.node("n1", labels={"zone": "a", "rank": "4"})
    story.wait(2)
    assert bound(story, **asks) == ([] if welcome else ["unwelcome"])


@pytest.mark.parametrize(
    ("toleration", "welcome"),
    [
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "gpu", "value": "yes"}, True),
        ({"key": "gpu", "value": "no"}, False),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "cpu", "operator": "Exists"}, False),
    ],
)
def test_a_pod_tolerates_its_node(toleration: dict[str, str], welcome: bool) -> None:
    story = Story()
    story.node("n1", taints=(TAINT,))
    story.wait(2)
    assert bound(story, tolerations=[toleration]) == ([] if welcome else ["unwelcome"])


def test_a_taint_that_came_a_moment_ago_cannot_be_known() -> None:
    story = Story()
    story.wait(5)
    story.node("n1", taints=(TAINT,), change="MODIFIED")
    assert bound(story, "p") == []
    story.wait(2)
    assert bound(story, "q") == ["unwelcome"]


def test_a_host_has_each_port_once() -> None:
    def port(number: int) -> dict[str, Any]:
        return {"containers": [{"ports": [{"containerPort": 80, "hostPort": number}]}]}

    story = Story()
    assert bound(story, "p", **port(8080)) == []
    assert bound(story, "q", **port(8081)) == []
    assert bound(story, "r", node="n2", **port(8080)) == []
    assert bound(story, "s", **port(8080)) == ["unwelcome"]


def test_pods_that_keep_apart_do() -> None:
    story = Story()
    story.node("n1", labels={"zone": "a"})
    story.node("n2", labels={"zone": "a"})
    story.node("n3", labels={"zone": "b"})
    story.wait(2)
    assert bound(story, "p", affinity=APART) == []
    assert bound(story, "q", node="n2", labels={"app": "y"}) == []
    assert bound(story, "r", node="n3", labels={"app": "x"}) == []
    # Also the other way round: who stands there keeps them away.
    assert bound(story, "s", node="n2", labels={"app": "x"}) == ["unwelcome"]


def test_pods_that_keep_together_do() -> None:
    together = {"podAffinity": APART["podAntiAffinity"]}
    story = Story()
    for name, zone in (("n1", "a"), ("n2", "a"), ("n3", "b"), ("n4", "")):
        story.node(name, labels={"zone": zone} if zone else {})
    story.wait(2)
    assert bound(story, "p", affinity=together, labels={"app": "x"}) == [], "it is the first of them"
    assert bound(story, "q", node="n2", affinity=together, labels={"app": "x"}) == []
    assert bound(story, "r", node="n3", affinity=together, labels={"app": "x"}) == ["unwelcome"]
    assert bound(story, "s", node="n4", affinity=together, labels={"app": "x"}) == ["unwelcome"]
    # Of pods that are to stand with others than their like nobody can say in which order they were bound.
    assert bound(story, "t", node="n3", affinity=together, labels={"app": "y"}) == []


def test_a_node_that_two_schedulers_have_overfilled_is_not_so_for_long() -> None:
    story = Story()
    for index in range(2):
        story.pod(f"ours-{index}", cpu="1500m")
        story.pod(f"ours-{index}", node="n1", cpu="1500m")
    assert bound(story, "theirs", cpu="1500m", scheduler="other") == []
    story.wait(9)
    assert story.rules == []
    story.wait(3)
    assert story.rules == ["over-full node"]
    story.pod("theirs", node="n1", cpu="1500m", scheduler="other", phase="Succeeded")
    assert bound(story, "again", cpu="1500m", scheduler="other") == []
    story.wait(5)
    story.pod("again", node="n1", cpu="1500m", scheduler="other", phase="Succeeded")
    story.wait(20)
    assert story.rules == ["over-full node"]
    assert 10 < story.judge.longest["a node beyond what it has"] <= 12


def test_a_node_that_has_shrunk_or_was_given_pods_is_nobodys_doing() -> None:
    story = Story()
    for index in range(4):
        assert bound(story, f"p{index}") == []
    story.node("n1", cpu="2", change="MODIFIED")
    for index in range(6):
        story.pod(f"q{index}", node="n2", given=True)
    story.wait(30)
    assert story.rules == []


def test_another_schedulers_binds_are_its_own() -> None:
    story = Story()
    assert bound(story, nodeSelector={"zone": "a"}, scheduler="other") == []


def test_a_queue_stays_within_its_capability() -> None:
    story = Story()
    story.queue("default", capability={"cpu": "2", "pods": "1"})
    story.group("g", 1)
    story.wait(2)
    assert bound(story, "p", group="g") == []
    assert bound(story, "q", group="g") == []
    assert bound(story, "r", group="g", node="n2") == ["over capability"]


def test_a_new_cap_cannot_be_known_at_once() -> None:
    story = Story()
    story.group("g", 1)
    story.wait(2)
    story.queue("default", capability={"cpu": "500m"})
    assert bound(story, "p", group="g") == []


def test_a_group_stays_within_its_most() -> None:
    story = Story()
    story.group("g", 1, maximum=2)
    story.wait(2)
    assert bound(story, "p", group="g") == []
    assert bound(story, "q", group="g") == []
    assert bound(story, "r", group="g", node="n2") == ["over maxMember"]


def test_a_pod_that_has_a_node_is_not_said_to_have_none() -> None:
    story = Story()
    story.pod("p")
    story.pod("p", node="n1", scheduled="False")
    story.wait(4)
    assert story.rules == []
    story.wait(3)
    assert story.rules == ["untrue condition"]
