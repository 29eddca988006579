from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from kbatch.localcluster import programs
from kbatch.localcluster.errors import BuildError, DiskFullError, LocalClusterError
from kbatch.localcluster.processes import wait_until

# Builds an empty program in no time; what else it does is up to the test: {extra} runs in `go build`.
FAKE_GO = """\
#!/bin/sh
if [ "$1 $2" = "env GOVERSION" ]; then echo go1.26.8; exit; fi
if [ "$1" = env ]; then echo {scratch}/objects; echo {scratch}/modules; exit; fi
while [ "$1" != -o ]; do shift; done
echo "$2" >> {scratch}/built
{extra}
echo '#!/bin/sh' > "$2"; chmod +x "$2"
"""


class Workshop:
    """A Go module, a cache, and a compiler that only pretends."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.module = root / "module"
        self.module.mkdir()
        (self.module / "go.mod").write_text("module x\n\ngo 1.26.0\n")
        (self.module / "go.sum").write_text("sums\n")
        self.cache = root / "cache"
        self.bin = root / "bin"
        self.bin.mkdir()
        self.lines: list[str] = []
        self.go()

    def go(self, extra: str = "") -> None:
        go = self.bin / "go"
        go.write_text(FAKE_GO.format(scratch=self.root, extra=extra))
        go.chmod(0o755)

    def build(self) -> programs.Programs:
        return programs.ensure_programs(self.lines.append, module=self.module, cache=self.cache)

    def compiled(self) -> list[str]:
        built = self.root / "built"
        return [Path(line).name for line in built.read_text().split()] if built.exists() else []


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    workshop = Workshop(tmp_path)
    monkeypatch.setenv("PATH", f"{workshop.bin}:{os.environ['PATH']}")
    return workshop


def test_the_key_follows_the_content_of_the_module(workshop: Workshop) -> None:
    key = programs.key(workshop.module)
    for name in ("go.mod", "go.sum"):
        (workshop.module / name).write_text((workshop.module / name).read_text() + "\n")
        assert programs.key(workshop.module) != key
        key = programs.key(workshop.module)
    (workshop.module / "other").write_text("does not matter")
    assert programs.key(workshop.module) == key


def test_programs_are_built_once(workshop: Workshop) -> None:
    built = workshop.build()
    assert [target.name for target in programs.TARGETS] == workshop.compiled()
    assert built.kubectl.is_file()
    assert "8 of 8" not in workshop.lines[0]
    assert any("kubectl (3 of 8 programs done)" in line and "left" in line for line in workshop.lines)

    said = len(workshop.lines)
    assert workshop.build() == built
    assert (len(workshop.compiled()), len(workshop.lines)) == (8, said)


def test_a_damaged_set_is_built_again(workshop: Workshop) -> None:
    workshop.build().helm.unlink()
    assert workshop.build().helm.is_file()


def test_a_failed_build_leaves_nothing_that_looks_whole(workshop: Workshop) -> None:
    workshop.go('case "$2" in *helm) echo "main.go:3:1: syntax error: unexpected x" >&2; exit 1;; esac')
    with pytest.raises(BuildError, match=r"Building helm failed: main\.go:3:1: syntax error"):
        workshop.build()
    assert programs.built(workshop.module, workshop.cache) is None
    assert not [path for path in (workshop.cache / "programs").iterdir() if path.is_dir()]

    workshop.go()
    assert workshop.build().helm.is_file()


@pytest.mark.parametrize(
    ("said", "error", "sentence"),
    [
        ("write /x: no space left on device", DiskFullError, "Not enough disk space"),
        ("go: x: dial tcp 1.2.3.4:443: i/o timeout", BuildError, "proxy could not be reached"),
        ("verifying module: missing go.sum entry", BuildError, "missing go.sum entry"),
    ],
)
def test_a_failure_is_one_sentence(
    workshop: Workshop, said: str, error: type[LocalClusterError], sentence: str
) -> None:
    workshop.go(f'echo "{said}" >&2; exit 1')
    with pytest.raises(error, match=sentence) as caught:
        workshop.build()
    assert "\n" not in str(caught.value)


def test_a_disk_too_full_is_noticed_before_anything_is_compiled(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(workshop.root)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=2**30))
    with pytest.raises(DiskFullError, match=r"5\.\d GiB are needed and 1\.0 GiB are free"):
        workshop.build()
    assert workshop.compiled() == []


def test_an_interrupted_build_ends_the_compiler_and_leaves_nothing(workshop: Workshop) -> None:
    workshop.go(f"echo $$ > {workshop.root}/compiler; exec sleep 600")
    # A run of tests in the background may have been told to ignore ctrl-C, and its children with it.
    script = textwrap.dedent(f"""
        import signal
        from pathlib import Path
        from kbatch.localcluster.programs import ensure_programs
        signal.signal(signal.SIGINT, signal.default_int_handler)
        ensure_programs(print, module=Path({str(workshop.module)!r}), cache=Path({str(workshop.cache)!r}))
    """)
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    pid_file = workshop.root / "compiler"
    assert wait_until(lambda: pid_file.exists() and pid_file.read_text().strip() != "", 20)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    compiler = Path(f"/proc/{pid_file.read_text().strip()}")
    assert wait_until(lambda: not compiler.exists(), 20)  # its parent has gone: init takes note when it gets to it
    assert not [path for path in (workshop.cache / "programs").iterdir() if path.is_dir()]


def test_a_second_builder_waits_and_finds_the_work_done(workshop: Workshop) -> None:
    workshop.go("sleep 0.05")
    script = textwrap.dedent(f"""
        from pathlib import Path
        from kbatch.localcluster.programs import ensure_programs
        ensure_programs(print, module=Path({str(workshop.module)!r}), cache=Path({str(workshop.cache)!r}))
    """)
    both = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) for _ in range(2)]
    for process in both:
        process.communicate(timeout=60)
    assert [process.returncode for process in both] == [0, 0]
    assert len(workshop.compiled()) == 8


def test_the_estimate_shrinks_and_learns(workshop: Workshop) -> None:
    first, second, *_ = programs.TARGETS
    fresh, slow = programs.Estimate(), programs.Estimate()
    total = sum(target.seconds for target in programs.TARGETS)
    assert fresh.remaining(first, 0) == pytest.approx(total)
    assert fresh.remaining(first, 20) == pytest.approx(total - 20)
    slow.finished(first, 3 * first.seconds)
    assert slow.remaining(second, 0) > 1.5 * (total - first.seconds)
    # A program that takes longer than expected is not promised for the past.
    assert fresh.remaining(programs.TARGETS[-1], 1000) > 0
