"""From sources to a folder that is put first on the path."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Protocol

from tools.compiled.modules import ROOT, chosen, digest, sources
from tools.compiled.native import native

STAMP: Final = "DIGEST"
_MYPY: Final = """[mypy]
strict = true
plugins = pydantic.mypy
warn_unused_ignores = false
"""
_FLAGS: Final = (
    "-pthread", "-fPIC", "-DNDEBUG", "-fwrapv", "-w", "-g0", "-fvisibility=hidden", "-fno-semantic-interposition",
    "-fno-plt",
)  # fmt: skip
"""Nobody replaces a function of the library: those of one module call those of another without asking for them."""


class Extension(Protocol):
    """What setuptools' class of this name says of an extension module."""

    name: str
    sources: list[str]
    include_dirs: list[str]


def current(folder: Path) -> bool:
    """Whether the folder holds what would be built now."""
    stamp = folder / STAMP
    return stamp.exists() and stamp.read_text("utf-8") == digest()


def build(folder: Path, optimise: str = "2") -> None:
    """Make the folder: all modules, with those that are compiled beside what was compiled."""
    stamp = digest()  # of what is read from here on
    work = folder.with_name(f"{folder.name}-work")
    shutil.rmtree(work, ignore_errors=True)
    prepared = work / "sources"
    modules = set(chosen())
    for path in sources():
        name = path.relative_to(ROOT).as_posix()
        to = prepared / name
        to.parent.mkdir(parents=True, exist_ok=True)
        if name in modules:
            to.write_text(native(path.read_text("utf-8")), "utf-8")
        else:
            shutil.copyfile(path, to)
    (prepared / "mypy.ini").write_text(_MYPY, "utf-8")
    began = time.monotonic()
    extensions = _translate(prepared, sorted(modules), work / "c")
    print(f"{len(modules)} modules translated to C in {time.monotonic() - began:.0f} s", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(prepared / "kbatch", folder / "kbatch")
    began = time.monotonic()
    _compile(extensions, prepared, folder, optimise)
    print(f"compiled in {time.monotonic() - began:.0f} s", flush=True)
    (folder / STAMP).write_text(stamp, "utf-8")
    shutil.rmtree(work)


def install(folder: Path, into: Path) -> None:
    """Put what was built in the place of the package that is installed there."""
    if not (into / "kbatch" / "__init__.py").exists():
        raise SystemExit(f"kbatch is not installed in {into}")
    for path in sorted(folder.rglob("*.so")):
        to = into / path.relative_to(folder)
        shutil.copyfile(path, to)
        beside = path.with_name(path.name.partition(".")[0] + ".py")
        if beside.exists():  # for tracebacks: the lines that were compiled
            shutil.copyfile(beside, to.with_name(beside.name))


def _translate(prepared: Path, modules: list[str], to: Path) -> list[Extension]:
    """The extension modules to be compiled, their sources written. mypyc reads the paths as mypy does: from here."""
    here = Path.cwd()
    os.chdir(prepared)
    try:
        from mypyc.build import mypycify

        found: list[Extension] = mypycify(
            ["--config-file=mypy.ini", "--cache-dir=/dev/null", *modules],
            debug_level="0", multi_file=True, target_dir=str(to), group_name="kbatch",
        )  # fmt: skip
        return found
    finally:
        os.chdir(here)


def _compile(extensions: list[Extension], prepared: Path, folder: Path, optimise: str) -> None:
    """Compile each source once, as many at a time as there are processors, and link the modules."""
    compiler = os.environ.get("CC", "gcc")
    headers = sysconfig.get_paths()["include"]
    commands: dict[Path, list[str]] = {}
    links: list[list[str]] = []
    for extension in extensions:
        objects = []
        for name in extension.sources:
            source = prepared / name
            made = source.with_suffix(".o")
            folders = [f"-I{prepared / each}" for each in extension.include_dirs]
            commands[source] = [
                compiler, *_FLAGS, f"-O{optimise}", f"-I{headers}", *folders, "-c", str(source), "-o", str(made),
            ]  # fmt: skip
            objects.append(str(made))
        module = folder / (extension.name.replace(".", "/") + str(sysconfig.get_config_var("EXT_SUFFIX")))
        links.append([compiler, "-shared", "-pthread", "-Wl,-Bsymbolic", *objects, "-o", str(module)])
    largest_first = sorted(commands, key=lambda source: -source.stat().st_size)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for some in ([commands[source] for source in largest_first], links):
            for ended in pool.map(lambda command: subprocess.run(command, check=False), some):
                if ended.returncode:
                    sys.exit(f"{' '.join(ended.args)}: ended with status {ended.returncode}")
