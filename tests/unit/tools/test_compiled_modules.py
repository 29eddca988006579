"""Which files the compiled engine is made of, and what makes it out of date."""

from __future__ import annotations

from pathlib import Path

from tools.compiled import modules


def test_what_tools_leave_in_the_package_is_no_source(tmp_path: Path) -> None:
    package = tmp_path / modules.PACKAGE
    (package / "engine").mkdir(parents=True)
    (package / "engine" / "cycle.py").write_text("x = 1\n", "utf-8")
    (tmp_path / "uv.lock").write_text("", "utf-8")
    before = modules.digest(tmp_path)
    for left in (".ruff_cache", "engine/.ruff_cache", "engine/__pycache__"):
        (package / left).mkdir()
        (package / left / "left.py").write_text("", "utf-8")
    assert modules.digest(tmp_path) == before
    assert [path.name for path in modules.sources(tmp_path)] == ["cycle.py"]
    (package / "engine" / "plugin.toml").write_text("", "utf-8")
    assert modules.digest(tmp_path) != before
