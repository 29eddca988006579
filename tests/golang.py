"""Programs in Go that tests use, compiled once for each state of their sources into the user's cache."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from kbatch.localcluster.folders import cache_root
from kbatch.localcluster.golang import find_go


def built(folder: Path, name: str, progress: Callable[[str], None], *, package: str = ".") -> Path:
    """The program `name` of the Go module in `folder`; `package`: which of its packages it is, or of those it names."""
    sources = [one for one in (folder / "go.mod", folder / "go.sum", *sorted(folder.glob("*.go"))) if one.exists()]
    digest = hashlib.sha256(b"".join(hashlib.sha256(source.read_bytes()).digest() for source in sources))
    program = cache_root() / name / digest.hexdigest()[:16] / name
    if os.access(program, os.X_OK):
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    go = find_go(folder / "go.mod", cache_root(), progress)
    progress(f"building {name}")
    partial = program.with_name(f"{name}.partial-{os.getpid()}")
    environment = os.environ | {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": "off"}
    try:
        command = [str(go), "build", "-mod=readonly", "-buildvcs=false", "-trimpath", "-o", str(partial), package]
        subprocess.run(command, cwd=folder, env=environment, check=True)
        partial.rename(program)
    finally:
        partial.unlink(missing_ok=True)
    return program
