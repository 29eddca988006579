"""Bring the output of commands that the pages show up to date: `python -m tools.show_examples`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "simulator.md", ROOT / "docs" / "traces.md"
_SHOWN = re.compile(r"```console\n\$ kbatch ([^\n]*)\n.*?```", re.DOTALL)


def _run(arguments: str) -> str:
    program = [sys.executable, "-c", "from kbatch.cli.main import main; main()", *arguments.split()]
    return subprocess.run(program, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def main() -> None:
    """Run each command and put what it prints below it."""
    for page in PAGES:
        text = page.read_text("utf-8")
        shown = _SHOWN.sub(lambda match: f"```console\n$ kbatch {match[1]}\n{_run(match[1])}```", text)
        page.write_text(shown, "utf-8")


if __name__ == "__main__":
    main()
