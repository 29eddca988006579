"""The programs of the control plane, built once from `localcluster/go.mod` into the cache.

A finished set stands in `<cache>/programs/<key>/bin`, where the key is a hash of everything that decides its content.
It appears there by one rename, so that an interrupted build is never taken for a whole one; a lock keeps two builders
apart. An interrupted build starts again quickly, because the Go compiler keeps what it compiled in a cache of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kbatch.localcluster.errors import BuildError, DiskFullError, LocalClusterError, last_line
from kbatch.localcluster.folders import cache_root, checkout, exclusive, require_free
from kbatch.localcluster.golang import find_go

if TYPE_CHECKING:
    from collections.abc import Callable

    Progress = Callable[[str], None]

KUBERNETES_VERSION = "1.36.1"
HELM_VERSION = "4.2.4"


@dataclass(frozen=True)
class _Target:
    """A program: the name of its file, its Go package, and what it costs."""

    name: str
    package: str
    seconds: int
    """Measured once on two cores, in this order, from empty caches; only the ratios matter for the estimate."""


TARGETS = (
    _Target("etcd", "go.etcd.io/etcd/server/v3", 51),
    _Target("kwok", "sigs.k8s.io/kwok/cmd/kwok", 69),
    _Target("kwokctl", "sigs.k8s.io/kwok/cmd/kwokctl", 11),
    _Target("kubectl", "k8s.io/kubernetes/cmd/kubectl", 27),
    _Target("helm", "helm.sh/helm/v4/cmd/helm", 24),
    _Target("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver", 136),
    _Target("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager", 60),
    _Target("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler", 6),
)

_MAJOR, _MINOR, _ = KUBERNETES_VERSION.split(".")
# Without these the API server calls itself v0.0.0 and refuses half of its own features.
_LINK_FLAGS = (
    f"-s -w -X k8s.io/component-base/version.gitVersion=v{KUBERNETES_VERSION}"
    f" -X k8s.io/component-base/version.gitMajor={_MAJOR} -X k8s.io/component-base/version.gitMinor={_MINOR}"
    f" -X helm.sh/helm/v4/internal/version.version=v{HELM_VERSION}"
)

# Bytes, from a build with empty caches.
_ROOM_FOR_PROGRAMS = 800 * 2**20
_ROOM_FOR_OBJECTS = 3500 * 2**20
_ROOM_FOR_MODULES = 1500 * 2**20
_REPORT_EVERY = 15.0


@dataclass(frozen=True)
class Programs:
    """A whole set of built programs."""

    bin: Path

    def path(self, name: str) -> Path:
        """Return where a program of TARGETS is."""
        return self.bin / name

    @property
    def kubectl(self) -> Path:
        """The kubectl of the same version as the API server."""
        return self.bin / "kubectl"

    @property
    def helm(self) -> Path:
        """Helm 4."""
        return self.bin / "helm"

    @property
    def kwokctl(self) -> Path:
        """What starts the control plane."""
        return self.bin / "kwokctl"


def key(module: Path) -> str:
    """Return the name under which the programs of this Go module are kept: a hash of what decides their content."""
    digest = hashlib.sha256()
    for content in ((module / "go.mod").read_bytes(), (module / "go.sum").read_bytes(), _LINK_FLAGS.encode()):
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()[:16]


def built(module: Path, cache: Path) -> Programs | None:
    """Return the finished programs of this module, None if they are not (all) there."""
    programs = Programs(cache / "programs" / key(module) / "bin")
    return programs if all(os.access(programs.path(target.name), os.X_OK) for target in TARGETS) else None


def ensure_programs(progress: Progress, *, module: Path | None = None, cache: Path | None = None) -> Programs:
    """Return the programs, building them if this has not been done yet.

    Args:
        progress: is told, one line each, what goes on and how long it may take.
        module: the folder with go.mod and go.sum, by default the checkout's.
        cache: by default the user's.

    Raises:
        LocalClusterError: no compiler, no room, a failed download or build.
    """
    module = module or checkout() / "localcluster"
    cache = cache or cache_root()
    if programs := built(module, cache):
        return programs
    folder = cache / "programs" / key(module)
    with exclusive(
        folder.with_name(folder.name + ".lock"),
        waiting=lambda: progress("another kbatch is building the programs already: waiting for it"),
    ):
        if programs := built(module, cache):
            return programs
        # The lock is ours: any partial folder belongs to a builder that died.
        for abandoned in folder.parent.glob(folder.name + ".partial-*"):
            shutil.rmtree(abandoned)
        go = find_go(module / "go.mod", cache, progress)
        partial = folder.with_name(f"{folder.name}.partial-{os.getpid()}")
        log = folder.with_name(folder.name + ".log")
        try:
            _build(go, module, partial / "bin", log, progress)
            if folder.exists():  # damaged: some program was removed from it
                shutil.rmtree(folder)
            partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return Programs(folder / "bin")


class Estimate:
    """How long the rest of the build takes, judged by the pace so far against the measured times."""

    def __init__(self) -> None:
        self._total = sum(target.seconds for target in TARGETS)
        self._spent = 0.0
        self._expected = 0

    def finished(self, target: _Target, seconds: float) -> None:
        """Take note of how long a program took."""
        self._spent += seconds
        self._expected += target.seconds

    def remaining(self, current: _Target, running: float) -> float:
        """Return the seconds left, when the current program has been building for `running` seconds."""
        pace = (self._spent + 30) / (self._expected + 30)  # damped: the first program says little
        rest = self._total - self._expected - current.seconds
        return pace * rest + max(pace * current.seconds - running, 0.1 * pace * current.seconds)


def _build(go: Path, module: Path, target_folder: Path, log: Path, progress: Progress) -> None:
    environment = _build_environment()
    _require_room(go, environment, target_folder)
    target_folder.mkdir(parents=True)
    estimate = Estimate()
    begin = time.monotonic()
    progress(
        f"building {len(TARGETS)} programs from source, once: about "
        f"{estimate.remaining(TARGETS[0], 0) / 60:.0f} minutes on two cores (output: {log})"
    )
    with log.open("w", encoding="utf-8") as output:
        for number, target in enumerate(TARGETS, 1):

            def report(running: float, number: int = number, target: _Target = target) -> None:
                progress(
                    f"building {target.name} ({number - 1} of {len(TARGETS)} programs done), "
                    f"{_minutes(time.monotonic() - begin)} elapsed, "
                    f"about {_minutes(estimate.remaining(target, running))} left"
                )

            report(0.0)
            started = time.monotonic()
            command = [
                str(go), "build", "-mod=readonly", "-buildvcs=false", "-trimpath", "-ldflags", _LINK_FLAGS,
                "-o", str(target_folder / target.name), target.package,
            ]  # fmt: skip
            output.write(f"# {target.name}\n")
            output.flush()
            offset = output.tell()
            status = _run(command, module, environment, output.fileno(), report)
            if status != 0:
                text = log.read_text(encoding="utf-8", errors="replace")[offset:]
                raise _explain(target, text, log, target_folder)
            estimate.finished(target, time.monotonic() - started)
    progress(f"built {len(TARGETS)} programs in {_minutes(time.monotonic() - begin)}")


def _run(
    command: list[str], module: Path, environment: dict[str, str], output: int, report: Callable[[float], None]
) -> int:
    """Run the compiler in a session of its own, which ends as a whole if we are interrupted."""
    started = time.monotonic()
    process = subprocess.Popen(
        command, cwd=module, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        start_new_session=True,
    )  # fmt: skip
    try:
        while True:
            try:
                return process.wait(timeout=_REPORT_EVERY)
            except subprocess.TimeoutExpired:
                report(time.monotonic() - started)
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _build_environment() -> dict[str, str]:
    # A user's own flags or workspace must not change what is built under a key that knows nothing of them.
    return os.environ | {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": "off"}


def _require_room(go: Path, environment: dict[str, str], target_folder: Path) -> None:
    """Check each file system once, with the sum of what will be written to it."""
    asked = subprocess.run(
        [go, "env", "GOCACHE", "GOMODCACHE"], env=environment, cwd="/", capture_output=True, text=True, check=True
    )
    objects, modules = map(Path, asked.stdout.split("\n")[:2])
    needs = ((target_folder, _ROOM_FOR_PROGRAMS), (objects, _ROOM_FOR_OBJECTS), (modules, _ROOM_FOR_MODULES))
    by_device: dict[int, tuple[Path, int]] = {}
    for folder, needed in needs:
        existing = folder
        while not existing.exists():
            existing = existing.parent
        device = existing.stat().st_dev
        first, sum_so_far = by_device.get(device, (folder, 0))
        by_device[device] = (first, sum_so_far + needed)
    for folder, needed in by_device.values():
        require_free(folder, needed)


def _explain(target: _Target, text: str, log: Path, folder: Path) -> BuildError | DiskFullError:
    if "no space left on device" in text.lower():
        return DiskFullError(folder, _ROOM_FOR_PROGRAMS, shutil.disk_usage(folder).free)
    if any(sign in text for sign in ("dial tcp", "i/o timeout", "no such host", "TLS handshake")):
        return BuildError(target.name, "the Go module proxy could not be reached, is there a network?", log)
    return BuildError(target.name, last_line(text, ("error", "missing go.sum", "cannot find", ": ")), log)


def _minutes(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02d} s"


def main() -> None:
    """Have the programs built: what a run of tests does before its clock starts."""
    try:
        ensure_programs(lambda line: print(line, file=sys.stderr, flush=True))
    except LocalClusterError as error:
        print(f"kbatch: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    main()
