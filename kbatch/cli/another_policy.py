"""`kbatch replay --closed-loop`: a recorded time simulated under another policy, and printed beside what was."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from kbatch.cli.output import BAD_INPUT, Output, console, fail, print_json, warn
from kbatch.cli.progress import shown

if TYPE_CHECKING:
    from rich.console import Console

    from kbatch.engine import Policy

TOO_LARGE: Final = "a number in it is beyond 64 bits"

_SHOWN: Final = 20


def run_closed_loop(paths: Sequence[Path], policy: Policy | None, output: Output) -> None:
    """Simulate each log under the policy, or under its own, and print what differs.

    The exit status is 2 where a log, or the rest of one, cannot be read.
    """
    found = []
    for path in paths:
        found.append(one := _compared(path, policy))
        if output is Output.TEXT and "summary" in one:
            with console() as out:
                _print(one, out)
    if output is Output.JSON:
        print_json({"unreadable": sum("error" in one for one in found), "files": found})
    for one in found:
        if "error" in one:
            warn(f"{one['file']}: {one['error']}")
    if any("error" in one for one in found):
        raise typer.Exit(BAD_INPUT)


def _compared(path: Path, policy: Policy | None) -> dict[str, Any]:
    from kbatch.api.configuration import ConfigurationError, parse
    from kbatch.closed_loop.comparison import compare
    from kbatch.closed_loop.history import read_history
    from kbatch.decisions.files import read_lines
    from kbatch.decisions.records import LogError
    from kbatch.engine import build_policy
    from kbatch.simulator.errors import InputError

    try:
        history = read_history(read_lines(path))
        own = policy or build_policy(parse(history.policy.text, history.policy.source))
        with shown() as progress:
            comparison = compare(history, own, progress)
    except OSError as error:
        return {"file": str(path), "error": f"cannot be read: {error.strerror or error}"}
    except (LogError, InputError, ConfigurationError) as error:
        return {"file": str(path), "error": str(error)}
    except OverflowError:
        return {"file": str(path), "error": TOO_LARGE}
    for warning in comparison.warnings:
        warn(f"{path}: {warning}")
    found = {"file": str(path), **comparison.json()}
    if history.damage:
        found["error"] = history.damage
    return found


def load_policy(scheduler_conf: Path | None) -> Policy | None:
    """The policy of a configuration; None without one. Ends the command where it cannot be used."""
    if scheduler_conf is None:
        return None
    from kbatch.api.configuration import ConfigurationError
    from kbatch.cli.configuration import load

    try:
        return load(scheduler_conf)[1]
    except ConfigurationError as error:
        fail(str(error), BAD_INPUT)


def _print(found: dict[str, Any], out: Console) -> None:
    from rich.table import Table

    summary = found["summary"]
    typer.echo(
        f"{found['file']}: {summary['cycles']} cycles in {summary['seconds']:g} s, {len(found['groups'])} groups"
    )
    for word in ("earlier", "later"):
        moved = summary[word]
        by = f", by {moved['median']:g} s (median), {moved['p90']:g} s (p90)" if moved["groups"] else ""
        typer.echo(f"  {word:<8} {moved['groups']}{by}")
    typer.echo(f"  same     {summary['same']}")
    for name, words in (
        ("only_recorded", "started, and would not have by the end"),
        ("only_new", "would have started"),
    ):
        if summary[name]:
            typer.echo(f"  {summary[name]} {words}")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", "Recorded", "New"):
        table.add_column(name, justify="right" if name else "left")
    recorded, new = summary["recorded"], summary["new"]
    table.add_row("evictions", str(recorded["evictions"]), str(new["evictions"]))
    table.add_row("wasted", f"{recorded['wasted_seconds']:g} s", f"{new['wasted_seconds']:g} s")
    table.add_row("mean wait", f"{recorded['mean_wait']:g} s", f"{new['mean_wait']:g} s")
    for queue in sorted(recorded["held"].keys() | new["held"].keys()):
        table.add_row(f"{queue} held", _amounts(recorded["held"].get(queue)), _amounts(new["held"].get(queue)))
    out.print(table)
    moves = [one for one in found["groups"] if one["recorded"] != one["new"]]
    moves.sort(key=lambda one: (one["difference"] is not None, -abs(one["difference"] or 0), one["group"]))
    if not moves:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("Group", "Queue", "Came", "Recorded", "New", "Difference"):
        table.add_column(name, justify="left" if name in {"Group", "Queue"} else "right")
    for one in moves[:_SHOWN]:
        times = [_instant(one[name]) for name in ("came", "recorded", "new")]
        difference = "-" if one["difference"] is None else f"{one['difference']:+g} s"
        table.add_row(one["group"], one["queue"], *times, difference)
    out.print(table)
    if len(moves) > _SHOWN:
        warn(f"and {len(moves) - _SHOWN} more groups; -o json prints all of them")


def _amounts(amounts: dict[str, str] | None) -> str:
    return ", ".join(f"{name} {amount}" for name, amount in (amounts or {}).items()) or "-"


def _instant(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:g} s"
