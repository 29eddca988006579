"""`kbatch check-config`: whether a scheduler configuration would be taken, before a running scheduler is given it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kbatch.cli.output import BAD_INPUT, Format, Output, fail, print_json, warn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kbatch.api.configuration import SchedulerConfiguration

_WITHOUT: Final = {
    "gang": "no plugin gang is enabled: the minMember of groups is not held",
    "predicates": "no plugin predicates is enabled: selectors, affinity, taints, host ports and volumes do not count",
}


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("check-config", short_help="Check a scheduler configuration.")(check_config)


def check_config(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A scheduler configuration.")],
    output: Format = Output.TEXT,
) -> None:
    """Check a scheduler configuration; the exit status is 2 where it is refused, with the line and the reason."""
    from kbatch.api.configuration import ConfigurationError
    from kbatch.cli.configuration import load

    try:
        configuration, _ = load(file)
    except ConfigurationError as error:
        if output is Output.JSON:
            fault: dict[str, Any] = {"file": error.source, "line": error.line, "message": error.message}
            print_json({"valid": False, "errors": [fault]})
            raise typer.Exit(BAD_INPUT) from None
        fail(str(error), BAD_INPUT)
    doubts = list(_doubts(configuration))
    tiers = [[plugin.name for plugin in tier] for tier in configuration.tiers]
    if output is Output.JSON:
        print_json(
            {
                "valid": True,
                "errors": [],
                "actions": list(configuration.action_names),
                "tiers": tiers,
                "warnings": doubts,
            }
        )
        return
    for doubt in doubts:
        warn(f"{file}: {doubt}")
    typer.echo(f"{file}: valid")
    typer.echo(f"actions: {', '.join(configuration.action_names)}")
    for number, tier in enumerate(tiers, start=1):
        typer.echo(f"tier {number}:  {', '.join(tier)}")


def _doubts(configuration: SchedulerConfiguration) -> Iterator[str]:
    """What is most likely not meant, though it can be done."""
    from kbatch.engine.actions import BUILTIN

    names = configuration.action_names
    if "allocate" not in names and set(names) <= set(BUILTIN):
        yield "there is no action allocate: no pod that asks for anything is placed"
    enabled = {plugin.name for tier in configuration.tiers for plugin in tier}
    for name, what in _WITHOUT.items():
        if name not in enabled:
            yield what
