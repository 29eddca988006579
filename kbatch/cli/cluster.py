"""`kbatch up`, `kbatch down`, `kbatch status`: a local cluster for trying things out."""

from __future__ import annotations

import contextlib
import enum
import json
import signal
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kbatch.localcluster.demo import Row
    from kbatch.localcluster.up import Report


class Output(enum.StrEnum):
    """How to print the result."""

    TEXT = "text"
    JSON = "json"


Name = Annotated[str, typer.Option("--name", help="Name of the cluster; several can run side by side.")]
Format = Annotated[Output, typer.Option("--output", "-o", help="How to print the result.")]


def register(app: typer.Typer) -> None:
    """Add the three commands to the command line."""
    app.command("up")(up)
    app.command("down")(down)
    app.command("status")(status)


def up(
    name: Name = "kbatch",
    nodes: Annotated[int, typer.Option("--nodes", min=0, max=20_000, help="Number of fake nodes.")] = 12,
    demo: Annotated[bool, typer.Option("--demo", help="Also submit two gangs and show their state.")] = False,
    control_plane_only: Annotated[
        bool, typer.Option("--control-plane-only", help="Start Kubernetes and its nodes only, without kbatch.")
    ] = False,
    fair: Annotated[
        bool,
        typer.Option(
            "--priority-and-fairness", help="Limit requests to the API server, and share them among its users."
        ),
    ] = False,
    output: Format = Output.TEXT,
) -> None:  # fmt: skip
    """Start a local Kubernetes control plane with fake nodes, and kbatch on it.

    Nothing happens to a cluster that runs already. The first time the programs are built from source.
    """
    with _sentences():
        from kbatch.localcluster.up import demo as show
        from kbatch.localcluster.up import up as bring_up

        if demo and control_plane_only:
            raise typer.BadParameter("the demo needs kbatch: leave out one of --demo and --control-plane-only")
        progress = _progress()
        report = bring_up(
            name, nodes=nodes, control_plane_only=control_plane_only, progress=progress, priority_and_fairness=fair
        )
        rows = show(name, progress) if demo else []
    _print(report, output)
    if rows and output is Output.TEXT:
        _print_groups(rows)


def down(name: Name = "kbatch") -> None:
    """Stop a local cluster: end its processes and delete its data."""
    with _sentences():
        from kbatch.localcluster.cluster import started
        from kbatch.localcluster.errors import listed
        from kbatch.localcluster.up import down as take_down

        existed = take_down(name)
        others = "" if existed else listed(started())
    typer.echo(f"The cluster {name} is gone." if existed else f"There is no local cluster named {name}.{others}")


def status(name: Name = "kbatch", output: Format = Output.TEXT) -> None:
    """Show whether a local cluster runs, and how to use it; the exit status is 1 if a part of it does not run."""
    with _sentences():
        from kbatch.localcluster.cluster import State
        from kbatch.localcluster.up import status as look

        state, report = look(name)
    if output is Output.JSON:
        typer.echo(json.dumps({"state": state.value, **report.json()}, indent=2))
    else:
        typer.echo(f"The cluster {name} is {state.value}.")
        _print(report, output)
    if state is not State.RUNNING:
        raise typer.Exit(1)


def _print(report: Report, output: Output) -> None:
    if output is Output.JSON:
        typer.echo(json.dumps(report.json(), indent=2))
        return
    typer.echo(f"export KUBECONFIG={report.kubeconfig}")
    typer.echo(f"alias kubectl={report.kubectl}")
    for component, process in report.processes.items():
        typer.echo(f"# {component}: process {process.pid}, {process.health}, {process.metrics}")


def _print_groups(rows: list[Row]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="")
    for heading in ("NAMESPACE", "NAME", "PHASE", "MIN", "RUNNING", "REASON"):
        table.add_column(heading, no_wrap=True)
    table.add_column("MESSAGE", overflow="fold")
    for row in rows:
        cells = (row.namespace, row.name, row.phase, str(row.minimum), str(row.running), row.reason, row.message)
        table.add_row(*map(Text, cells))
    # What is piped into a file has no width, and must not be folded.
    Console(width=None if sys.stdout.isatty() else 1000, soft_wrap=False).print(table)


def _progress() -> Callable[[str], None]:
    """Return a printer of lines with the time since the start; to stderr, so that the result alone is on stdout."""
    begin = time.monotonic()
    return lambda line: print(f"[{time.monotonic() - begin:4.0f} s] {line}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _sentences() -> Iterator[None]:
    """Turn expected failures into one sentence and status 2; let a request to end clean up first."""
    from kbatch.localcluster.errors import LocalClusterError

    def interrupt(*_: Any) -> NoReturn:
        # Once: whoever presses ctrl-C again must not interrupt the cleaning up.
        for number in previous:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    for number in previous:
        signal.signal(number, interrupt)
    try:
        yield
    except LocalClusterError as error:
        typer.echo(f"kbatch: {error}", err=True)
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt:
        typer.echo("kbatch: interrupted; nothing that was started is left running.", err=True)
        raise typer.Exit(130) from None
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
