"""The schema of the values: nothing unknown passes, and nothing known is forgotten."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import helm_python
import pytest
import yaml

from kbatch.api.configuration import Switch
from kbatch.engine import actions, plugins
from tools.chart_values import comments, files, rows

if TYPE_CHECKING:
    from collections.abc import Callable

CHART = Path(__file__).resolve().parents[3] / "charts" / "kbatch"
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
DEFAULTS: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())


def resolve(schema: dict[str, Any]) -> dict[str, Any]:
    reference = schema.get("$ref")
    return resolve(SCHEMA["definitions"][reference.rpartition("/")[2]]) if reference else schema


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    schema = resolve(schema)
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from nodes(inner, f"{path}.{name}")


def test_every_object_of_the_schema_is_closed() -> None:
    # What only Kubernetes can describe is passed through: the inside of an affinity, and what other charts say.
    passed_through = {"global", "nodeAffinity", "podAffinity", "podAntiAffinity", "tlsConfig", "authorization"}
    closed = 0
    for path, schema in nodes(SCHEMA):
        if schema.get("type") != "object" or path.rpartition(".")[2] in passed_through:
            continue
        assert schema.get("additionalProperties") is not None, path
        assert schema["additionalProperties"] is False or "type" in schema["additionalProperties"], path
        closed += schema["additionalProperties"] is False
    assert closed > 20


def test_every_value_has_a_default_and_every_default_is_in_the_schema() -> None:
    partly_given = {"podSecurityContext", "securityContext", "resources", "startup", "readiness", "liveness"}

    def compare(schema: dict[str, Any], defaults: dict[str, Any], path: str) -> None:
        properties = resolve(schema)["properties"]
        assert set(defaults) == set(properties) - {"global"}, path
        for name, value in defaults.items():
            # An object with a default of its own; that of a Kubernetes object may leave most of it out.
            if (
                isinstance(value, dict)
                and value
                and "properties" in resolve(properties[name])
                and name not in partly_given
            ):
                compare(properties[name], value, f"{path}.{name}")

    compare(SCHEMA, DEFAULTS, "")


@pytest.mark.parametrize("path", files(), ids=lambda path: path.name)
def test_what_is_said_of_the_values_is_generated(path: Path) -> None:
    assert path.read_text() == files()[path], "run python -m tools.chart_values"


def test_every_value_stands_in_the_readme_with_its_default() -> None:
    lines = (CHART / "README.md").read_text().splitlines()
    for path, _, default, _ in rows(SCHEMA, DEFAULTS):
        (line,) = (line for line in lines if line.startswith(f"| `{path}` |"))
        assert default in line


def test_comments_are_found_above_keys_and_not_in_texts() -> None:
    text = """# About a.
# And more.
a:
  # Of b.
  b: |
    # a text
    c: 1
  c: 2
# Apart.

d: {e: 1}
"""
    assert comments(text) == {"a": "About a. And more.", "a.b": "Of b."}


def test_the_values_files_of_the_tests_pass(chart: helm_python.Chart, values_files: dict[str, Any]) -> None:
    assert len(values_files) >= 12
    for values in values_files.values():
        chart.validate_schema(values)


def test_as_a_part_of_another_chart(chart: helm_python.Chart) -> None:
    chart.validate_schema({"global": {"imageRegistry": "registry.example"}})


@pytest.mark.parametrize(
    "values",
    [
        {"replicas": 2},
        {"scheduler": {"replica": 2}},
        {"scheduler": {"ports": {"webhook": 9443}}},
        {"podgroup": {"podDisruptionBudget": {"minAvailable": 1}}},
        {"queue": {"resources": {"request": {"cpu": 1}}}},
        {"webhook": {"certificates": {"certManager": {"issuer": "x"}}}},
        {"leaderElection": {"leaseSeconds": 15}},
        {"metrics": {"serviceMonitor": {"enable": True}}},
        {"securityContext": {"readonlyRootFilesystem": True}},
        {"scheduler": {"hostNetwork": True}},
        {"crds": {"install": True}},
    ],
    ids=json.dumps,
)
def test_an_unknown_value_is_refused(chart: helm_python.Chart, values: dict[str, Any]) -> None:
    with pytest.raises(helm_python.HelmValuesError, match=r"additional properties '[A-Za-z]+' not allowed"):
        chart.validate_schema(values)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"webhook": {"timeoutSeconds": 6}}, "maximum: got 6, want 5"),
        ({"webhook": {"failurePolicy": "Allow"}}, "must be one of 'Ignore', 'Fail'"),
        ({"webhook": {"url": "http://127.0.0.1:40123"}}, "does not match pattern"),
        ({"webhook": {"url": "https://127.0.0.1:40123/path"}}, "does not match pattern"),
        ({"webhook": {"certificates": {"source": "vault"}}}, "must be one of"),
        ({"scheduler": {"replicas": -1}}, "minimum: got -1, want 0"),
        ({"scheduler": {"replicas": "2"}}, "got string, want integer"),
        ({"scheduler": {"schedulePeriod": "1"}}, "does not match pattern"),
        ({"scheduler": {"configuration": {"actions": "allocate"}}}, "got object, want string"),
        ({"queue": {"ports": {"health": 80}}}, "minimum: got 80, want 1,?024"),
        ({"logLevel": "trace"}, "must be one of"),
        ({"image": {"digest": "abc"}}, "does not match pattern"),
        ({"webhook": {"dnsPolicy": "None"}}, "must be one of"),
        ({"scheduler": {"extraEnv": [{"value": "x"}]}}, "missing property 'name'"),
        ({"scheduler": {"probes": {"liveness": {"periodSeconds": 0}}}}, "minimum: got 0, want 1"),
        ({"networkPolicy": {"egress": {"apiServer": {"cidrs": ["10.0.0.1"]}}}}, "does not match pattern"),
        ({"podGroupQuota": {"count": 0}}, "minimum: got 0, want 1"),
        ({"networkPolicy": {"egress": {"apiServer": {"cidrs": ["10.0.0.256/32"]}}}}, "does not match pattern"),
        ({"networkPolicy": {"egress": {"apiServer": {"cidrs": ["10.0.0.0/33"]}}}}, "does not match pattern"),
        ({"networkPolicy": {"metricsFrom": [{"ipBlock": {"cidr": "10.0.0.0"}}]}}, "does not match pattern"),
        ({"networkPolicy": {"metricsFrom": [{"ipBlock": {"except": ["10.0.0.0/8"]}}]}}, "missing property 'cidr'"),
        ({"networkPolicy": {"metricsFrom": [{}]}}, "minProperties: got 0, want 1"),
        ({"scheduler": {"tolerations": [{"key": "gpu", "operator": "Exist"}]}}, "must be one of '', 'Exists', 'Equal'"),
        ({"queue": {"tolerations": [{"operator": "Exists", "effect": "NoScheduling"}]}}, "must be one of"),
        ({"probes": {"liveness": {"successThreshold": 2}}}, "value must be 1"),
        ({"webhook": {"probes": {"startup": {"successThreshold": 2}}}}, "value must be 1"),
        ({"queue": {"podDisruptionBudget": {"maxUnavailable": "101%"}}}, "does not match pattern"),
        ({"podgroup": {"extraVolumeMounts": [{"name": "more"}]}}, "missing property 'mountPath'"),
        ({"podgroup": {"extraVolumeMounts": [{"mountPath": "/more"}]}}, "missing property 'name'"),
        ({"podgroup": {"extraVolumes": [{"name": ""}]}}, "minLength: got 0, want 1"),
        ({"podSecurityContext": {"fsGroupChangePolicy": "Never"}}, "must be one of"),
        ({"podSecurityContext": {"runAsUser": -1}}, "minimum: got -1, want 0"),
        ({"podSecurityContext": {"seccompProfile": {"type": "runtime/default"}}}, "must be one of"),
        ({"podSecurityContext": {"sysctls": [{"name": "net.core.somaxconn"}]}}, "missing property 'value'"),
        ({"queue": {"securityContext": {"procMount": "default"}}}, "must be one of"),
        ({"metrics": {"serviceMonitor": {"interval": "1.5s"}}}, "does not match pattern"),
        ({"metrics": {"serviceMonitor": {"scrapeTimeout": "10s1m"}}}, "does not match pattern"),
        ({"webhook": {"certificates": {"certManager": {"issuerRef": {"kind": "ClusterIssuer"}}}}}, "'name' required"),
        ({"webhook": {"certificates": {"certManager": {"issuerRef": {"name": ""}}}}}, "minLength: got 0, want 1"),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
def test_a_wrong_value_is_refused_with_the_reason(chart: helm_python.Chart, values: dict[str, Any], why: str) -> None:
    with pytest.raises(helm_python.HelmValuesError, match=why):
        chart.validate_schema(values)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"scheduler": {"configuration": "actions: [\n"}}, "scheduler.configuration cannot be read: .*yaml"),
        ({"scheduler": {"configuration": "actions: allocate\n"}}, "scheduler.configuration: tiers is missing"),
        (
            {"scheduler": {"configuration": "action: allocate\n"}},
            'scheduler.configuration: unknown key "action"; known',
        ),
        (
            {"scheduler": {"configuration": "actions: enqueue, alocate\ntiers: [{plugins: [{name: gang}]}]\n"}},
            'scheduler.configuration: unknown action "alocate"; did you mean "allocate"\\?',
        ),
        (
            {"scheduler": {"configuration": "actions: [{name: Allocate}]\ntiers: [{plugins: [{name: gang}]}]\n"}},
            'unknown action "Allocate"; did you mean "allocate"\\?',
        ),
        (
            {"scheduler": {"configuration": "actions: allocate\ntiers: [{plugins: [{name: perdicates}]}]\n"}},
            'unknown plugin "perdicates"; did you mean "predicates"\\? .what another package adds stands in',
        ),
        (
            {"scheduler": {"configuration": "actions: allocate\ntiers: [{plugins: [{name: price}]}]\n"}},
            'unknown plugin "price"; known: binpack, conformance, .*topology .what another package',
        ),
        (
            {
                "scheduler": {
                    "configuration": "actions: allocate\ntiers: [{plugins: [{name: gang, enableJobsOrder: false}]}]\n"
                }
            },
            'unknown key of a plugin "enableJobsOrder"; did you mean "enableJobOrder"\\?',
        ),
        ({"metrics": {"authorization": {"enabled": True}}}, "metrics.tls.secretName must name a Secret"),
        ({"leaderElection": {"enabled": False}}, "replicas is 2, but without leaderElection.enabled"),
        (
            {"queue": {"extraArgs": ["--resync=5m", "--no-leader-elect"]}},
            r"queue.extraArgs: --no-leader-elect would overrule leaderElection.enabled .true.,.* set the value instead",
        ),
        ({"scheduler": {"extraArgs": ["--leader-elect=true"]}}, "scheduler.extraArgs: --leader-elect=true would"),
        (
            {"podgroup": {"extraEnv": [{"name": "KBATCH_LEADER_ELECT", "value": "0"}]}},
            "podgroup.extraEnv: KBATCH_LEADER_ELECT has no effect, .* take it out",
        ),
        ({"leaderElection": {"renewDeadline": "20s"}}, r"renewDeadline \(20s\), and that less than leaseDuration"),
        ({"leaderElection": {"retryPeriod": "0s"}}, r"retryPeriod \(0s\) must be less than"),
        ({"leaderElection": {"leaseDuration": "12500ms"}}, "leaseDuration is 12500ms: a Lease lasts whole seconds"),
        ({"webhook": {"certificates": {"source": "secret"}}}, "webhook.certificates.secretName must name it"),
        ({"queue": {"serviceAccount": {"create": False}}}, "queue.serviceAccount.name must name it"),
        ({"schedulerName": "default-scheduler"}, "that is the name of Kubernetes' own scheduler"),
        (
            {"scheduler": {"cycleGap": "2h"}},
            r"cycleGap \(2h\), .* must not be more than scheduler.schedulePeriod \(1s\)",
        ),
        ({"scheduler": {"cycleGap": "0ms"}}, "scheduler.cycleGap is 0ms: it must be more than 0"),
        (
            {"scheduler": {"cycleGap": "0s", "schedulePeriod": "0.0s"}},
            "scheduler.cycleGap is 0s: it must be more than 0",
        ),
        (
            {"networkPolicy": {"egress": {"enabled": True}}},
            "networkPolicy.egress.enabled has no effect without networkPolicy.enabled: set that too",
        ),
        (
            {"webhook": {"clientCertificates": {"names": ["kube-apiserver"]}}},
            "clientCertificates.names has no effect without webhook.clientCertificates.authority, and anybody",
        ),
        (
            {"metrics": {"service": {"enabled": False}, "serviceMonitor": {"enabled": True}}},
            "metrics.serviceMonitor.enabled needs metrics.service.enabled",
        ),
        (
            {"metrics": {"serviceMonitor": {"enabled": True, "interval": "5s"}}},
            r"metrics.serviceMonitor: scrapeTimeout \(10s\) must be .* not more than interval \(5s\)",
        ),
        (
            {"metrics": {"serviceMonitor": {"enabled": True, "interval": "1m", "scrapeTimeout": "1m0s1ms"}}},
            r"scrapeTimeout \(1m0s1ms\) must be .* not more than interval \(1m\)",
        ),
        (
            {"metrics": {"serviceMonitor": {"enabled": True, "interval": "15s", "scrapeTimeout": "0s"}}},
            r"scrapeTimeout \(0s\) must be more than 0",
        ),
        (
            {"webhook": {"certificates": {"source": "certManager", "certManager": {"duration": "720h"}}}},
            r"certManager: duration \(720h\) must be more than renewBefore \(720h\)",
        ),
        (
            {"webhook": {"ports": {"webhook": 8081}}},
            "webhook.ports: (health and webhook|webhook and health) are both 8081",
        ),
    ],
)
def test_values_that_contradict_each_other_are_refused(
    render: Callable[..., Any], values: dict[str, Any], why: str
) -> None:
    with pytest.raises(helm_python.HelmRenderError, match=why):
        render(values)


def test_what_kubernetes_takes_passes(chart: helm_python.Chart) -> None:
    ranges = ["0.0.0.0/0", "10.0.0.1/32", "255.250.199.9/8", "::/0", "fd00::1/128", "::ffff:10.0.0.0/104"]
    tolerations = [
        {"operator": "Exists"},
        {"key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute"},
        {"key": "a", "effect": ""},
    ]
    chart.validate_schema(
        {
            "networkPolicy": {
                "egress": {"apiServer": {"cidrs": ranges}},
                "metricsFrom": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}, {"podSelector": {}}],
            },
            "probes": {"readiness": {"successThreshold": 2}, "liveness": {"successThreshold": 1}},
            "queue": {
                "tolerations": tolerations,
                "podDisruptionBudget": {"maxUnavailable": "100%"},
                "extraVolumeMounts": [{"name": "a", "mountPath": "/a", "subPath": "b", "readOnly": True}],
            },
        }
    )


def test_durations_that_prometheus_takes(render: Callable[..., Any]) -> None:
    for interval, timeout in (("1m", "1m"), ("1m30s", "1m29s999ms"), ("1d", "23h59m")):
        monitor = {"enabled": True, "interval": interval, "scrapeTimeout": timeout}
        rendered = render({"metrics": {"serviceMonitor": monitor}}, apis=("monitoring.coreos.com/v1",))
        (endpoint,) = rendered.one("ServiceMonitor", "kbatch-metrics")["spec"]["endpoints"]
        assert (endpoint["interval"], endpoint["scrapeTimeout"]) == (interval, timeout)


def known_words(chart_folder: Path) -> dict[str, list[str]]:
    """What the chart takes for the words of a scheduler configuration, as its template says it."""
    text = (chart_folder / "templates" / "scheduler" / "_words.tpl").read_text()
    lines = text.partition('define "kbatch.words" -}}')[2].partition("{{- end -}}")[0].splitlines()
    found = yaml.safe_load("\n".join(line for line in lines if "{{" not in line))
    switches = re.findall(r'"(\w+)"', next(line for line in lines if "range" in line))
    prefixes = [line.strip(" -").partition("{{")[0] for line in lines if line.endswith("{{ . }}")]
    found["key of a plugin"] += [prefix + switch for switch in switches for prefix in prefixes]
    return {what: list(words) for what, words in found.items()}


def test_the_words_of_a_configuration_are_those_that_the_scheduler_knows() -> None:
    words = known_words(CHART)
    assert set(words["action"]) == set(actions.BUILTIN)
    assert set(words["plugin"]) == set(plugins.BUILTIN)
    switches = {f"{prefix}{switch.value}" for switch in Switch for prefix in ("enable", "disable")}
    assert set(words["key of a plugin"]) == {"name", "arguments"} | switches


def configured(*names: str) -> str:
    listed = ", ".join(f"{{name: {name}}}" for name in names)
    return f"actions: [allocate, {{name: backfill, arguments: {{mode: easy}}}}]\ntiers: [{{plugins: [{listed}]}}]\n"


def test_plugins_of_other_packages_may_be_named(render: Callable[..., Any]) -> None:
    for scheduler in (
        {"configuration": configured("gang", "price"), "extensions": ["price"]},
        {"configuration": configured("gang", "example.com/price", "example.price")},
    ):
        assert render({"scheduler": scheduler}).of("ConfigMap")


@pytest.mark.parametrize("name", sorted(plugins.BUILTIN))
def test_whatever_letter_is_wrong_the_right_name_is_named(render: Callable[..., Any], name: str) -> None:
    middle = len(name) // 2
    spoilt = [name[1:], name[:-1], name[:middle] + name[middle + 1 :], f"{name}s", name[:middle] + "x" + name[middle:]]
    swapped = f"{name[: middle - 1]}{name[middle]}{name[middle - 1]}{name[middle + 1 :]}"
    for wrong in {*spoilt, swapped} - {name}:
        with pytest.raises(helm_python.HelmRenderError, match=f'unknown plugin "{wrong}"; did you mean "{name}"'):
            render({"scheduler": {"configuration": configured(wrong)}})
