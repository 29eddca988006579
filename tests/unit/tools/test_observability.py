"""Dashboard, alerts and the page of metrics agree with the classes that export the metrics."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools import catalogue, dashboards

ROOT = Path(__file__).resolve().parents[3]
ALERTS = ROOT / "charts" / "kbatch" / "alerts" / "kbatch.yaml"
RULE_TESTS = ROOT / "tests" / "data" / "alerts-test.yaml"
PROMTOOL = shutil.which("promtool")

SERIES = {series: one for one in catalogue.everything().values() for series in one.series}


def rules() -> list[dict[str, Any]]:
    groups: list[dict[str, Any]] = yaml.safe_load(ALERTS.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_the_shipped_dashboard_is_what_the_panels_make() -> None:
    (path,) = dashboards.FOLDER.glob("*.json")
    assert path.read_text() == dashboards.text(), "run python -m tools.dashboards"


def test_the_page_of_metrics_is_what_the_classes_make() -> None:
    assert catalogue.PAGE.read_text() == catalogue.page(), "run python -m tools.catalogue"


@pytest.mark.parametrize(("title", "expression"), dashboards.queries())
def test_a_panel_asks_only_for_metrics_and_labels_that_exist(title: str, expression: str) -> None:
    names = dashboards.names_in(expression)
    assert names or "process_" in expression, title
    assert names <= SERIES.keys(), names - SERIES.keys()


def test_every_alert_asks_only_for_metrics_that_exist() -> None:
    for rule in rules():
        names = dashboards.names_in(rule["expr"])
        assert names
        assert names <= SERIES.keys(), names - SERIES.keys()
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert {"summary", "description"} == rule["annotations"].keys()


def test_panels_do_not_overlap_and_stay_within_the_grid() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboards.dashboard()["panels"]:
        place = panel["gridPos"]
        cells = {
            (place["x"] + column, place["y"] + row) for column in range(place["w"]) for row in range(place["h"])
        }  # fmt: skip
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


def test_what_a_queue_or_a_process_has_is_in_the_dashboard() -> None:
    shown = set().union(*(dashboards.names_in(expression) for _, expression in dashboards.queries()))
    for process in catalogue.CLASSES:
        described = {one for one in catalogue.catalogue(process) if not one.name.startswith("kube_batch_")}
        assert any(shown & set(one.series) for one in described), process
    assert {one.name for one in catalogue.catalogue("queue") if one.name.startswith("kbatch_queue_")} <= shown


PANELS = [panel for row in dashboards.ROWS for panel in row.panels]


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.title)
def test_a_panels_unit_is_that_of_its_queries(panel: dashboards.Panel) -> None:
    for query in panel.queries:
        expression = query.expression
        if "histogram_quantile" in expression or "- time()" in expression:
            expected = {"s"}
        elif re.search(r"rate\(\w+_seconds_(sum|total)\b", expression):
            expected = {"percentunit", "short"}  # seconds in a second: a share of a processor, or how many at once
        elif "rate(" in expression:
            expected = {"ops", "reqps"} | ({"short"} if panel.kind == "stat" else set())
        elif name := re.search(r"_(seconds|bytes|ratio)\b", expression):
            expected = {{"seconds": "s", "bytes": "bytes", "ratio": "percentunit"}[name[1]]}
        else:
            expected = {"short"}
        assert panel.unit in expected, expression


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.title)
def test_a_graph_shows_what_happened_at_each_time_and_not_in_all_of_it(panel: dashboards.Panel) -> None:
    assert panel.kind == "stat" or not any("$__range" in query.expression for query in panel.queries)


def test_objects_that_are_left_out_and_a_loop_that_is_held_are_shown() -> None:
    shown = set().union(*(dashboards.names_in(expression) for _, expression in dashboards.queries()))
    assert {"kbatch_watch_unreadable_total", "kbatch_scheduler_slice_seconds_bucket"} <= shown


def test_the_dashboard_is_json_with_one_id_for_each_panel() -> None:
    read = json.loads(dashboards.text())
    ids = [panel["id"] for panel in read["panels"]]
    assert len(ids) == len(set(ids))
    assert read["uid"] == dashboards.UID


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (apt-get install prometheus)")
def test_alerts_fire_when_they_should_and_only_then(tmp_path: Path) -> None:
    """promtool looks for the rules beside the tests."""
    shutil.copy(ALERTS, tmp_path / "kbatch.yaml")
    shutil.copy(RULE_TESTS, tmp_path / "test.yaml")
    for command in (["check", "rules", "kbatch.yaml"], ["test", "rules", "test.yaml"]):
        ran = subprocess.run(
            [PROMTOOL or "", *command], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_alert_has_a_paragraph_that_says_what_to_do() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    rows = re.findall(r"^\| (Kbatch\w+) \| (\w+) \|", page, re.MULTILINE)
    assert rows == [(rule["alert"], rule["labels"]["severity"]) for rule in rules()]
    paragraphs = dict(re.findall(r"^\*\*(Kbatch\w+)\*\* (.+(?:\n.+)*)", page, re.MULTILINE))
    assert paragraphs.keys() == {rule["alert"] for rule in rules()}
    assert all(len(text) > 100 for text in paragraphs.values())


def test_every_alert_has_a_test() -> None:
    tested = {
        check["alertname"]
        for test in yaml.safe_load(RULE_TESTS.read_text())["tests"]
        for check in test["alert_rule_test"]
    }  # fmt: skip
    assert tested == {rule["alert"] for rule in rules()}
