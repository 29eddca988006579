"""Labels, node terms, taints, host ports and namespaces of terms, as Kubernetes defines them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kbatch.api.objects import (
    LabelSelector,
    Node,
    NodeSelector,
    NodeSelectorTerm,
    PodAffinityTerm,
    PodSpec,
    Taint,
    Toleration,
)
from kbatch.model.selectors import (
    ANY_ADDRESS,
    NO_EXECUTE,
    NO_SCHEDULE,
    PREFER_NO_SCHEDULE,
    HostPort,
    domain_of,
    host_ports,
    node_matches_pod,
    node_selector_matches,
    node_term_matches,
    ports_conflict,
    selector_matches,
    term_covers_namespace,
    term_selector,
    tolerates,
    untolerated,
    with_label_keys,
)

LABELS = {"app": "web", "tier": "7", "zone": "a", "neg": "-3", "word": "x7"}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def selector(labels: dict[str, str] | None = None, *expressions: dict[str, Any]) -> LabelSelector:
    return msgspec.convert({"matchLabels": labels, "matchExpressions": list(expressions)}, LabelSelector)


@pytest.mark.parametrize(
    ("labels", "expressions", "want"),
    [
        ({}, [], True),
        ({"app": "web"}, [], True),
        ({"app": "db"}, [], False),
        ({"none": ""}, [], False),
        ({}, [expression("app", "In", "db", "web")], True),
        ({}, [expression("app", "In", "db")], False),
        ({}, [expression("none", "In", "")], False),
        ({}, [expression("app", "NotIn", "db")], True),
        ({}, [expression("app", "NotIn", "web")], False),
        ({}, [expression("none", "NotIn", "web")], True),
        ({}, [expression("app", "Exists")], True),
        ({}, [expression("none", "Exists")], False),
        ({}, [expression("app", "DoesNotExist")], False),
        ({}, [expression("none", "DoesNotExist")], True),
        ({}, [expression("app", "Unheard")], False),
        ({"app": "web"}, [expression("zone", "In", "a"), expression("tier", "In", "8")], False),
    ],
)
def test_label_selector(labels: dict[str, str], expressions: list[Any], want: bool) -> None:
    assert selector_matches(selector(labels, *expressions), LABELS) is want


def test_no_selector_selects_nothing_and_an_empty_one_everything() -> None:
    assert not selector_matches(None, LABELS)
    assert selector_matches(LabelSelector(), None)


@pytest.mark.parametrize(
    ("requirement", "want"),
    [
        (expression("tier", "Gt", "6"), True),
        (expression("tier", "Gt", "7"), False),
        (expression("tier", "Lt", "10"), True),
        (expression("tier", "Lt", "7"), False),
        (expression("neg", "Lt", "-2"), True),
        (expression("word", "Gt", "1"), False),
        (expression("tier", "Gt", "x"), False),
        (expression("none", "Gt", "1"), False),
        (expression("tier", "Gt", "1", "2"), False),
        (expression("tier", "Gt"), False),
    ],
)
def test_node_terms_compare_whole_numbers(requirement: dict[str, Any], want: bool) -> None:
    term = msgspec.convert({"matchExpressions": [requirement]}, NodeSelectorTerm)
    assert node_term_matches(term, LABELS, "n1") is want


def fields(*requirements: dict[str, Any]) -> NodeSelectorTerm:
    return msgspec.convert({"matchFields": list(requirements)}, NodeSelectorTerm)


def test_match_fields_know_the_name_only() -> None:
    assert node_term_matches(fields(expression("metadata.name", "In", "n1")), {}, "n1")
    assert not node_term_matches(fields(expression("metadata.name", "In", "n1")), {}, "n2")
    assert node_term_matches(fields(expression("metadata.name", "NotIn", "n1")), {}, "n2")
    assert not node_term_matches(fields(expression("metadata.uid", "NotIn", "n1")), {}, "n2")


def test_terms_are_alternatives_and_an_empty_term_matches_nothing() -> None:
    empty, here = NodeSelectorTerm(), fields(expression("metadata.name", "In", "n1"))
    assert not node_selector_matches(NodeSelector(node_selector_terms=(empty,)), LABELS, "n1")
    assert not node_selector_matches(NodeSelector(), LABELS, "n1")
    assert node_selector_matches(NodeSelector(node_selector_terms=(empty, here)), LABELS, "n1")


def test_selector_and_affinity_must_both_hold() -> None:
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression("zone", "In", "a")]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    both = msgspec.convert({"nodeSelector": {"app": "web"}, "affinity": affinity}, PodSpec)
    assert node_matches_pod(both, LABELS, "n1")
    assert not node_matches_pod(both, {**LABELS, "zone": "b"}, "n1")
    assert not node_matches_pod(both, {**LABELS, "app": "db"}, "n1")
    assert node_matches_pod(PodSpec(), {}, "n1")


def test_label_keys_narrow_by_the_pods_own_labels() -> None:
    base = selector({"app": "web"})
    merged = with_label_keys(base, {"app": "web", "hash": "1", "x": "y"}, ["hash", "absent"], ["x"])
    assert merged == selector({"app": "web"}, expression("hash", "In", "1"), expression("x", "NotIn", "y"))
    assert with_label_keys(base, {}, ["hash"]) is base
    assert with_label_keys(None, {"hash": "1"}, ["hash"]) is None
    term = PodAffinityTerm(topology_key="zone", label_selector=base, match_label_keys=("hash",))
    assert selector_matches(term_selector(term, {"hash": "1"}), {"app": "web", "hash": "1"})
    assert not selector_matches(term_selector(term, {"hash": "1"}), {"app": "web", "hash": "2"})


TAINT = Taint(key="dedicated", value="5", effect=NO_SCHEDULE)


@pytest.mark.parametrize(
    ("toleration", "want"),
    [
        (Toleration(key="dedicated", value="5"), True),
        (Toleration(key="dedicated", operator="", value="5"), True),
        (Toleration(key="dedicated", value="6"), False),
        (Toleration(key="other", value="5"), False),
        (Toleration(key="dedicated", operator="Exists"), True),
        (Toleration(operator="Exists"), True),
        (Toleration(operator="Exists", effect=NO_EXECUTE), False),
        (Toleration(operator="Exists", effect=NO_SCHEDULE), True),
        (Toleration(key="dedicated", value="5", effect=PREFER_NO_SCHEDULE), False),
        (Toleration(value="5"), False),
        (Toleration(key="dedicated", operator="Gt", value="4"), True),
        (Toleration(key="dedicated", operator="Gt", value="5"), False),
        (Toleration(key="dedicated", operator="Lt", value="6"), True),
        (Toleration(key="dedicated", operator="Lt", value="x"), False),
        (Toleration(key="dedicated", operator="Unheard", value="5"), False),
    ],
)
def test_toleration(toleration: Toleration, want: bool) -> None:
    assert tolerates(toleration, TAINT) is want


def test_only_some_effects_keep_a_pod_away() -> None:
    soft = Taint(key="soft", effect=PREFER_NO_SCHEDULE)
    hard = Taint(key="hard", effect=NO_EXECUTE)
    assert untolerated([soft], None) is None
    assert untolerated([soft, hard, TAINT], None) is hard
    assert untolerated([soft, hard, TAINT], [Toleration(key="hard", operator="Exists")]) is TAINT
    assert untolerated([soft], None, frozenset({PREFER_NO_SCHEDULE})) is soft
    assert untolerated(None, None) is None


def test_host_ports_of_containers_and_sidecars() -> None:
    pod = msgspec.convert(
        {
            "containers": [
                {"ports": [{"containerPort": 80, "hostPort": 8080}, {"containerPort": 81}]},
                {"ports": [{"containerPort": 53, "hostPort": 53, "protocol": "UDP", "hostIP": "127.0.0.1"}]},
            ],
            "initContainers": [
                {"ports": [{"containerPort": 9, "hostPort": 9}]},
                {"ports": [{"containerPort": 10, "hostPort": 10}], "restartPolicy": "Always"},
            ],
        },
        PodSpec,
    )
    assert host_ports(pod) == {
        HostPort(ANY_ADDRESS, "TCP", 8080),
        HostPort("127.0.0.1", "UDP", 53),
        HostPort(ANY_ADDRESS, "TCP", 10),
    }


def test_on_the_hosts_network_every_port_is_a_host_port() -> None:
    pod = msgspec.convert({"hostNetwork": True, "containers": [{"ports": [{"containerPort": 80}]}]}, PodSpec)
    assert host_ports(pod) == {HostPort(ANY_ADDRESS, "TCP", 80)}


@pytest.mark.parametrize(
    ("right", "want"),
    [
        (HostPort("10.0.0.1", "TCP", 80), True),
        (HostPort(ANY_ADDRESS, "TCP", 80), True),
        (HostPort("10.0.0.2", "TCP", 80), False),
        (HostPort("10.0.0.1", "UDP", 80), False),
        (HostPort("10.0.0.1", "TCP", 81), False),
    ],
)
def test_ports_conflict(right: HostPort, want: bool) -> None:
    left = [HostPort("10.0.0.1", "TCP", 80)]
    assert ports_conflict(left, [right]) is ports_conflict([right], left) is want
    assert not ports_conflict(left, [])


@pytest.mark.parametrize(
    ("names", "chosen", "covered"),
    [
        (None, None, {"own"}),
        (["b"], None, {"b"}),
        (None, {}, {"own", "b", "team"}),
        (None, {"matchLabels": {"team": "x"}}, {"team"}),
        (["b"], {"matchLabels": {"team": "x"}}, {"b", "team"}),
    ],
)
def test_namespaces_of_a_term(names: list[str] | None, chosen: dict[str, Any] | None, covered: set[str]) -> None:
    raw = {"topologyKey": "zone", "namespaces": names, "namespaceSelector": chosen}
    term = msgspec.convert(raw, PodAffinityTerm)
    labels = {"team": {"team": "x"}}
    found = {
        name for name in ("own", "b", "team") if term_covers_namespace(term, "own", name, lambda n: labels.get(n, {}))
    }
    assert found == covered


def test_a_node_without_the_label_stands_in_no_domain() -> None:
    node = msgspec.convert({"metadata": {"name": "n", "labels": {"zone": "a", "empty": ""}}}, Node)
    assert (domain_of(node, "zone"), domain_of(node, "empty"), domain_of(node, "rack")) == ("a", "", None)
