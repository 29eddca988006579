"""`kbatch replay`: every cycle of a decision log, decided again and compared."""

from __future__ import annotations

import gc
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbatch.cli.another_policy import TOO_LARGE, load_policy, run_closed_loop
from kbatch.cli.output import BAD_INPUT, FAILED, Format, Output, fail, print_json, warn

if TYPE_CHECKING:
    from kbatch.decisions.replay import Redecided
    from kbatch.engine import Policy

_SHOWN = 20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("replay", short_help="Repeat the decisions of a scheduler's decision log, and compare.")(replay)


def replay(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="A decision log, or a folder of them.")],
    scheduler_conf: Annotated[
        Path | None,
        typer.Option("--scheduler-conf", metavar="FILE", help="Decide by this scheduler configuration instead."),
    ] = None,
    closed_loop: Annotated[
        bool,
        typer.Option("--closed-loop", help="Simulate the recorded time, and compare starts, evictions and shares."),
    ] = False,
    output: Format = Output.TEXT,
) -> None:
    """Decide every cycle of a decision log again, with this kbatch's engine, and compare byte for byte.

    The exit status is 1 where a cycle is decided otherwise, with the cycle and the first difference; else 2 where a
    log, or the rest of one, cannot be read. A log whose writer was killed is replayed up to its last whole line.

    With --scheduler-conf each recorded state is decided by another configuration, and the cycles are counted in which
    it would do something else; that does not change the status. With --closed-loop the recorded arrivals and run times
    are simulated under that configuration (else the log's own), and starts, evictions and shares are compared.
    """
    from kbatch.decisions.files import logs_at
    from kbatch.decisions.records import LogError

    gc.set_threshold(200_000, 50, 100)
    try:
        paths = logs_at(log)
    except LogError as error:
        fail(f"{log}: {error}", BAD_INPUT)
    policy = load_policy(scheduler_conf)
    if closed_loop:
        run_closed_loop(paths, policy, output)
        return
    files = []
    for path in paths:
        files.append(found := _replayed(path, policy))
        if output is Output.TEXT:
            _print(found)
    differences = sum(len(file["differences"]) for file in files)
    unreadable = sum("error" in file for file in files)
    if output is Output.JSON:
        print_json(
            {
                "equal": not differences and not unreadable,
                "cycles": sum(file["cycles"] for file in files),
                "differences": differences,
                "unreadable": unreadable,
                "files": files,
            }
        )
    for file in files:
        if "error" in file:
            warn(f"{file['file']}: {file['error']}")
    failed = differences and policy is None  # of another policy, differences are what one asks for
    if failed or unreadable:
        raise typer.Exit(FAILED if failed else BAD_INPUT)


def _replayed(path: Path, policy: Policy | None) -> dict[str, Any]:
    """One log decided again: how far it could be read, what differs, and the `error` that kept the rest from it."""
    from kbatch.decisions.files import read_lines
    from kbatch.decisions.records import LogError
    from kbatch.decisions.replay import replay as redecide

    found: dict[str, Any] = {"file": str(path), "cycles": 0, "decisions": 0, "differences": []}
    try:
        for cycle in redecide(read_lines(path), policy):
            found["cycles"] += 1
            found["decisions"] += cycle.decisions
            if cycle.difference is not None:
                found["differences"].append(_described(cycle))
    except OSError as error:
        found["error"] = f"cannot be read: {error.strerror or error}"
    except LogError as error:
        found["error"] = str(error)
    except OverflowError:
        found["error"] = TOO_LARGE
    return found


def _described(cycle: Redecided) -> dict[str, Any]:
    found = cycle.difference
    assert found is not None  # noqa: S101 - asked for by the caller
    return {
        "cycle": cycle.number,
        "now": cycle.now,
        "time": _time(cycle.now),
        "position": found.position,
        "recorded": found.recorded,
        "decided": found.decided,
    }


def _time(now: int) -> str:
    """The instant `now` (microseconds), as it stands where a damaged log has one that no calendar knows."""
    try:
        return (_EPOCH + timedelta(microseconds=now)).isoformat(timespec="microseconds")
    except OverflowError:
        return f"{now} µs"


def _print(file: dict[str, Any]) -> None:
    found = file["differences"]
    if "error" in file and not file["cycles"]:
        return
    verdict = "all equal" if not found else f"{len(found)} decided otherwise"
    typer.echo(f"{file['file']}: {file['cycles']} cycles, {file['decisions']} decisions: {verdict}")
    for one in found[:_SHOWN]:
        typer.echo(f"cycle {one['cycle']} at {one['time']}, decision {one['position']}:")
        typer.echo(f"  recorded: {one['recorded'] or '(nothing more)'}")
        typer.echo(f"  decided:  {one['decided'] or '(nothing more)'}")
    if len(found) > _SHOWN:
        warn(f"and {len(found) - _SHOWN} more cycles")
