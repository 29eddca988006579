"""The plugin in a real cycle: a small cluster in, decisions out."""
# ruff: noqa: S101 -- assert is how pytest tests

from __future__ import annotations

from kbatch_price import Price

from kbatch.api.configuration import parse
from kbatch.api.objects import (
    Container,
    Metadata,
    Node,
    NodeStatus,
    Pod,
    PodSpec,
    Queue,
    ResourceRequirements,
)
from kbatch.engine import Memo, NullObserver, Transaction, Verdict, build_policy, cycle, take_snapshot
from kbatch.engine.loader import known_plugins
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Upsert

CONFIGURATION = """
actions: "allocate"
tiers:
- plugins: [{name: gang}, {name: predicates}]
- plugins:
  - name: price
    arguments: {price.most: 80}
"""


def node(name: str, price: str | None) -> Node:
    labels = {"example.com/price": price} if price is not None else None
    return Node(metadata=Metadata(name=name, labels=labels), status=NodeStatus(allocatable={"cpu": "2", "pods": "9"}))


def pod(name: str) -> Pod:
    one_cpu = Container(resources=ResourceRequirements(requests={"cpu": "1"}))
    meta = Metadata(name=name, namespace="ns", uid=name)
    return Pod(metadata=meta, spec=PodSpec(scheduler_name="kube-batch", containers=(one_cpu,)))


def decide(*nodes: Node, pods: int) -> tuple[dict[str, str], list[str]]:
    """Where the pods go, and what is said of those that wait."""
    model = ClusterModel()
    for obj in (Queue(metadata=Metadata(name="default")), *nodes, *(pod(f"p{at}") for at in range(pods))):
        model.apply(Upsert(obj))
    policy = build_policy(parse(CONFIGURATION, "test.yaml"), {**known_plugins(), Price.name: Price})
    binds: dict[str, str] = {}
    messages: list[str] = []
    for decision in cycle(take_snapshot(model, 0), policy, Memo(), NullObserver()):
        if isinstance(decision, Transaction):
            binds.update({bind.pod: bind.node for bind in decision.binds})
        elif isinstance(decision, Verdict) and decision.reason is not None:
            messages.append(decision.reason.message)
    return binds, messages


def test_the_cheapest_first() -> None:
    binds, _ = decide(node("dear", "70"), node("cheap", "10"), node("middling", "40"), pods=5)
    assert sorted(binds.values()) == ["cheap", "cheap", "dear", "middling", "middling"]


def test_above_the_limit_never_and_it_is_said() -> None:
    binds, messages = decide(node("dear", "81"), pods=1)
    assert binds == {}
    assert "1 too expensive" in messages[0]


def test_what_is_no_price_costs_nothing() -> None:
    binds, _ = decide(node("odd", "lots"), node("priced", "1"), node("plain", None), pods=4)
    assert sorted(binds.values()) == ["odd", "odd", "plain", "plain"]
