from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {
    "aiohttp", "asyncio", "jinja2", "kopf", "kubernetes", "msgspec", "numpy", "prometheus_client", "pydantic", "rich",
    "yaml", "kbatch.engine", "kbatch.kube", "kbatch.model", "kbatch.simulator",
}  # fmt: skip


TYPERS_OWN = {"pydantic"}
"""Typer reads the options of a single command with it; the list of commands does without."""


@pytest.mark.parametrize(
    ("arguments", "light"),
    [
        (["--help"], HEAVY),
        (["--version"], HEAVY - TYPERS_OWN),
        (["simulate", "--help"], HEAVY - TYPERS_OWN),
        (["explain", "--help"], HEAVY - TYPERS_OWN),
    ],
)
def test_help_imports_nothing_heavy(arguments: list[str], light: set[str]) -> None:
    program = f"""
import sys
sys.argv = ["kbatch", *{arguments!r}]
from kbatch.cli.main import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print("\\n".join(sorted(sys.modules)), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip()
    assert light & set(done.stderr.split()) == set()


@pytest.mark.parametrize(
    ("called", "shown"), [("kbatch", "Usage: kbatch "), ("kubectl-kbatch", "Usage: kubectl kbatch ")]
)
def test_it_answers_to_the_name_that_it_was_called_by(called: str, shown: str) -> None:
    program = f"import sys; sys.argv = ['/somewhere/{called}', '--help']; from kbatch.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.lstrip().startswith(shown)


def test_it_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "kbatch", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.lstrip().startswith("Usage: kbatch ")
