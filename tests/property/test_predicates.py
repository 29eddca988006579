"""The predicates' columns and counters against the plain meaning, over random clusters and random moves."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch.api.objects import AnyObject, Node, Pod, PodSpec
from kbatch.engine.plugins.predicates import Predicates
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Upsert
from tests.examples import examples
from tests.unit.engine.worlds import policy, queue, run, world
from tests.unit.plugins.reference import Reference
from tests.unit.plugins.views import conf, node, plugin_of, pod, refusals, session_of

KEYS = ("zone", "rack", "host")
values = st.sampled_from(("a", "b"))
label_sets = st.dictionaries(st.sampled_from(("app", "tier")), values)


@st.composite
def expressions(draw: st.DrawFn, keys: tuple[str, ...]) -> dict[str, Any]:
    operator = draw(st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist")))
    found: dict[str, Any] = {"key": draw(st.sampled_from(keys)), "operator": operator}
    if operator in {"In", "NotIn"}:
        found["values"] = draw(st.lists(values, min_size=1, max_size=2))
    return found


selectors = st.one_of(
    st.none(),
    st.fixed_dictionaries({"matchLabels": label_sets}),
    st.fixed_dictionaries({"matchExpressions": st.lists(expressions(("app", "tier")), max_size=2)}),
)
namespaces = st.sampled_from(("ns", "other"))


@st.composite
def terms(draw: st.DrawFn) -> dict[str, Any]:
    found: dict[str, Any] = {"topologyKey": draw(st.sampled_from(KEYS)), "labelSelector": draw(selectors)}
    which = draw(st.integers(0, 5))
    if which == 0:
        found["namespaces"] = [draw(namespaces)]
    elif which == 1:
        name = draw(namespaces)
        found["namespaceSelector"] = draw(st.sampled_from(({}, {"matchLabels": {"kubernetes.io/metadata.name": name}})))
    elif which == 2:
        found["matchLabelKeys"] = ["tier"]
    elif which == 3:
        found["mismatchLabelKeys"] = ["tier"]
    return found


@st.composite
def constraints(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "topologyKey": draw(st.sampled_from(KEYS)),
        "whenUnsatisfiable": draw(st.sampled_from(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"))),
        "maxSkew": draw(st.integers(1, 2)),
        "minDomains": draw(st.none() | st.integers(1, 3)),
        "labelSelector": draw(selectors),
        "nodeAffinityPolicy": draw(st.sampled_from((None, "Honor", "Ignore"))),
        "nodeTaintsPolicy": draw(st.sampled_from((None, "Honor", "Ignore"))),
        "matchLabelKeys": draw(st.sampled_from((None, ["tier"]))),
    }


ports = st.fixed_dictionaries(
    {
        "containerPort": st.just(80),
        "hostPort": st.sampled_from((0, 80, 81)),
        "hostIP": st.sampled_from(("", "10.0.0.1", "10.0.0.2")),
        "protocol": st.sampled_from(("TCP", "UDP")),
    }
)
tolerations = st.fixed_dictionaries(
    {
        "key": st.sampled_from(("", "soft", "hard")),
        "operator": st.sampled_from(("Exists", "Equal")),
        "value": st.sampled_from(("", "x")),
        "effect": st.sampled_from(("", "NoSchedule", "NoExecute")),
    }
)
required = "requiredDuringSchedulingIgnoredDuringExecution"


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    """Most pods demand little: else none would ever fit."""
    found: dict[str, Any] = {}
    affinity: dict[str, Any] = {}
    for name in ("podAffinity", "podAntiAffinity"):
        if draw(st.integers(0, 2)) == 0:
            affinity[name] = {required: draw(st.lists(terms(), min_size=1, max_size=2))}
    if draw(st.integers(0, 3)) == 0:
        some = draw(st.lists(expressions(KEYS), max_size=2))
        affinity["nodeAffinity"] = {required: {"nodeSelectorTerms": [{"matchExpressions": some}]}}
    if affinity:
        found["affinity"] = affinity
    if draw(st.integers(0, 2)) == 0:
        found["topologySpreadConstraints"] = draw(st.lists(constraints(), min_size=1, max_size=2))
    if draw(st.integers(0, 3)) == 0:
        found["nodeSelector"] = draw(st.dictionaries(st.sampled_from(KEYS), values, max_size=1))
    if draw(st.booleans()):
        found["tolerations"] = draw(st.lists(tolerations, max_size=2))
    if draw(st.integers(0, 3)) == 0:
        found["containers"] = [{"name": "c", "ports": draw(st.lists(ports, max_size=2))}]
    return found


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    labels = draw(st.fixed_dictionaries({}, optional={"zone": values, "rack": values}))
    taints = draw(
        st.lists(
            st.fixed_dictionaries(
                {
                    "key": st.sampled_from(("soft", "hard")),
                    "effect": st.sampled_from(("NoSchedule", "PreferNoSchedule", "NoExecute")),
                    "value": st.sampled_from(("", "x")),
                }
            ),
            max_size=1,
        )
    )
    return node(name, labels, taints=taints)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Node], list[Pod]]:
    machines = [draw(nodes(f"n{index}")) for index in range(draw(st.integers(1, 5)))]
    names = st.sampled_from(["", *[machine.metadata.name for machine in machines]])
    found: list[Pod] = []
    for index in range(draw(st.integers(1, 9))):
        on = draw(names)
        more = {"terminating": True} if on and draw(st.integers(0, 4)) == 0 else {}
        found.append(pod(f"p{index}", on, labels=draw(label_sets), namespace=draw(namespaces), **more, **draw(specs())))
    return machines, found


@settings(max_examples=examples(30), deadline=None)
@given(clusters(), st.data())
def test_the_same_as_one_by_one(cluster: tuple[list[Node], list[Pod]], data: st.DataObject) -> None:
    machines, pods = cluster
    model = ClusterModel()
    things: list[AnyObject] = [*machines, *pods]
    for obj in things:
        model.apply(Upsert(obj))
    session = session_of(model, conf("predicates"))
    plugin = plugin_of(session, Predicates)
    standing = {key: (task.pod, task.node, task.terminating) for key, task in sorted(model.tasks.items()) if task.node}
    bound = set(standing)
    for _ in range(data.draw(st.integers(0, 5), label="moves")):
        key = data.draw(st.sampled_from(sorted(model.tasks)), label="pod")
        task = model.tasks[key]
        if key not in standing:
            row = data.draw(st.integers(0, len(machines) - 1), label="row")
            job, binds = session.job(task.job), data.draw(st.booleans(), label="bound")
            for at, there in ((job.placed, binds), (job.nominated, not binds)):
                at.pop(key, None)
                if there:
                    at[key] = task, row
            (bound.add if binds else bound.discard)(key)
            undo = plugin.placed(task, row)
            after = {**standing, key: (task.pod, session.nodes.names[row], False)}
        elif not task.node:
            undo = plugin.removed(task, session.nodes.row[standing[key][1]])
            after = {name: each for name, each in standing.items() if name != key}
        elif not standing[key][2]:
            undo = plugin.removed(task, session.nodes.row[task.node])
            after = {**standing, key: (task.pod, task.node, True)}
        else:
            continue
        if data.draw(st.integers(0, 3), label="undo") == 0:
            undo()
        else:
            standing = after
        if data.draw(st.booleans(), label="look"):  # indexes are made at the first look: early or late, the same
            compare(session, plugin, machines, standing, bound)
    compare(session, plugin, machines, standing, bound)


def compare(
    session: Any, plugin: Predicates, machines: list[Node], standing: dict[str, tuple[Pod, str, bool]], bound: set[str]
) -> None:
    """Who waits for a node must be able to stand with all others; who binds now, without those that only wait, too."""
    reference = Reference(machines, list(standing.values()))
    without = Reference(machines, [each for key, each in standing.items() if key in bound])
    for key, task in session.model.tasks.items():
        if task.node or key in standing:
            continue
        for later in (False, True):
            want = {name: reference.why_not(task.pod, name, later=later) for name in session.nodes.names}
            if not later:
                also = {name: without.why_not(task.pod, name, later=later) for name in session.nodes.names}
                want = {name: _first(why, also[name]) for name, why in want.items()}
            assert refusals(session, plugin, key, later=later) == {
                name: why for name, why in want.items() if why is not None
            }, (key, later)


def _first(*reasons: str | None) -> str | None:
    """The one that is told, of reasons for one node: what is the node's own affair is the same in all of them."""
    order = ("host port taken", "pod affinity", "pod anti-affinity", "topology spread")
    told = [why for why in reasons if why is not None]
    return min(told, key=lambda why: order.index(why) if why in order else -1, default=None)


@st.composite
def crowds(draw: st.DrawFn) -> tuple[list[Node], list[Pod]]:
    """Many pods that wait, of few kinds, on nodes that take most of them: they meet one another."""
    machines = [draw(nodes(f"n{index}")) for index in range(draw(st.integers(2, 4)))]
    for machine in machines:
        machine.spec.taints = None
    kinds = [(draw(label_sets), draw(keep_off)) for _ in range(draw(st.integers(1, 3)))]
    found: list[Pod] = []
    for index in range(draw(st.integers(4, 10))):
        labels, spec = draw(st.sampled_from(kinds))
        on = draw(st.sampled_from(("", "", "", "n0", "n1")))
        found.append(pod(f"p{index}", on, labels=labels, priority=draw(st.integers(0, 2)), **spec))
    return machines, found


keep_off = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"containers": st.lists(ports, min_size=1, max_size=2).map(lambda some: [{"ports": some}])}),
    terms().map(lambda term: {"affinity": {"podAntiAffinity": {required: [term]}}}),
    constraints().map(lambda constraint: {"topologySpreadConstraints": [constraint]}),
)


@settings(max_examples=examples(25), deadline=None)
@given(crowds(), st.sampled_from(("allocate", "allocate, preempt")))
def test_whole_cycles_keep_what_must_hold_between_pods(cluster: tuple[list[Node], list[Pod]], actions: str) -> None:
    """Whatever the order of decisions: nobody is bound beside what it must not stand beside."""
    machines, pods = cluster
    model = world(queue(), machines, pods)
    text = conf("predicates").replace('"allocate"', f'"{actions}"') + "  - name: nodeorder\n  - name: priority\n"
    found = run(model, policy(text))
    binds = {bind.pod: bind.node for each in found.transactions for bind in each.binds}
    gone = {one.pod for each in found.transactions for one in each.evictions}
    standing = {
        key: (task.pod, task.node or binds[key], task.terminating or key in gone)
        for key, task in sorted(model.tasks.items())
        if task.node or key in binds
    }
    for key, name in binds.items():
        others = [each for other, each in standing.items() if other != key]
        why = Reference(machines, others).why_not(model.tasks[key].pod, name, later=False)
        # Affinity and spread hold when a pod is bound; others that come later may stand elsewhere.
        assert why in {None, "pod affinity", "topology spread"}, (key, name, why)


def test_pods_of_one_class_are_alike_to_every_predicate() -> None:
    """What the comparison rests on: the spec of a class stands for that of each of its pods."""
    raw = {"containers": [{"name": "c"}], "schedulerName": "kube-batch"}
    first, second = (msgspec.convert(raw, PodSpec) for _ in range(2))
    assert first == second
