"""`kbatch simulate`: the engine in virtual time, on ordinary manifests."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Annotated

import typer

from kbatch.cli.output import BAD_INPUT, LIMIT_REACHED, Format, Output, fail, print_result, warn
from kbatch.cli.progress import shown
from kbatch.times import SECOND


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("simulate", short_help="Run the scheduler on manifests, in virtual time.")(simulate)


def simulate(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="Manifests: files, folders, or - for standard input.")
    ],
    scheduler_conf: Annotated[
        Path | None, typer.Option("--scheduler-conf", metavar="FILE", help="Scheduler configuration to try.")
    ] = None,
    until: Annotated[
        float | None, typer.Option("--until", min=0, max=10**9, metavar="SECONDS", help="Stop the clock there.")
    ] = None,
    max_cycles: Annotated[int, typer.Option("--max-cycles", min=1, help="Give up after so many cycles.")] = 100_000,
    extra_cycles: Annotated[
        int, typer.Option("--extra-cycles", min=0, help="Time so many idle cycles at the end.")
    ] = 0,
    output: Format = Output.TEXT,
) -> None:
    """Run the scheduler on manifests, in virtual time, and say what becomes of them.

    Nothing is sent anywhere. The exit status is 2 where the input cannot be used and 3 where --max-cycles cut the run
    off.
    """
    from kbatch.api.configuration import ConfigurationError
    from kbatch.cli.configuration import load as load_configuration
    from kbatch.simulator.errors import InputError
    from kbatch.simulator.manifests import load
    from kbatch.simulator.run import Limits
    from kbatch.simulator.run import simulate as run

    # Nearly all that is made stays until the end: looking for garbage among it all the time is a third of a long run.
    gc.set_threshold(200_000, 50, 100)
    try:
        if scheduler_conf is not None:
            load_configuration(scheduler_conf)  # what is wrong with it is said before all of the input is read
        limits = Limits(None if until is None else round(until * SECOND), max_cycles, extra_cycles)
        manifests = load(paths)
        _, policy = load_configuration(scheduler_conf, manifests.configuration)
        with shown() as progress:
            result = run(manifests, policy, limits, progress=progress)
    except (InputError, ConfigurationError) as error:
        fail(str(error), BAD_INPUT)
    print_result(result, output)
    if result.limited:
        warn(f"cut off after {result.cycle_count} cycles (--max-cycles)")
        raise typer.Exit(LIMIT_REACHED)
