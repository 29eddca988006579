from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


GANG = str(Path(__file__).parents[3] / "examples" / "gang")


@pytest.mark.parametrize("arguments", [["simulate", GANG], ["simulate", GANG, "-o", "json"], ["--help"]])
@pytest.mark.parametrize(
    ("redirection", "why"), [(">/dev/full", "No space left on device"), (">&-", "it is closed")], ids=["full", "closed"]
)
def test_a_standard_output_that_takes_nothing_is_one_sentence(arguments: list[str], redirection: str, why: str) -> None:
    command = ["sh", "-c", f'exec "$@" {redirection}', "sh", sys.executable, "-m", "kbatch", *arguments]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (1, f"kbatch: standard output cannot be written: {why}\n")


def test_a_reader_that_has_gone_is_no_error_of_ours() -> None:
    command = ["sh", "-c", '{ "$@"; echo $? >&2; } | true', "sh", sys.executable, "-m", "kbatch", "simulate", GANG]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert done.stderr == "1\n"


def test_without_standard_error_a_command_does_its_work() -> None:
    command = ["sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-m", "kbatch", "simulate", GANG]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout
