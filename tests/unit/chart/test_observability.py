"""Dashboard and alerts as the chart ships them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Callable

CHART = Path(__file__).resolve().parents[3] / "charts" / "kbatch"
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
