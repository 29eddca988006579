from __future__ import annotations

import json
import re

import pytest

from kbatch.api.objects import Job, Node, Pod, PodGroup, PriorityClass
from kbatch.simulator.documents import parse
from kbatch.simulator.errors import InputError
from kbatch.simulator.manifests import Manifests, from_documents

NODE = "{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: '4'}}}"


def load(*documents: str, source: str = "a.yaml") -> Manifests:
    return from_documents(parse("\n---\n".join(documents), source))


def pod(metadata: str = "name: p", spec: str = "containers: []") -> str:
    return f"{{apiVersion: v1, kind: Pod, metadata: {{{metadata}}}, spec: {{{spec}}}}}"


def group(spec: str) -> str:
    return (
        f"{{apiVersion: scheduling.incubator.k8s.io/v1alpha1, kind: PodGroup, metadata: {{name: g}}, spec: {{{spec}}}}}"
    )


def test_objects_get_their_namespace_and_their_times() -> None:
    annotations = "simulate.kbatch.dev/arrival: '1.5', simulate.kbatch.dev/departure: '20'"
    loaded = load(NODE, pod(f"name: p, annotations: {{{annotations}}}"))
    node, declared = loaded.objects
    assert isinstance(node.obj, Node)
    assert node.obj.metadata.namespace == ""
    assert isinstance(declared.obj, Pod)
    assert (declared.obj.metadata.namespace, declared.arrival, declared.departure) == ("default", 1_500_000, 20_000_000)


def test_times_may_be_written_as_numbers() -> None:
    declared = load(
        pod("name: p, annotations: {simulate.kbatch.dev/arrival: 2.5, simulate.kbatch.dev/departure: 9}")
    ).objects[0]
    assert (declared.arrival, declared.departure) == (2_500_000, 9_000_000)
    with pytest.raises(InputError, match=r"metadata.annotations\[example.com/number\]: expected text, got int"):
        load(pod("name: p, annotations: {example.com/number: 2}"))


def test_lists_of_all_kinds_are_taken_apart() -> None:
    inner = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    text = json.dumps(
        {
            "apiVersion": "v1",
            "kind": "List",
            "items": [inner, {"apiVersion": "v1", "kind": "NodeList", "items": [{"metadata": {"name": "n2"}}]}],
        }
    )
    assert [declared.obj.metadata.name for declared in load(text).objects] == ["n1", "n2"]
    with pytest.raises(InputError, match=r"a.yaml, document 1, items\[1\]: metadata.name: is missing"):
        load(json.dumps({"apiVersion": "v1", "kind": "List", "items": [inner, {**inner, "metadata": {}}]}))


def test_order_is_that_of_documents_unless_timestamps_say_otherwise() -> None:
    def order(*stamps: str) -> list[str]:
        documents = [
            pod(f"name: p{index}" + (f", creationTimestamp: '{stamp}'" if stamp else ""))
            for index, stamp in enumerate(stamps)
        ]
        return [declared.obj.metadata.name for declared in load(*documents).objects]

    assert order("", "", "") == ["p0", "p1", "p2"]
    assert order("2026-01-03T00:00:00Z", "2026-01-01T00:00:00Z", "") == ["p1", "p0", "p2"]
    # What has no time is created at the start, after all that is older.
    assert order("", "2026-01-01T00:00:00Z") == ["p1", "p0"]


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        ("{apiVersion: v1, metadata: {name: x}}", "kind: is missing"),
        ("{kind: Pod, metadata: {name: x}}", "apiVersion: is missing"),
        ("{apiVersion: example.com/v1, kind: Thing, metadata: {name: x}}", "kind: Thing of example.com/v1 is no kind"),
        ("{apiVersion: batch/v1, kind: Pod, metadata: {name: x}}", "kind: Pod of batch/v1 .*; Pod is of v1"),
        (
            "{apiVersion: scheduling.incubator.k8s.io/v2, kind: Queue, metadata: {name: x}}",
            "apiVersion: there is no version 'v2'",
        ),
        ("{apiVersion: v1, kind: Pod}", "metadata: is missing"),
        (pod("name: UPPER"), "metadata.name: 'UPPER' is no valid name"),
        (pod("name: x, namespace: a.b"), "metadata.namespace: 'a.b'"),
        (pod("name: x, labels: {a: 'not ok'}"), r"metadata.labels\[a\]: 'not ok' is no valid label value"),
        (pod("name: x, labels: {a: 1}"), r"metadata.labels\[a\]: expected text, got int"),
        (pod("name: x, creationTimestamp: yesterday"), "metadata.creationTimestamp: 'yesterday' is no time"),
        (pod(spec="nodeName: 3"), "spec.nodeName: expected text, got int"),
        (
            pod(spec="containers: [{resources: {requests: {cpu: much}}}]"),
            r"spec.containers\[0\].resources.requests.cpu: quantity 'much'",
        ),
        (pod(spec="containers: [{resources: {requests: {cpu: -1}}}]"), "requests.cpu: -1 is negative"),
        (
            pod(spec="containers: [{resources: {requests: {cpu: 2}, limits: {cpu: 1}}}]"),
            "requests.cpu: 2 is above the limit 1",
        ),
        (
            pod(spec="tolerations: [{key: a, operator: Like}]"),
            r"spec.tolerations\[0\].operator: 'Like' is none of Equal, Exists, Gt, Lt",
        ),
        (
            pod(spec="topologySpreadConstraints: [{maxSkew: 0, topologyKey: z, whenUnsatisfiable: DoNotSchedule}]"),
            "maxSkew: 0 is below 1",
        ),
        (
            pod(spec="affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: ''}]}}"),
            r"spec.affinity.podAffinity\[0\].topologyKey: may not be empty",
        ),
        (
            pod("name: x, annotations: {simulate.kbatch.dev/arrival: soon}"),
            r"metadata.annotations\[simulate.kbatch.dev/arrival\]: 'soon' is no number",
        ),
        (pod("name: x, annotations: {simulate.kbatch.dev/duration: '-1'}"), "'-1' is no number of seconds"),
        (pod("name: x, annotations: {simulate.kbatch.dev/duration: nan}"), "'nan' is no number of seconds"),
        (
            pod("name: x, annotations: {simulate.kbatch.dev/arrival: '5', simulate.kbatch.dev/departure: '4'}"),
            "departure.: is before the arrival",
        ),
        (NODE.replace("'4'", "many"), "status.allocatable.cpu: quantity 'many'"),
        (group("minMember: -1"), "spec.minMember: should be greater than or equal to 1, got -1"),
        (group("minMembers: 2"), "spec.minMembers: there is no such field"),
        (group("minResources: {cpu: lots}"), "spec.minResources.cpu"),
        (
            group("subGroups: [{name: a, minMember: 3, maxMember: 2}]"),
            r"spec.subGroups\[0\].maxMember: maxMember 2 is below minMember 3",
        ),
        (group("subGroups: [{name: a}, {name: a}]"), r"spec.subGroups\[1\].name: there is a role a already"),
        (group("disruption: Sometimes"), "spec.disruption: should be 'Surplus', 'Whole' or 'Never', got 'Sometimes'"),
    ],
)
def test_faults_name_file_document_and_field(document: str, fault: str) -> None:
    with pytest.raises(InputError, match=rf"^a.yaml, document 2: .*{fault}"):
        load(NODE, document)


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(InputError) as caught:
        load(pod("name: A"), NODE, group("minMember: 0"))
    assert [(fault.place.document, fault.field) for fault in caught.value.faults] == [
        (1, "metadata.name"),
        (3, "spec.minMember"),
    ]


def test_a_name_stands_once_within_its_kind_and_namespace() -> None:
    load(pod("name: p"), pod("name: p, namespace: other"), group(""))
    with pytest.raises(
        InputError, match=r"document 3: metadata.name: Pod default/p stands already in a.yaml, document 1"
    ):
        load(pod("name: p"), NODE, pod("name: p, namespace: default"))


def test_null_is_absent() -> None:
    loaded = load(
        "{apiVersion: v1, kind: Pod, metadata: {name: p, annotations: null, ownerReferences: null}, "
        "spec: {nodeName: null}}"
    )
    obj = loaded.objects[0].obj
    assert isinstance(obj, Pod)
    assert (obj.metadata.owner_references, obj.spec.node_name) == ((), "")


def test_other_kinds_of_kubernetes_are_left_out_with_a_warning() -> None:
    loaded = load(
        "{apiVersion: v1, kind: Service, metadata: {name: a}}",
        "{apiVersion: v1, kind: Service, metadata: {name: b}}",
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: c}}",
        NODE,
    )
    assert [type(declared.obj) for declared in loaded.objects] == [Node]
    assert loaded.warnings == (
        "Deployment (apps/v1): 1 object ignored: not part of a simulation",
        "Service (v1): 2 objects ignored: not part of a simulation",
    )


def test_an_older_version_is_read_with_a_warning() -> None:
    loaded = load("{apiVersion: scheduling.k8s.io/v1beta1, kind: PriorityClass, metadata: {name: high}, value: 1000}")
    assert isinstance(loaded.objects[0].obj, PriorityClass)
    assert loaded.objects[0].obj.value == 1000
    assert "is read as scheduling.k8s.io/v1" in loaded.warnings[0]
    loaded = load("{apiVersion: v9, kind: Node, metadata: {name: n}, status: {allocatable: {cpu: 1}}}")
    assert loaded.warnings[0].endswith("Node of v9 is read as v1")


@pytest.mark.parametrize(
    ("manifest", "field"),
    [
        (
            "{apiVersion: v1, kind: Node, metadata: {name: n}, status: {allocatable: {cpu: 1, memory: [1]}}}",
            "status.allocatable[memory]",
        ),
        ("{apiVersion: v1, kind: Node, metadata: {name: n, labels: {a: b, c/d: {}}}}", "metadata.labels[c/d]"),
        (
            pod(spec="containers: [{name: a}, {name: b, resources: {requests: {cpu: 1, memory: [2]}}}]"),
            "spec.containers[1].resources.requests[memory]",
        ),
    ],
)
def test_of_a_mapping_the_key_is_named_whose_value_cannot_be_read(manifest: str, field: str) -> None:
    with pytest.raises(InputError, match=re.escape(f": {field}: ")):
        load(manifest)


def test_work_that_names_no_scheduler_is_warned_of() -> None:
    job = "{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {template: {spec: {containers: []}}}}"
    running = pod("name: r", "nodeName: n1")
    loaded = load(pod("name: p"), job, running, pod("name: q", "schedulerName: kube-batch"))
    assert loaded.warnings == (
        "a.yaml, document 1: pod default/p names no spec.schedulerName: another scheduler's, not kbatch's",
        "a.yaml, document 2: Job default/j names no spec.schedulerName: another scheduler's, not kbatch's",
    )


@pytest.mark.parametrize("queue", ["default", "''"])
@pytest.mark.parametrize(
    ("named", "taken"),
    [
        ("", ("kube-batch", True)),
        ("schedulerName: default-scheduler,", ("kube-batch", True)),
        ("schedulerName: kube-batch,", ("kube-batch", True)),
        ("schedulerName: mine,", ("mine", False)),
    ],
)
def test_a_job_with_a_queue_is_taken_in_as_admission_does(named: str, taken: tuple[str, bool], queue: str) -> None:
    found = load(
        f"{{apiVersion: batch/v1, kind: Job, metadata: {{name: j, labels: {{kbatch.dev/queue: {queue}}}}}, "
        f"spec: {{template: {{spec: {{{named} containers: []}}}}}}}}"
    )
    job = found.objects[0].obj
    assert isinstance(job, Job)
    assert (job.spec.template.spec.scheduler_name, job.spec.suspend) == taken
    assert found.warnings == ()


def test_times_in_a_status_begin_with_the_simulation() -> None:
    loaded = load(
        "{apiVersion: scheduling.incubator.k8s.io/v1alpha1, kind: PodGroup, metadata: {name: g}, "
        "status: {phase: InQueue, conditions: [{type: Enqueued, status: 'True', "
        "lastTransitionTime: '2026-01-01T00:00:00Z'}]}}"
    )
    obj = loaded.objects[0].obj
    assert isinstance(obj, PodGroup)
    assert [each.last_transition_time for each in obj.status.conditions or ()] == ["2000-01-01T00:00:00Z"]


def test_an_annotation_of_the_simulation_that_it_does_not_know_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"metadata.annotations\[simulate.kbatch.dev/durtion\]: .*mean simulate.kbatch.dev/duration\?"
    ):
        load(pod("name: p, annotations: {simulate.kbatch.dev/durtion: '5'}"))
    made = "{metadata: {annotations: {simulate.kbatch.dev/x: '5'}}, spec: {containers: []}}"
    with pytest.raises(
        InputError, match=r"spec.template.metadata.annotations\[simulate.kbatch.dev/x\]: .*known: simul"
    ):
        load(f"{{apiVersion: batch/v1, kind: Job, metadata: {{name: j}}, spec: {{template: {made}}}}}")


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {parallelism: 2000000000", "spec.parallelism"),
        ("{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: r}, spec: {replicas: 2000000000", "spec.replicas"),
    ],
)
def test_more_pods_than_a_machine_can_hold_are_refused(text: str, field: str) -> None:
    with pytest.raises(InputError, match=rf"{field}: with these the input would make more than 1000000 pods"):
        load(text + ", template: {metadata: {}, spec: {containers: []}}}}")
    roles = ", ".join(
        f"{{name: {name}, maxMember: 600000, template: {{spec: {{containers: [{{name: c}}]}}}}}}" for name in "ab"
    )
    with pytest.raises(InputError, match=r"spec.subGroups: with these the input would make more than 1000000 pods"):
        load(group(f"subGroups: [{roles}]"))
    taken = "{apiVersion: batch/v1, kind: Job, metadata: {name: k}, spec: {parallelism: 3, completions: 2000000000"
    assert load(taken + ", template: {metadata: {}, spec: {containers: []}}}}").objects
