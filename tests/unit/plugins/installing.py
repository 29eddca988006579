"""Packages with entry points for kbatch, as an installer would leave them, without installing anything."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]


def distribution(example: Path, folder: Path) -> Path:
    """Write the package's name and entry points into `folder`, as they stand beside an installed package."""
    project = tomllib.loads((example / "pyproject.toml").read_text())["project"]
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in entries.items())
        for group, entries in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return folder


def python(*arguments: str, cwd: Path, path: tuple[Path, ...]) -> subprocess.CompletedProcess[str]:
    """A Python program of its own that finds kbatch and these folders."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={
            "PYTHONPATH": os.pathsep.join(str(folder) for folder in (*path, ROOT)),
            "PATH": "/usr/bin:/bin",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def own_tests(example: Path) -> str:
    """What pytest says of the example's tests, run as their author would: in its folder, with its configuration."""
    arguments = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "tests")
    done = python(*arguments, cwd=example, path=(example,))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
