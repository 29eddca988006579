"""What Helm makes of the chart, with several values: objects that Kubernetes takes, under the right names."""

from __future__ import annotations

import copy
import functools
import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import helm_python
import pytest
import yaml
from kubernetes_validate import utils

from kbatch.api.names import DEFAULT_QUEUE_ANNOTATION, SCHEDULER_NAME_ANNOTATION
from kbatch.cli.configuration import KEY, SCHEDULER_LABELS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHART = Path(__file__).resolve().parents[3] / "charts" / "kbatch"
VALUES = sorted((CHART / "ci").glob("*-values.yaml"))
KUBERNETES = [f"1.{minor}" for minor in range(30, 38)]
NOT_KUBERNETES = {"cert-manager.io", "monitoring.coreos.com"}
COMPONENTS = ("scheduler", "podgroup", "queue", "webhook")


@pytest.fixture(params=VALUES, ids=lambda path: path.name.removesuffix("-values.yaml"))
def rendered(request: pytest.FixtureRequest, render: Callable[..., Any]) -> Any:
    return render(yaml.safe_load(request.param.read_text()), apis=("monitoring.coreos.com/v1",))


@pytest.mark.parametrize("path", VALUES, ids=lambda path: path.name.removesuffix("-values.yaml"))
def test_lint_finds_nothing(path: Path) -> None:
    report = helm_python.lint(CHART, yaml.safe_load(path.read_text()), strict=True, kube_version="v1.30.0")
    assert report["total_charts_linted"] == 1
    assert not report["errors"]
    assert report["messages"] == []


@pytest.fixture(scope="module")
def objects(render: Callable[..., Any]) -> list[Any]:
    """What Helm makes of all the values files, each object that differs once."""
    found: dict[str, Any] = {}
    for path in VALUES:
        rendered = render(yaml.safe_load(path.read_text()), apis=("monitoring.coreos.com/v1",))
        assert len(rendered.objects) >= 17
        for item in rendered.objects:
            if item["apiVersion"].partition("/")[0] not in NOT_KUBERNETES:
                found.setdefault(json.dumps(item, sort_keys=True), item)
    return list(found.values())


@pytest.mark.parametrize("version", KUBERNETES)
def test_objects_match_the_schemas_of_kubernetes(
    objects: list[Any], version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # kubernetes-validate reads its schemas from disk for every object; here it keeps them.
    monkeypatch.setattr(utils, "schema_contents", functools.cache(utils.schema_contents))
    assert len(VALUES) >= 12
    assert {item["kind"] for item in objects} >= {"Deployment", "CustomResourceDefinition", "ValidatingAdmissionPolicy"}
    for item in objects:
        utils.validate(item, version, strict=True)


def test_a_field_that_kubernetes_does_not_know_would_be_found(objects: list[Any]) -> None:
    deployment = copy.deepcopy(next(item for item in objects if item["kind"] == "Deployment"))
    deployment["spec"]["template"]["spec"]["hostNetworks"] = True
    for version in KUBERNETES:
        with pytest.raises(utils.ValidationError):
            utils.validate(deployment, version, strict=True)


def test_no_object_is_made_twice(rendered: Any) -> None:
    keys = [
        (item["apiVersion"], item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"])
        for item in rendered.objects
    ]
    assert len(keys) == len(set(keys))


def test_every_object_says_to_whom_it_belongs(rendered: Any) -> None:
    for item in rendered.objects:
        labels = item["metadata"]["labels"]
        assert labels["app.kubernetes.io/managed-by"] == "Helm"
        if "helm.sh/hook" not in item["metadata"].get("annotations", {}):
            assert {"helm.sh/chart", "app.kubernetes.io/instance", "app.kubernetes.io/version"} <= set(labels)


@pytest.mark.parametrize("release", ["123", "true", "1e3"])
def test_labels_are_texts_whatever_the_release_is_called(render: Callable[..., Any], release: str) -> None:
    for item in render({"nameOverride": "12", "fullnameOverride": "full"}, release=release).objects:
        labels = item["metadata"]["labels"]
        assert all(isinstance(value, str) for value in labels.values()), labels
        if "helm.sh/hook" not in item["metadata"].get("annotations", {}):
            assert (labels["app.kubernetes.io/instance"], labels["app.kubernetes.io/name"]) == (release, "12")


def test_selectors_find_the_pods_and_nothing_else(rendered: Any) -> None:
    pods = {
        item["metadata"]["labels"]["app.kubernetes.io/component"]: item["spec"]["template"]["metadata"]["labels"]
        for item in rendered.of("Deployment")
    }
    assert set(pods) == set(COMPONENTS)

    def found(selector: dict[str, str]) -> set[str]:
        return {component for component, labels in pods.items() if selector.items() <= labels.items()}

    for item in [*rendered.of("Deployment"), *rendered.of("PodDisruptionBudget")]:
        component = item["metadata"]["labels"]["app.kubernetes.io/component"]
        assert found(item["spec"]["selector"]["matchLabels"]) == {component}
    for item in rendered.of("Service"):
        component = item["metadata"]["labels"]["app.kubernetes.io/component"]
        assert found(item["spec"]["selector"]) == ({"webhook"} if component == "webhook" else set(COMPONENTS))
    for pod in rendered.of("Pod"):
        for service in rendered.of("Service"):
            assert not service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()


def test_names_of_the_objects(default: Any, render: Callable[..., Any]) -> None:
    assert default.names("Deployment") == {f"kbatch-{component}" for component in COMPONENTS}
    assert default.names("ServiceAccount") == default.names("Deployment") | {"kbatch-gang-test"}
    assert default.names("ConfigMap") == {"kbatch-scheduler", "kbatch-queue-access"}
    assert render(release="prod").names("Deployment") == {f"prod-kbatch-{component}" for component in COMPONENTS}
    assert render({"fullnameOverride": "b"}).names("Deployment") == {f"b-{component}" for component in COMPONENTS}


def test_the_command_line_finds_the_schedulers_configuration(default: Any, render: Callable[..., Any]) -> None:
    wanted = dict(label.split("=") for label in SCHEDULER_LABELS.split(","))
    for release in (default, render({"nameOverride": "other"}, release="prod"), render({"fullnameOverride": "b"})):
        found = [one for one in release.of("ConfigMap") if wanted.items() <= one["metadata"]["labels"].items()]
        assert [list(one["data"]) for one in found] == [[KEY]]
    found = [
        one
        for one in render({"schedulerName": "s", "defaultQueue": "q"}).of("ConfigMap")
        if KEY in (one.get("data") or {})
    ]
    says = {SCHEDULER_NAME_ANNOTATION: "s", DEFAULT_QUEUE_ANNOTATION: "q"}
    assert [one["metadata"]["annotations"] for one in found] == [says]


def test_helm_owns_no_queue_and_no_group(rendered: Any) -> None:
    assert {"Queue", "PodGroup"}.isdisjoint(item["kind"] for item in rendered.objects)


def test_the_crds_come_with_the_chart_and_stay_when_it_goes(chart: helm_python.Chart, default: Any) -> None:
    assert chart.crds == []  # what lies in that folder Helm makes once, and never changes again
    made = {item["metadata"]["name"]: item for item in default.of("CustomResourceDefinition")}
    files = [yaml.safe_load(path.read_text()) for path in (CHART.parents[1] / "crds").iterdir()]
    assert len(files) == len(made) == 2
    for crd in files:
        ours = made[crd["metadata"]["name"]]
        assert ours["spec"] == crd["spec"]
        kept = {"helm.sh/resource-policy": "keep"}
        assert ours["metadata"]["annotations"] == crd["metadata"]["annotations"] | kept


@pytest.mark.parametrize("queue", ["everybody", "123", "true"])
def test_a_group_that_names_no_queue_belongs_to_that_of_the_values(render: Callable[..., Any], queue: str) -> None:
    """The API server fills in what the CRD says before it asks any webhook."""
    crd = render({"defaultQueue": queue}).one("CustomResourceDefinition", "podgroups.scheduling.incubator.k8s.io")
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert spec["properties"]["queue"]["default"] == queue


def test_labels_of_the_values_never_take_the_place_of_the_charts(render: Callable[..., Any]) -> None:
    container = "kubectl.kubernetes.io/default-container"
    own = ("name", "instance", "part-of", "component", "managed-by", "version")
    theirs = {f"app.kubernetes.io/{name}": "platform" for name in own}
    values = {
        "commonLabels": {**theirs, "team": "a"},
        "scheduler": {"podLabels": {**theirs, "team": "b"}, "podAnnotations": {container: "x"}},
        "dashboards": {"enabled": True, "labels": {**theirs, "team": "c"}},
        "crds": {"annotations": {"helm.sh/resource-policy": "delete", "a": "b"}},
    }  # fmt: skip
    rendered = render(values)
    for item in rendered.objects:
        labels = item["metadata"].get("labels", {})
        replaced = [name for name in own if labels.get(f"app.kubernetes.io/{name}") == "platform"]
        assert replaced in ([], ["component"]), item["metadata"]["name"]  # an object of no process has no component
    for item in rendered.of("Deployment"):
        found = item["spec"]["template"]["metadata"]
        assert item["spec"]["selector"]["matchLabels"].items() <= found["labels"].items()
        assert found["labels"]["team"] == ("b" if item["metadata"]["name"].endswith("scheduler") else "a")
        name = item["metadata"]["labels"]["app.kubernetes.io/component"]
        assert found["annotations"][container] == name
    assert rendered.one("ConfigMap", "kbatch-dashboards")["metadata"]["labels"]["team"] == "c"
    for item in rendered.of("CustomResourceDefinition"):
        assert item["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
        assert item["metadata"]["annotations"]["a"] == "b"


def test_crds_of_somebody_else_and_crds_that_go_too(render: Callable[..., Any]) -> None:
    assert render({"crds": {"enabled": False}}).of("CustomResourceDefinition") == []
    rendered = render({"crds": {"keep": False, "annotations": {"a": "b"}}})
    for crd in rendered.of("CustomResourceDefinition"):
        assert crd["metadata"]["annotations"].keys() == {"api-approved.kubernetes.io", "a"}


def test_what_only_the_tests_need_is_not_part_of_the_chart(chart: helm_python.Chart) -> None:
    names = {file["name"] for file in chart.files}
    assert {"files/review_podgroup.py", "files/place_gang.py", "files/crds/queues.yaml"} <= names
    assert not {name for name in names if name.startswith(("ci/", "__pycache__/"))}


def test_budgets_only_where_there_is_more_than_one_replica(render: Callable[..., Any]) -> None:
    assert render({"queue": {"replicas": 1}, "webhook": {"replicas": 0}}).names("PodDisruptionBudget") == {
        "kbatch-scheduler",
        "kbatch-podgroup",
    }
    disabled = {component: {"podDisruptionBudget": {"enabled": False}} for component in COMPONENTS}
    assert render(disabled).of("PodDisruptionBudget") == []


def test_service_monitor_only_where_it_is_wanted_and_known(render: Callable[..., Any]) -> None:
    wanted = {"metrics": {"serviceMonitor": {"enabled": True}}}
    assert render(apis=("monitoring.coreos.com/v1",)).of("ServiceMonitor") == []
    unknown = render(wanted)
    assert unknown.of("ServiceMonitor") == []
    assert "no ServiceMonitor API" in unknown.notes
    known = render(wanted, apis=("monitoring.coreos.com/v1",))
    (monitor,) = known.of("ServiceMonitor")
    (service,) = (item for item in known.of("Service") if item["metadata"]["name"] == "kbatch-metrics")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert "no ServiceMonitor API" not in known.notes


def test_network_policies_leave_the_declared_ports_open(render: Callable[..., Any], default: Any) -> None:
    assert default.of("NetworkPolicy") == []
    rendered = render({"networkPolicy": {"enabled": True}})
    open_ports = {
        port["port"]
        for policy in rendered.of("NetworkPolicy")
        for rule in policy["spec"]["ingress"]
        for port in rule["ports"]
    }
    declared = {port["name"] for component in COMPONENTS for port in rendered.container(component)["ports"]}
    assert open_ports == declared == {"health", "metrics", "webhook"}


def test_service_monitors_say_what_prometheus_is_to_do(render: Callable[..., Any]) -> None:
    given = {
        "enabled": True,
        "scheme": "https",
        "tlsConfig": {"insecureSkipVerify": True},
        "authorization": {"credentials": {"name": "s", "key": "k"}},
        "relabelings": [{"targetLabel": "cluster", "replacement": "north"}],
        "metricRelabelings": [{"regex": "python_.*", "action": "drop"}],
    }
    rendered = render({"metrics": {"serviceMonitor": given}}, apis=("monitoring.coreos.com/v1",))
    (endpoint,) = rendered.one("ServiceMonitor", "kbatch-metrics")["spec"]["endpoints"]
    assert {key: endpoint[key] for key in given if key != "enabled"} == {
        k: v for k, v in given.items() if k != "enabled"
    }
    plain = render({"metrics": {"serviceMonitor": {"enabled": True}}}, apis=("monitoring.coreos.com/v1",))
    (endpoint,) = plain.one("ServiceMonitor", "kbatch-metrics")["spec"]["endpoints"]
    assert endpoint.keys() == {"port", "path", "interval", "scrapeTimeout", "scheme"}


def test_outgoing_connections_are_those_that_are_needed(render: Callable[..., Any]) -> None:
    def policy(egress: Any) -> Any:
        rendered = render({"networkPolicy": {"enabled": True, "egress": egress}})
        assert rendered.one("NetworkPolicy", "kbatch-webhook")["spec"]["policyTypes"] == ["Ingress"]
        return rendered.one("NetworkPolicy", "kbatch")["spec"]

    assert policy({})["policyTypes"] == ["Ingress"]
    assert "egress" not in policy({})
    server, dns = policy({"enabled": True})["egress"]
    assert ([port["port"] for port in server["ports"]], "to" in server) == ([443, 6443], False)
    assert {(port["port"], port["protocol"]) for port in dns["ports"]} == {(53, "UDP"), (53, "TCP")}
    server, _ = policy({"enabled": True, "apiServer": {"cidrs": ["10.0.0.1/32"], "ports": [6443]}})["egress"]
    assert (server["to"], len(server["ports"])) == ([{"ipBlock": {"cidr": "10.0.0.1/32"}}], 1)


def test_quotas_that_let_the_processes_be_and_limit_groups(default: Any, render: Callable[..., Any]) -> None:
    (quota,) = default.of("ResourceQuota")
    (scope,) = quota["spec"]["scopeSelector"]["matchExpressions"]
    assert (scope["scopeName"], scope["values"]) == ("PriorityClass", ["system-cluster-critical"])
    assert quota["metadata"]["namespace"] == "kbatch-system"
    for values in ({"priorityClassQuota": False}, {"priorityClassName": "ours"}, {"priorityClassName": ""}):
        assert render(values).of("ResourceQuota") == []
    mixed = render({"webhook": {"priorityClassName": "system-node-critical"}})
    assert mixed.of("ResourceQuota")[0]["spec"]["scopeSelector"]["matchExpressions"][0]["values"] == [
        "system-cluster-critical", "system-node-critical",
    ]  # fmt: skip
    limited = render({"priorityClassQuota": False, "podGroupQuota": {"count": 2000000, "namespaces": ["a", "b"]}})
    assert [one["metadata"]["namespace"] for one in limited.of("ResourceQuota")] == ["a", "b"]
    for one in limited.of("ResourceQuota"):
        assert one["spec"] == {"hard": {"count/podgroups.scheduling.incubator.k8s.io": "2000000"}}
    assert len(render({"podGroupQuota": {"count": None, "namespaces": ["a"]}}).of("ResourceQuota")) == 1


def test_an_overridden_name_changes_selectors_as_the_readme_says(render: Callable[..., Any], default: Any) -> None:
    before = default.one("Deployment", "kbatch-queue")["spec"]["selector"]
    after = render({"nameOverride": "batch"}).one("Deployment", "kbatch-queue")["spec"]["selector"]
    assert after != before
    assert render({"fullnameOverride": "x"}).one("Deployment", "x-queue")["spec"]["selector"] == before


@pytest.mark.parametrize("source", ["helm", "certManager"])
def test_names_of_digits_are_names(render: Callable[..., Any], source: str) -> None:
    """YAML would read them as numbers, which the API server refuses."""
    digits = itertools.count(7001)

    def number() -> str:
        return str(next(digits))

    own = {
        component: {"priorityClassName": number(), "serviceAccount": {"name": number()}}
        for component in ("scheduler", "podgroup", "queue", "webhook")
    }
    own["webhook"] |= {"quotaPolicy": "Reject", "ledgerNamespace": number(), "excludedNamespaces": [number()]}
    own["webhook"]["certificates"] = {"source": source, "secretName": number()}
    values: dict[str, Any] = {
        **own,
        "fullnameOverride": number(),
        "nameOverride": number(),
        "namespaces": [number(), number()],
        "schedulerName": number(),
        "defaultQueue": number(),
        "priorityAndFairness": {"leases": number(), "scheduler": number()},
        "imagePullSecrets": [{"name": number()}],
        "metrics": {"tls": {"secretName": number()}, "serviceMonitor": {"enabled": True}},
        "dashboards": {"enabled": True, "namespace": number()},
        "networkPolicy": {"enabled": True},
        "alerts": {"enabled": True},
    }
    rendered = render(values, release=number(), namespace=number(), apis=("monitoring.coreos.com/v1",))

    def numbers(value: Any, path: str) -> Iterator[str]:
        if isinstance(value, dict):
            for key, inner in value.items():
                assert isinstance(key, str), path
                yield from numbers(inner, f"{path}.{key}")
        elif isinstance(value, list):
            for inner in value:
                yield from numbers(inner, path)
        elif isinstance(value, int) and 7001 <= value <= 7100:
            yield path

    assert [path for item in rendered.objects for path in numbers(item, item["kind"])] == []
    assert next(digits) < 7100


def test_leases_and_the_scheduler_do_not_stand_in_line_with_all_accounts(
    default: Any, render: Callable[..., Any]
) -> None:
    def accounts(schema: Any) -> set[str]:
        (rule,) = schema["spec"]["rules"]
        assert {subject["serviceAccount"]["namespace"] for subject in rule["subjects"]} == {"kbatch-system"}
        return {subject["serviceAccount"]["name"] for subject in rule["subjects"]}

    leases, scheduler = default.one("FlowSchema", "kbatch-leases"), default.one("FlowSchema", "kbatch-scheduler")
    assert accounts(leases) == {"kbatch-scheduler", "kbatch-podgroup", "kbatch-queue"}
    assert leases["spec"]["priorityLevelConfiguration"]["name"] == "leader-election"
    (rule,) = leases["spec"]["rules"][0]["resourceRules"]
    assert (rule["resources"], rule["namespaces"]) == (["leases"], ["kbatch-system"])
    assert accounts(scheduler) == {"kbatch-scheduler"}
    assert scheduler["spec"]["priorityLevelConfiguration"]["name"] == "workload-high"
    # The smaller comes first; 9000 is Kubernetes' own for all ServiceAccounts.
    assert leases["spec"]["matchingPrecedence"] < scheduler["spec"]["matchingPrecedence"] < 9000
    alone = render({"leaderElection": {"enabled": False}, **{name: {"replicas": 1} for name in COMPONENTS}})
    assert alone.names("FlowSchema") == {"kbatch-scheduler"}
    assert render({"priorityAndFairness": {"enabled": False}}).of("FlowSchema") == []


def test_notes_say_what_to_type_next(default: Any, render: Callable[..., Any]) -> None:
    assert "kubectl get queue default" in default.notes
    assert 'schedulerName: "kube-batch"' in default.notes
    assert "WARNING" not in default.notes
    assert "less than two replicas" in render({"webhook": {"failurePolicy": "Fail", "replicas": 1}}).notes


def test_user_roles_become_part_of_those_of_kubernetes(default: Any) -> None:
    edit, view = default.one("ClusterRole", "kbatch-edit"), default.one("ClusterRole", "kbatch-view")
    assert edit["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-edit"] == "true"
    assert "rbac.authorization.k8s.io/aggregate-to-view" not in edit["metadata"]["labels"]
    assert view["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"] == "true"
    assert {resource for rule in edit["rules"] for resource in rule["resources"]} == {"podgroups"}
    assert {verb for rule in view["rules"] for verb in rule["verbs"]} == {"get", "list", "watch"}
