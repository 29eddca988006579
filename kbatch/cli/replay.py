"""`kbatch replay`: every cycle of a decision log, decided again and compared."""

from __future__ import annotations

import gc
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbatch.cli.output import BAD_INPUT, FAILED, Format, Output, fail, print_json, warn

if TYPE_CHECKING:
    from kbatch.decisions.replay import Redecided

_SHOWN = 20


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("replay", short_help="Decide a scheduler's decision log again.")(replay)


def replay(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="A decision log, or a folder of them.")],
    output: Format = Output.TEXT,
) -> None:
    """Decide every cycle of a decision log again, with this kbatch's engine, and compare byte for byte.

    The exit status is 1 where a cycle is decided otherwise, with the cycle and the first difference, and 2 where a log
    cannot be read. A log whose writer was killed is replayed up to its last whole line.
    """
    from kbatch.decisions.files import logs_at, read_lines
    from kbatch.decisions.records import LogError
    from kbatch.decisions.replay import replay as redecide

    gc.set_threshold(200_000, 50, 100)
    files: list[dict[str, Any]] = []
    differences = 0
    current = log
    try:
        for current in logs_at(log):
            cycles = decisions = 0
            found: list[dict[str, Any]] = []
            for cycle in redecide(read_lines(current)):
                cycles += 1
                decisions += cycle.decisions
                if cycle.difference is not None:
                    found.append(_described(cycle))
            differences += len(found)
            files.append({"file": str(current), "cycles": cycles, "decisions": decisions, "differences": found})
            if output is Output.TEXT:
                _print(files[-1])
    except OSError as error:
        fail(f"{current}: cannot be read: {error.strerror or error}", BAD_INPUT)
    except LogError as error:
        fail(f"{current}: {error}", BAD_INPUT)
    if output is Output.JSON:
        total = sum(file["cycles"] for file in files)
        print_json({"equal": not differences, "cycles": total, "differences": differences, "files": files})
    if differences:
        raise typer.Exit(FAILED)


def _described(cycle: Redecided) -> dict[str, Any]:
    found = cycle.difference
    assert found is not None  # noqa: S101 - asked for by the caller
    return {
        "cycle": cycle.number,
        "now": cycle.now,
        "time": datetime.fromtimestamp(cycle.now / 1000, UTC).isoformat(timespec="milliseconds"),
        "position": found.position,
        "recorded": found.recorded,
        "decided": found.decided,
    }


def _print(file: dict[str, Any]) -> None:
    found = file["differences"]
    verdict = "all equal" if not found else f"{len(found)} decided otherwise"
    typer.echo(f"{file['file']}: {file['cycles']} cycles, {file['decisions']} decisions: {verdict}")
    for one in found[:_SHOWN]:
        typer.echo(f"cycle {one['cycle']} at {one['time']}, decision {one['position']}:")
        typer.echo(f"  recorded: {one['recorded'] or '(nothing more)'}")
        typer.echo(f"  decided:  {one['decided'] or '(nothing more)'}")
    if len(found) > _SHOWN:
        warn(f"and {len(found) - _SHOWN} cycles more")
