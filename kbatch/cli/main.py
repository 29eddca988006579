"""The `kbatch` command, also as `kubectl kbatch`. What a command needs is imported when it runs."""

from __future__ import annotations

import sys
from pathlib import PurePath

import typer

from kbatch.cli import check_config, cluster, job_sets, live, replay, simulate, what_if
from kbatch.cli.output import printing

app = typer.Typer(
    name="kbatch",
    help="Gang scheduling and fair shares for Kubernetes: simulate it, inspect it, and run it on a local cluster.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
simulate.register(app)
check_config.register(app)
live.register(app)
job_sets.register(app)
replay.register(app)
what_if.register(app)
cluster.register(app)


@app.callback(invoke_without_command=True)
def _options(version: bool = typer.Option(False, "--version", help="Print the version.")) -> None:
    if version:
        from importlib.metadata import version as version_of

        typer.echo(version_of("kbatch-operators"))
        raise typer.Exit


def main() -> None:
    """Run the command line; the exit status is the process's."""
    called = PurePath(sys.argv[0]).name
    with printing():
        app(prog_name="kubectl kbatch" if called.startswith("kubectl-") else "kbatch")
