"""The contract of `kbatch simulate`, point by point. Only allocate runs here: what it decides is easy to foresee."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from kbatch.simulator.errors import InputError

CONF = """
actions: "allocate"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
"""
PREFIX = "simulate.kbatch.dev/"
GROUP = "scheduling.incubator.k8s.io/v1alpha1"
Simulate = Callable[..., Any]


def times(**seconds: float) -> dict[str, str]:
    return {PREFIX + name: str(value) for name, value in seconds.items()}


def node(name: str = "n1", cpu: str = "4", **seconds: float) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": times(**seconds)},
        "status": {"allocatable": {"cpu": cpu}},
    }


def template(cpu: str = "1", group: str = "", annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    more = {"scheduling.k8s.io/group-name": group} if group else {}
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    return {
        "metadata": {"annotations": {**more, **(annotations or {})}},
        "spec": {"schedulerName": "kube-batch", "containers": [container], **spec},
    }


def pod(
    name: str, cpu: str = "1", group: str = "", on: str = "", meta: dict[str, Any] | None = None, **seconds: float
) -> dict[str, Any]:
    made = template(cpu, group, times(**seconds))
    made["metadata"].update({"name": name, **(meta or {})})
    if on:
        made["spec"]["nodeName"] = on
    return {"apiVersion": "v1", "kind": "Pod", **made}


def group(name: str, minimum: int = 1, spec: dict[str, Any] | None = None, **seconds: float) -> dict[str, Any]:
    metadata = {"name": name, "annotations": times(**seconds)}
    return {
        "apiVersion": GROUP,
        "kind": "PodGroup",
        "metadata": metadata,
        "spec": {"minMember": minimum, **(spec or {})},
    }


def job(
    name: str, count: int, made: dict[str, Any], spec: dict[str, Any] | None = None, **seconds: float
) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": times(**seconds)},
        "spec": {"parallelism": count, "completions": count, "template": made, **(spec or {})},
    }


def text(*documents: dict[str, Any]) -> str:
    return yaml.safe_dump_all(documents) + "\n"


OWNED = {
    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs", "controller": True}]
}


def test_the_whole_json_of_a_small_run(simulate: Simulate) -> None:
    made = template(group="a", annotations=times(duration=12))
    outcome = simulate(text(node(), group("a", 2), job("a", 2, made, arrival=3), pod("late", "3", arrival=5)), CONF)
    conditions = {each["type"]: each for each in outcome.json["podgroups"]["default/a"].pop("conditions")}
    assert {type_: each["status"] for type_, each in conditions.items()} == {
        "Enqueued": "True",
        "Scheduled": "True",
        "Unschedulable": "False",
        "Completed": "True",
    }
    assert set(conditions["Scheduled"]) == {"type", "status", "reason", "message"}
    shadow = outcome.json["podgroups"].pop("default/late")
    assert shadow["phase"] == "Running"
    seconds = outcome.summary.pop("engine_seconds")
    assert 0 < seconds < 10
    assert outcome.json == {
        "cycles": [
            {"cycle": 1, "time": 0.0, "enqueued": ["default/a"], "binds": [], "evictions": [], "nominations": []},
            {
                "cycle": 3,
                "time": 3.0,
                "enqueued": [],
                "binds": [{"pod": "default/a-0", "node": "n1"}, {"pod": "default/a-1", "node": "n1"}],
                "evictions": [],
                "nominations": [],
            },
            {
                "cycle": 6,
                "time": 15.0,
                "enqueued": [],
                "binds": [{"pod": "default/late", "node": "n1"}],
                "evictions": [],
                "nominations": [],
            },
        ],
        "pods": {
            "default/a-0": {"phase": "Succeeded", "node": "n1", "bound": 3.0, "finished": 15.0},
            "default/a-1": {"phase": "Succeeded", "node": "n1", "bound": 3.0, "finished": 15.0},
            "default/late": {"phase": "Running", "node": "n1", "bound": 15.0, "finished": None},
        },
        "podgroups": {"default/a": {"phase": "Completed"}},
        "queues": {"default": {"deserved": {"cpu": "3"}, "allocated": {"cpu": "3"}, "share": 1.0}},
        "summary": {
            "cycles": 7,
            "binds": 3,
            "evictions": 0,
            "makespan": 15.0,
            "mean_wait": 3.333333,  # 0, 0 and 10
            "utilisation": {"cpu": 0.4},  # 2 of 4 for 12 of 15 s
            "fragmentation": {"cpu": 1.0},  # while `late` waited for three cores, the two idle ones were of no use
            "nodes_opened": 1,
        },
    }


def test_an_empty_input_is_a_run_too(simulate: Simulate) -> None:
    outcome = simulate("# nothing\n", CONF)
    assert (outcome.cycles, outcome.pods, outcome.json["podgroups"]) == ([], {}, {})
    assert outcome.queues == {"default": {"deserved": {}, "allocated": {}, "share": 0.0}}
    assert (outcome.summary["makespan"], outcome.summary["mean_wait"], outcome.summary["utilisation"]) == (0.0, 0.0, {})


def test_a_declared_queue_default_is_not_assumed(simulate: Simulate) -> None:
    queue = {
        "apiVersion": GROUP,
        "kind": "Queue",
        "metadata": {"name": "default"},
        "spec": {"capability": {"cpu": "2"}},
    }
    outcome = simulate(text(queue, node(), *(pod(f"p{i}") for i in range(3))), CONF)
    assert list(outcome.queues) == ["default"]
    assert outcome.queues["default"]["deserved"] == {"cpu": "2"}


def test_all_arrivals_of_an_instant_precede_one_cycle(simulate: Simulate) -> None:
    # Had the pods been looked at one by one, the first would be on n1 before the gang's second member is there.
    members = [pod("a-0", group="a", arrival=1), pod("x", "2", arrival=1), pod("a-1", group="a", arrival=1)]
    outcome = simulate(text(node(cpu="2"), group("a", 2), *members), CONF)
    assert [len(cycle["binds"]) for cycle in outcome.cycles if cycle["binds"]] == [2]
    assert outcome.running() == ["a-0", "a-1"]


def test_pods_with_a_node_run_already_and_count_their_duration_from_the_start(simulate: Simulate) -> None:
    outcome = simulate(text(node(cpu="1"), pod("old", on="n1", duration=7), pod("new")), CONF)
    assert outcome.pods["default/old"] == {"phase": "Succeeded", "node": "n1", "bound": None, "finished": 7.0}
    assert outcome.pods["default/new"]["bound"] == 7.0
    assert outcome.summary["mean_wait"] == 7.0
    assert outcome.summary["binds"] == 1


def test_terminating_pods_leave_after_their_termination(simulate: Simulate) -> None:
    meta = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    documents = [node(cpu="2"), pod("a", on="n1", meta=meta), pod("b", on="n1", meta=meta, termination=4)]
    outcome = simulate(text(*documents, pod("c"), pod("d")), CONF)
    assert [(bind["pod"], bind["time"]) for bind in outcome.binds] == [("default/c", 1.0), ("default/d", 4.0)]
    assert sorted(outcome.pods) == ["default/c", "default/d"]


def test_a_terminating_pod_is_gone_even_if_it_succeeds_before(simulate: Simulate) -> None:
    meta = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    outcome = simulate(text(node(cpu="1"), pod("a", on="n1", meta=meta, duration=2, termination=5), pod("b")), CONF)
    assert {key: pod["bound"] for key, pod in outcome.pods.items()} == {"default/b": 2.0}


def test_a_departure_is_a_deletion(simulate: Simulate) -> None:
    outcome = simulate(text(node(cpu="1"), pod("a", departure=5), pod("b")), CONF)
    assert list(outcome.pods) == ["default/b"]
    assert outcome.pods["default/b"]["bound"] == 5.0


def test_what_an_owner_made_departs_with_it(simulate: Simulate) -> None:
    outcome = simulate(text(node(), job("a", 3, template(), departure=5), pod("b", "4")), CONF)
    assert list(outcome.pods) == ["default/b"]
    assert outcome.pods["default/b"]["bound"] == 5.0


def test_a_group_that_departs_leaves_its_pods_without_one(simulate: Simulate) -> None:
    outcome = simulate(
        text(node(), group("a", 2, departure=5), pod("a-0", group="a"), pod("a-1", group="a", arrival=9)), CONF
    )
    assert outcome.reason("a") == "PodGroupNotFound"


def test_a_node_that_departs_takes_its_pods_and_controllers_make_new_ones(simulate: Simulate) -> None:
    pods = [pod("bare", on="n1"), pod("rs-x", on="n1", meta=OWNED)]
    outcome = simulate(text(node(departure=5), node("n2", arrival=8), *pods), CONF)
    assert outcome.pods["default/bare"] == {"phase": "Failed", "node": "n1", "bound": None, "finished": 5.0}
    assert outcome.pods["default/rs-x"]["phase"] == "Failed"
    assert outcome.pods["default/rs-x-r1"] == {"phase": "Running", "node": "n2", "bound": 8.0, "finished": None}


def test_a_job_makes_its_next_pod_when_one_has_succeeded(simulate: Simulate) -> None:
    made = template(annotations=times(duration=10))
    outcome = simulate(text(node(), job("a", 2, made, {"completions": 5})), CONF)
    assert {key: pod["bound"] for key, pod in outcome.pods.items()} == {
        "default/a-0": 0.0,
        "default/a-1": 0.0,
        "default/a-2": 10.0,
        "default/a-3": 10.0,
        "default/a-4": 20.0,
    }
    assert outcome.summary["makespan"] == 30.0
    assert outcome.summary["utilisation"] == {"cpu": 0.416667}


def test_replica_sets_and_adopted_pods(simulate: Simulate) -> None:
    spec = {"replicas": 3, "template": template()}
    replica_set = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "rs"}, "spec": spec}
    assert sorted(simulate(text(node(), replica_set), CONF).pods) == ["default/rs-0", "default/rs-1", "default/rs-2"]
    adopted = simulate(text(node(), pod("rs-0", on="n1", meta=OWNED), replica_set), CONF)
    assert sorted(adopted.pods) == ["default/rs-0", "default/rs-1", "default/rs-2"]
    assert adopted.summary["binds"] == 2


def test_more_than_nine_pods_keep_the_order_in_which_they_are_made(simulate: Simulate) -> None:
    outcome = simulate(text(node(cpu="11"), job("a", 12, template(group="a")), group("a")), CONF)
    assert [key for key, pod in outcome.pods.items() if pod["phase"] == "Pending"] == ["default/a-11"]


def test_the_order_of_documents_is_the_order_of_creation(simulate: Simulate) -> None:
    def first(*names: str) -> list[str]:
        groups = [document for name in names for document in (group(name, 3), job(name, 3, template(group=name)))]
        return sorted({name.partition("-")[0] for name in simulate(text(node(), *groups), CONF).running()})

    assert first("a", "b") == ["a"]
    assert first("b", "a") == ["b"]


def test_a_suspended_job_gets_its_pods_when_its_group_is_in_queue(simulate: Simulate) -> None:
    suspended = job("a", 2, template(group="a"), {"suspend": True})
    without_group = job("b", 2, template(), {"suspend": True})
    outcome = simulate(
        text(node(), suspended, without_group, group("a", 2, {"minResources": {"cpu": "2"}}, arrival=6)), CONF
    )
    assert [(bind["pod"], bind["time"]) for bind in outcome.binds] == [("default/a-0", 6.0), ("default/a-1", 6.0)]
    assert sorted(outcome.pods) == ["default/a-0", "default/a-1"]


def test_templated_members_are_made_when_their_group_is_in_queue(simulate: Simulate) -> None:
    roles = [
        {"name": "driver", "minMember": 1, "template": template("2")},
        {"name": "worker", "minMember": 2, "template": template("1", annotations=times(duration=5))},
    ]
    outcome = simulate(text(node(), group("a", 3, {"subGroups": roles, "minResources": {"cpu": "4"}})), CONF)
    assert {key: pod["phase"] for key, pod in outcome.pods.items()} == {
        "default/a-driver-0": "Running",
        "default/a-worker-0": "Succeeded",
        "default/a-worker-1": "Succeeded",
    }
    assert outcome.json["podgroups"]["default/a"]["phase"] == "Running"


def test_roles_grow_while_room_lasts(simulate: Simulate) -> None:
    roles = [{"name": "w", "minMember": 2, "maxMember": 9, "template": template()}]
    outcome = simulate(text(node(cpu="5"), group("a", 2, {"subGroups": roles, "minResources": {"cpu": "2"}})), CONF)
    assert outcome.running() == [f"a-w-{index}" for index in range(5)]
    assert [key for key, pod in outcome.pods.items() if pod["phase"] == "Pending"] == ["default/a-w-5"]


def test_templates_are_rendered_for_each_member(simulate: Simulate) -> None:
    made = template(nodeSelector={"rank": "r{{ index }}"})
    nodes = [node("n0"), node("n1")]
    for index, each in enumerate(nodes):
        each["metadata"]["labels"] = {"rank": f"r{1 - index}"}
    roles = [{"name": "w", "minMember": 2, "template": made}]
    outcome = simulate(text(*nodes, group("a", 2, {"subGroups": roles})), CONF)
    assert {key: pod["node"] for key, pod in outcome.pods.items()} == {"default/a-w-0": "n1", "default/a-w-1": "n0"}


def test_a_template_of_which_no_pod_can_be_made_is_refused(simulate: Simulate) -> None:
    roles = [{"name": "w", "minMember": 2, "template": template(nodeSelector={"rank": "{{ rank }}"})}]
    with pytest.raises(InputError, match=r"document 2: spec.subGroups\[0\].template.spec.nodeSelector.rank: 'rank' is"):
        simulate(text(node(), group("a", 2, {"subGroups": roles, "minResources": {"cpu": "2"}})), CONF)


def test_what_was_made_for_a_group_that_is_sent_back_is_made_again(simulate: Simulate) -> None:
    # That no other pod is what it seeks is known only once the pods are there.
    near = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"is": "there"}}}
    seeking = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}
    roles = [{"name": "w", "minMember": 1, "template": template(affinity=seeking)}]
    spec = {"scheduleTimeoutSeconds": 20, "minResources": {"cpu": "1"}}
    documents = [
        node(),
        group("a", 2, spec),
        job("a", 2, template(group="a", affinity=seeking), {"suspend": True}),
        group("b", 1, {**spec, "subGroups": roles}),
    ]
    waiting = simulate(text(*documents), until=15)
    assert sorted(waiting.pods) == ["default/a-0", "default/a-1", "default/b-w-0"]
    sent_back = simulate(text(*documents), until=20)
    assert sent_back.pods == {}
    assert sent_back.phase("a") == "Pending"
    # What they seek comes long after, on a node of its own: they were in queue, with pods, many times by then.
    late = pod("x", on="n2", meta={"labels": {"is": "there"}}, arrival=1000)
    outcome = simulate(text(*documents, node("n2"), late))
    assert outcome.running() == ["a-0", "a-1", "b-w-0", "x"]
    assert {bind["node"] for bind in outcome.binds} == {"n2"}
    never = simulate(text(*documents))
    assert (never.limited, never.summary["makespan"]) == (False, 0.0)


def test_times_on_templates_and_owners(simulate: Simulate) -> None:
    made = template()
    made["metadata"]["annotations"] = {PREFIX + "duration": 3}
    roles = [{"name": "w", "minMember": 1, "template": {**template(), "metadata": made["metadata"]}}]
    documents = [
        node(),
        job("a", 1, made, duration=9),
        job("b", 1, template(), duration=5),
        group("c", 1, {"subGroups": roles}),
    ]
    outcome = simulate(text(*documents), CONF)
    assert {key: pod["finished"] for key, pod in outcome.pods.items()} == {
        "default/a-0": 3.0,
        "default/b-0": 5.0,
        "default/c-w-0": 3.0,
    }


def test_priorities_come_from_classes(simulate: Simulate) -> None:
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 10}
    urgent, plain = pod("b"), pod("a")
    urgent["spec"]["priorityClassName"] = "high"
    assert simulate(text(node(cpu="1"), plain, urgent, high), CONF).running() == ["b"]
    urgent["spec"]["priorityClassName"] = "system-node-critical"
    assert simulate(text(node(cpu="1"), plain, urgent), CONF).running() == ["b"]


def test_what_a_live_cluster_would_refuse_is_refused(simulate: Simulate) -> None:
    nowhere = pod("a")
    nowhere["spec"]["priorityClassName"] = "missing"
    with pytest.raises(InputError, match=r"document 2: spec.priorityClassName: there is no PriorityClass missing"):
        simulate(text(node(), nowhere), CONF)
    with pytest.raises(InputError, match=r"document 2: spec.nodeName: there is no Node n9"):
        simulate(text(node(), pod("a", on="n9")), CONF)


def test_a_job_of_which_no_pod_is_admitted_is_warned_of(simulate: Simulate) -> None:
    outcome = simulate(text(node(), job("a", 2, template(priorityClassName="missing"))), CONF)
    assert outcome.pods == {}
    assert outcome.warnings == ("Job default/a: its pods are refused, there is no PriorityClass missing",)


def test_a_pod_fails_at_its_deadline(simulate: Simulate) -> None:
    slow, quick = pod("slow", duration=100), pod("quick", duration=5)
    for each in (slow, quick):
        each["spec"]["activeDeadlineSeconds"] = 10
    outcome = simulate(text(node(), slow, quick), CONF)
    found = {name: (each["phase"], each["finished"]) for name, each in outcome.pods.items()}
    assert found == {"default/slow": ("Failed", 10.0), "default/quick": ("Succeeded", 5.0)}


def test_a_job_that_would_fail_by_its_backoff_limit_is_warned_of(simulate: Simulate) -> None:
    """Its pods fail each time at their deadline; or they lose their node, which a podFailurePolicy forgives."""
    made = template(annotations=times(duration=100), activeDeadlineSeconds=10)
    outcome = simulate(text(node(), job("a", 1, made, {"backoffLimit": 2})), CONF, until=25)
    assert outcome.warnings == ()
    outcome = simulate(text(node(), job("a", 1, made, {"backoffLimit": 2})), CONF, until=35)
    (warning,) = outcome.warnings
    assert warning.startswith("Job default/a: more of its pods failed or were evicted than its backoffLimit of 2: ")
    ignoring = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
    for policy, warned in ((None, 1), (ignoring, 0)):
        spec = {"backoffLimit": 0, "podFailurePolicy": policy}
        lost = simulate(text(node(departure=5), job("a", 1, template(), spec)), CONF)
        assert len(lost.warnings) == warned


def test_pods_of_other_schedulers_take_room_and_are_let_alone(simulate: Simulate) -> None:
    foreign = [pod("f0", on="n1"), pod("f1")]
    for each in foreign:
        each["spec"]["schedulerName"] = "default-scheduler"
    outcome = simulate(text(node(), *foreign, pod("a", "4"), pod("b", "3")), CONF)
    assert outcome.pods["default/f1"]["phase"] == "Pending"
    assert outcome.running() == ["b", "f0"]
    assert outcome.queues["default"]["deserved"] == {"cpu": "3"}
    assert outcome.summary["utilisation"] == {"cpu": 1.0}


def test_limits(simulate: Simulate) -> None:
    source = text(node(cpu="1"), pod("a", duration=10), pod("b", duration=10), pod("c"))
    whole = simulate(source, CONF)
    assert (whole.limited, whole.summary["cycles"]) == (False, 6)
    cut = simulate(source, CONF, max_cycles=3)
    assert (cut.limited, cut.summary["cycles"], cut.running()) == (True, 3, ["b"])
    until = simulate(source, CONF, until=10)
    assert (until.limited, until.running(), until.summary["makespan"]) == (False, ["b"], 10.0)
    exactly = simulate(source, CONF, max_cycles=6)
    assert exactly.limited is False


def test_numbers_are_those_of_the_end_where_a_run_is_cut_off(simulate: Simulate) -> None:
    source = text(node(), pod("a", duration=10), pod("b", duration=100), group("g", 1), pod("g-0", "4", group="g"))
    assert "short of 2 cpu" in simulate(source, CONF, max_cycles=1).message("g")
    assert "short of 1 cpu" in simulate(source, CONF, max_cycles=2).message("g"), "a has just ended"


def test_extra_cycles_are_timed_apart(simulate: Simulate) -> None:
    source = text(node(), pod("a"), pod("b", "9"))
    plain, more = simulate(source, CONF), simulate(source, CONF, extra_cycles=5)
    assert "idle_cycle_seconds" not in plain.summary
    assert 0 < more.summary["idle_cycle_seconds"] < 1
    assert more.summary["cycles"] == plain.summary["cycles"] + 5
    assert more.cycles == plain.cycles


def test_a_group_that_never_fits_does_not_keep_the_run_going(simulate: Simulate) -> None:
    outcome = simulate(
        text(node(), group("a", 9), job("a", 9, template(group="a")), group("b", 3), pod("b-0", group="b")), CONF
    )
    assert outcome.limited is False
    assert outcome.summary["cycles"] < 1000
    assert outcome.summary["makespan"] == 0.0


def timeless(source: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(source)
    for name in ("engine_seconds", "idle_cycle_seconds"):
        found["summary"].pop(name, None)
    return found


def test_equal_input_gives_equal_output_in_any_order_of_distinct_timestamps(simulate: Simulate) -> None:
    documents: list[dict[str, Any]] = [node("n1", "5"), node("n2", "7"), group("a", 3), group("b", 4)]
    documents += [pod(f"p{index}", group="ab"[index % 2], duration=index + 1, arrival=index % 3) for index in range(12)]
    documents.append(job("c", 3, template(annotations=times(duration=3)), arrival=2))
    for index, document in enumerate(documents):
        document["metadata"]["creationTimestamp"] = f"2026-01-01T00:{59 - index:02}:00Z"
    expected = simulate(text(*documents), CONF)
    again = simulate(text(*documents), CONF)
    assert list(again.json) == ["cycles", "pods", "podgroups", "queues", "summary"]
    generator = random.Random(4)
    for _ in range(3):
        generator.shuffle(documents)
        assert timeless(simulate(text(*documents), CONF).text) == timeless(expected.text)
    assert timeless(again.text) == timeless(expected.text)


def test_a_namespace_takes_all_that_is_in_it_with_it(simulate: Simulate) -> None:
    def inside(document: dict[str, Any]) -> dict[str, Any]:
        document["metadata"]["namespace"] = "x"
        return document

    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x", "annotations": times(departure=5)}}
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "x"},
        "spec": {"hard": {"cpu": "3"}},
    }
    outcome = simulate(
        text(
            node(cpu="3"),
            namespace,
            quota,
            inside(group("g", 2)),
            inside(job("j", 2, template(group="g"), {"completions": 20}, duration=2)),
            inside(pod("alone")),
            pod("waits", cpu="3"),
        ),
        CONF,
    )
    assert set(outcome.pods) == {"default/waits"}
    assert outcome.pods["default/waits"]["bound"] == 5.0
    assert set(outcome.json["podgroups"]) == {"default/waits"}


def test_a_suspended_job_with_a_queue_gets_a_group(simulate: Simulate) -> None:
    made = job("j", 3, template(cpu="2"), {"suspend": True}, duration=5)
    made["metadata"]["labels"] = {"kbatch.dev/queue": "default"}
    enqueue = CONF.replace('"allocate"', '"enqueue, allocate"')
    outcome = simulate(text(node(cpu="6"), pod("first", cpu="6", duration=10), made), enqueue)
    assert [bind["time"] for bind in outcome.binds] == [0.0, 0.0, 0.0, 5.0]
    assert outcome.phase("j") == "Completed"
    gone = job("j", 3, template(), {"suspend": True}, departure=5)
    gone["metadata"]["labels"] = {"kbatch.dev/queue": "default"}
    assert simulate(text(node(), gone), enqueue).json["podgroups"] == {}


def test_a_suspended_job_without_a_group_stays_as_it_is(simulate: Simulate) -> None:
    outcome = simulate(text(node(), job("j", 1, template(), {"suspend": True})), CONF)
    assert outcome.pods == {}
    assert outcome.warnings == (
        "text, document 2: Job default/j is suspended and names neither a group nor a queue: it never starts",
    )


def test_what_goes_as_it_comes_was_never_there(simulate: Simulate) -> None:
    outcome = simulate(
        text(
            node(),
            pod("a", arrival=5, departure=5),
            job("b", 2, template(), departure=0),
            group("g", 1, arrival=3, departure=3),
            pod("c", cpu="4", arrival=6),
        ),
        CONF,
    )
    assert set(outcome.pods) == {"default/c"}
    assert set(outcome.json["podgroups"]) == {"default/c"}
    assert outcome.summary["makespan"] == 6.0


def test_fractions_of_a_second_count_to_the_microsecond(simulate: Simulate) -> None:
    documents = [
        node(cpu="1"),
        pod("a", arrival=0.000001, duration=1.25),
        pod("b", arrival=0.000003, duration=0.000003),
    ]
    outcome = simulate(text(*documents))
    assert outcome.binds == [
        {"pod": "default/a", "node": "n1", "time": 0.000001},
        {"pod": "default/b", "node": "n1", "time": 1.250001},
    ]
    assert [outcome.pods[f"default/{name}"]["finished"] for name in "ab"] == [1.250001, 1.250004]
    assert outcome.summary["makespan"] == 1.250004
    assert outcome.summary["mean_wait"] == 0.624999


def test_groups_a_microsecond_apart_come_in_that_order(simulate: Simulate) -> None:
    documents = [
        node(cpu="1"),
        group("z", 1, arrival=1.000001),
        pod("z", group="z", arrival=3, duration=5),
        group("a", 1, arrival=1.000002),
        pod("a", group="a", arrival=3, duration=5),
    ]
    assert [bind["pod"] for bind in simulate(text(*documents)).binds] == ["default/z", "default/a"]
