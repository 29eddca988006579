"""The stub of an API server: built from the Go files of this folder, and run as a process of its own."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kbatch.localcluster.processes import wait_until
from tests.golang import built

FOLDER = Path(__file__).parent


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
    program = built(FOLDER, "stub", progress)
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
