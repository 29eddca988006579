"""Dashboard and alerts as the chart ships them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Callable

CHART = Path(__file__).resolve().parents[3] / "charts" / "kbatch"
COMPONENTS = ("scheduler", "podgroup", "queue", "webhook")
OPERATOR = ("monitoring.coreos.com/v1",)


def test_nothing_of_it_is_there_unless_asked_for(render: Callable[..., Any]) -> None:
    plain = render(apis=OPERATOR)
    assert plain.of("PrometheusRule") == []
    assert not [name for name in plain.names("ConfigMap") if "dashboards" in name]


def test_the_dashboard_arrives_as_it_stands_in_its_file(render: Callable[..., Any]) -> None:
    rendered = render({"dashboards": {"enabled": True, "annotations": {"grafana_folder": "Batch"}}})
    config = rendered.one("ConfigMap", "kbatch-dashboards")
    assert config["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert config["metadata"]["annotations"] == {"grafana_folder": "Batch"}
    files = {path.name: path.read_text() for path in (CHART / "dashboards").glob("*.json")}
    assert files
    assert {name: json.loads(text) for name, text in config["data"].items()} == {
        name: json.loads(text) for name, text in files.items()
    }


def test_the_dashboard_may_live_where_grafana_looks(render: Callable[..., Any]) -> None:
    rendered = render({"dashboards": {"enabled": True, "namespace": "monitoring"}})
    assert rendered.one("ConfigMap", "kbatch-dashboards")["metadata"]["namespace"] == "monitoring"


def test_alerts_arrive_as_they_stand_in_their_file_where_somebody_reads_them(render: Callable[..., Any]) -> None:
    values = {"alerts": {"enabled": True, "labels": {"release": "prometheus"}}}
    assert render(values).of("PrometheusRule") == []
    (rule,) = render(values, apis=OPERATOR).of("PrometheusRule")
    assert rule["spec"] == yaml.safe_load((CHART / "alerts" / "kbatch.yaml").read_text())
    assert rule["metadata"]["labels"]["release"] == "prometheus"


def test_metrics_by_tls_for_those_who_may(render: Callable[..., Any]) -> None:
    metrics: dict[str, Any] = {"tls": {"secretName": "pair"}, "authorization": {"enabled": True}}
    values = {"metrics": {**metrics, "serviceMonitor": {"enabled": True}}}
    rendered = render(values, apis=OPERATOR)
    for component in COMPONENTS:
        container = rendered.container(component)
        assert {"--metrics-certificates=/etc/kbatch/metrics", "--metrics-authorization"} <= set(container["args"])
        (mount,) = (one for one in container["volumeMounts"] if one["mountPath"] == "/etc/kbatch/metrics")
        (volume,) = (one for one in rendered.pod_spec(component)["volumes"] if one["name"] == mount["name"])
        assert (volume["secret"]["secretName"], mount["readOnly"]) == ("pair", True)
        # A kubelet shows no token.
        assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "health"}
    binding = rendered.one("ClusterRoleBinding", "kbatch-metrics")
    assert binding["roleRef"]["name"] == "system:auth-delegator"
    assert {one["name"] for one in binding["subjects"]} == {f"kbatch-{component}" for component in COMPONENTS}
    reader = rendered.one("ClusterRole", "kbatch-metrics-reader")
    assert reader["rules"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    (endpoint,) = rendered.one("ServiceMonitor", "kbatch-metrics")["spec"]["endpoints"]
    assert endpoint["scheme"] == "https"
    assert endpoint["tlsConfig"] == {
        "ca": {"secret": {"name": "pair", "key": "ca.crt"}}, "serverName": "kbatch-metrics.kbatch-system.svc",
    }  # fmt: skip
    assert endpoint["bearerTokenFile"] == "/var/run/secrets/kubernetes.io/serviceaccount/token"
    own: dict[str, Any] = {
        "authorization": {"credentials": {"name": "s", "key": "k"}},
        "tlsConfig": {"insecureSkipVerify": True},
    }
    values = {"metrics": {**metrics, "serviceMonitor": {"enabled": True, **own}}}
    (endpoint,) = render(values, apis=OPERATOR).one("ServiceMonitor", "kbatch-metrics")["spec"]["endpoints"]
    assert {key: endpoint[key] for key in own} == own
    assert "bearerTokenFile" not in endpoint


def test_metrics_by_http_ask_for_no_rights(default: Any) -> None:
    assert not {"kbatch-metrics", "kbatch-metrics-reader"} & (
        default.names("ClusterRole") | default.names("ClusterRoleBinding")
    )
    for component in COMPONENTS:
        assert not [one for one in default.container(component)["args"] if "metrics-" in one and "port" not in one]
