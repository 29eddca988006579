"""The commands of one checkout, with the packages of this environment, where another checkout may be installed."""

from __future__ import annotations

import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def commands_of(code: Path, folder: Path) -> Iterator[None]:
    """Within the context, processes of a local cluster that is started run this checkout's code; `folder` is for it."""
    python = folder / "bin" / "python"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", str(python if python.exists() else interpreter(code, folder)))
        yield


def interpreter(code: Path, folder: Path) -> Path:
    """A Python beside which stand the commands of a version: its code, with the packages of this environment."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages, commands = folder / "lib" / name / "site-packages", folder / "bin"
    packages.mkdir(parents=True)
    commands.mkdir()
    (folder / "pyvenv.cfg").write_text(f"home = {Path(sys.base_prefix) / 'bin'}\n")
    # The first folder that has a package wins; files like this one in the second are not read.
    (packages / "version.pth").write_text(f"{code}\n{sysconfig.get_path('purelib')}\n")
    python = commands / "python"
    python.symlink_to(Path(sys.executable).resolve())
    for command, where in tomllib.loads((code / "pyproject.toml").read_text())["project"]["scripts"].items():
        module, function = where.split(":")
        (commands / command).write_text(
            f"#!{python}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n"
        )
        (commands / command).chmod(0o755)
    return python
