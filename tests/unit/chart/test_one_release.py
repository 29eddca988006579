"""A second installation in a cluster is refused, and the first one is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import helm_python
import pytest

CHART = Path(__file__).resolve().parents[3] / "charts" / "kbatch"
LOOKUP = 'lookup "admissionregistration.k8s.io/v1" "MutatingWebhookConfiguration" "" ""'


def render(folder: Path, found: dict[str, Any]) -> str:
    """The chart as the release kbatch in kbatch-system, in a cluster where these configurations are."""
    shutil.copytree(CHART, folder)
    (folder / "found.json").write_text(json.dumps(found))
    template = folder / "templates" / "one-release.yaml"
    assert template.read_text().count(LOOKUP) == 1
    template.write_text(template.read_text().replace(LOOKUP, '.Files.Get "found.json" | fromJson'))
    with helm_python.Chart.load(folder) as chart:
        options = json.dumps({"name": "kbatch", "namespace": "kbatch-system", "is_install": True})
        return str(helm_python._native.call_string("helm_render", chart._raw(), "{}", options))


def configuration(name: str, namespace: str, part_of: str = "kbatch") -> dict[str, Any]:
    owner = {"meta.helm.sh/release-name": name, "meta.helm.sh/release-namespace": namespace}
    return {"metadata": {"labels": {"app.kubernetes.io/part-of": part_of}, "annotations": owner}}


@pytest.mark.parametrize(
    "items",
    [
        [configuration("kbatch", "kbatch-system")],
        [configuration("other", "elsewhere", part_of="other"), {"metadata": {}}],
        [{"metadata": {"labels": {"app.kubernetes.io/part-of": "kbatch"}}}],
        [],
    ],
    ids=["its own", "of others", "of nobody", "none"],
)
def test_what_is_no_other_release_of_it_is_no_hindrance(tmp_path: Path, items: list[dict[str, Any]]) -> None:
    assert "kbatch-scheduler" in render(tmp_path / "chart", {"items": items})


@pytest.mark.parametrize(("name", "namespace"), [("kbatch", "team-a"), ("second", "kbatch-system")])
def test_another_release_is_named(tmp_path: Path, name: str, namespace: str) -> None:
    with pytest.raises(helm_python.HelmRenderError, match=f"as release {name} in namespace {namespace}: a cluster has"):
        render(tmp_path / "chart", {"items": [configuration(name, namespace)]})
