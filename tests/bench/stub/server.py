"""The stub of an API server: built from the Go files of this folder, and run as a process of its own."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kbatch.localcluster.folders import cache_root
from kbatch.localcluster.golang import find_go
from kbatch.localcluster.processes import wait_until

FOLDER = Path(__file__).parent


def built(progress: Callable[[str], None]) -> Path:
    """The program, compiled once for each state of its source into the user's cache."""
    sources = [FOLDER / "go.mod", *sorted(FOLDER.glob("*.go"))]
    digest = hashlib.sha256(b"".join(hashlib.sha256(source.read_bytes()).digest() for source in sources))
    program = cache_root() / "stub" / digest.hexdigest()[:16] / "stub"
    if os.access(program, os.X_OK):
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    go = find_go(FOLDER / "go.mod", cache_root(), progress)
    progress("building the stub of an API server")
    partial = program.with_name(f"stub.partial-{os.getpid()}")
    environment = os.environ | {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": "off"}
    try:
        command = [str(go), "build", "-buildvcs=false", "-trimpath", "-o", str(partial), "."]
        subprocess.run(command, cwd=FOLDER, env=environment, check=True)
        partial.rename(program)
    finally:
        partial.unlink(missing_ok=True)
    return program


@dataclass(frozen=True)
class Stub:
    """A running stub."""

    kubeconfig: Path
    pid: int


@contextlib.contextmanager
def serving(progress: Callable[[str], None] = lambda _: None) -> Iterator[Stub]:
    """Run a stub of its own while the context is open; it holds the namespace `bench` and the queue `default`.

    Raises:
        RuntimeError: it did not begin to listen.
    """
    program = built(progress)
    with tempfile.TemporaryDirectory(prefix="kbatch-stub-") as folder:
        kubeconfig = Path(folder) / "kubeconfig"
        process = subprocess.Popen([str(program), f"--kubeconfig={kubeconfig}"], stdin=subprocess.DEVNULL)
        try:
            if not wait_until(kubeconfig.exists, 20.0, every=0.02):
                raise RuntimeError(f"the stub does not listen (status {process.poll()})")
            yield Stub(kubeconfig, process.pid)
        finally:
            process.terminate()
            process.wait()
