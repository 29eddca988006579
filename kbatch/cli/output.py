"""What all commands share: the choice of output, and errors as one clear sentence."""

from __future__ import annotations

import contextlib
import enum
import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from kbatch.simulator.result import Result

FAILED: Final = 1
"""Exit status where something else did not work: the cluster does not answer, an object is not there."""
BAD_INPUT: Final = 2
"""Exit status where what the user gave cannot be used."""
LIMIT_REACHED: Final = 3
"""Exit status where a run was cut off by its limit."""

_CONTROLS: Final = {code: "\N{REPLACEMENT CHARACTER}" for code in (*range(32), *range(127, 160)) if chr(code) != "\n"}
_WIDTH: Final = 120
"""Of tables that are not shown on a terminal: wide enough not to fold."""


class _UnprintableError(Exception):
    """Standard output does not take what is written to it; no OSError, which a command may expect of its files."""


class _StandardOutput(io.FileIO):
    """The file of standard output. That its reader has gone (a broken pipe) is left to typer."""

    def write(self, data: Any) -> int:
        """Write as much as can be."""
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _UnprintableError(error.strerror or str(error)) from None


@contextlib.contextmanager
def printing() -> Iterator[None]:
    """Run a command in the block: that standard output is closed, or its disk full, is an error as others are."""
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 -- as long as the process
    if sys.stdout is None:  # at once: the first file that is opened would take its number
        sys.exit(_unprintable("it is closed"))
    was = sys.stdout
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_StandardOutput(was.fileno(), "w", closefd=False)),
        encoding=was.encoding, errors=was.errors, line_buffering=was.isatty(),
    )  # fmt: skip
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        status = FAILED
    except _UnprintableError as error:
        status = _unprintable(str(error))
    else:
        return
    sys.stdout = was  # what was not written must not be tried again when the process ends
    sys.exit(status)


def _unprintable(why: str) -> int:
    typer.echo(f"kbatch: standard output cannot be written: {why}", err=True)
    return FAILED


class Output(enum.StrEnum):
    """How to print the result."""

    TEXT = "text"
    JSON = "json"


Format = Annotated[Output, typer.Option("--output", "-o", help="How to print the result.")]


def plain(text: str) -> str:
    """The text with a mark in the place of each control character but the end of a line."""
    return text.translate(_CONTROLS)


def say(text: str) -> None:
    """A line on standard output, of which others may have written parts."""
    typer.echo(plain(text))


@contextlib.contextmanager
def console() -> Iterator[Console]:
    """Standard output for tables; where that is no terminal, plain text of a fixed width, the same for everyone.

    What is shown is shown as it is, brackets included; what would steer a terminal is not.
    """
    from rich.console import Console

    class Plain(Console):
        """Leaves control characters out of every text, whoever wrote it."""

        def render_str(self, text: str, **how: Any) -> Any:
            return super().render_str(plain(text), **how)

    if sys.stdout.isatty():
        yield Plain(highlight=False, markup=False, emoji=False)
        return
    text = io.StringIO()
    yield Plain(
        file=text, highlight=False, markup=False, emoji=False, width=_WIDTH, force_terminal=False, color_system=None
    )
    for line in text.getvalue().splitlines():
        typer.echo(line.rstrip())


def print_json(value: Any) -> None:
    """The value as JSON, on standard output."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_result(result: Result, output: Output) -> None:
    """What a simulated run came to, on standard output; its warnings on standard error."""
    for warning in result.warnings:
        warn(warning)
    if output is Output.JSON:
        sys.stdout.buffer.write(result.encode())
        sys.stdout.buffer.flush()
    else:
        from kbatch.simulator.report import print_report

        with console() as out:
            print_report(result, out)


def warn(text: str) -> None:
    """A sentence on standard error that does not end the command."""
    typer.echo(f"kbatch: {plain(text)}", err=True)


def fail(text: str, status: int = FAILED) -> NoReturn:
    """End the command with a sentence (each line one) on standard error."""
    for line in text.splitlines() or [""]:
        typer.echo(f"kbatch: {plain(line)}", err=True)
    raise typer.Exit(status)
