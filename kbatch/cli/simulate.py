"""`kbatch simulate`: the engine in virtual time, on ordinary manifests; or a trace of jobs, found or made."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from kbatch.api.names import DEFAULT_QUEUE, DEFAULT_SCHEDULER_NAME
from kbatch.choices import Backfill, PodShape, TraceForm, TracePolicy
from kbatch.cli.ours import DefaultQueue, SchedulerName
from kbatch.cli.output import BAD_INPUT, FAILED, LIMIT_REACHED, Format, Output, fail, print_result, warn
from kbatch.cli.progress import shown
from kbatch.cli.traces import TraceRequest, run_trace
from kbatch.times import SECOND

_MANIFESTS = ("--max-cycles", "--extra-cycles", "--scheduler-name", "--default-queue")
"""Options that say nothing of a trace."""
_BOTH = ("--scheduler-conf", "--until", "--check-backfill", "--output")


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("simulate", short_help="Run the scheduler on manifests, or a trace of jobs, in virtual time.")(simulate)


def simulate(
    context: typer.Context,
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="PATH...", help="Manifests: files, folders, or - for standard input.")
    ] = None,
    scheduler_conf: Annotated[
        Path | None, typer.Option("--scheduler-conf", metavar="FILE", help="Scheduler configuration to try.")
    ] = None,
    scheduler_name: SchedulerName = DEFAULT_SCHEDULER_NAME,
    default_queue: DefaultQueue = DEFAULT_QUEUE,
    until: Annotated[
        float | None, typer.Option("--until", min=0, max=4 * 10**9, metavar="SECONDS", help="Stop at this time.")
    ] = None,
    max_cycles: Annotated[int, typer.Option("--max-cycles", min=1, help="Stop after this number of cycles.")] = 100_000,
    extra_cycles: Annotated[
        int, typer.Option("--extra-cycles", min=0, help="Number of idle cycles to time at the end.")
    ] = 0,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="A log of jobs to run instead of manifests.")
    ] = None,
    generate: Annotated[
        Path | None,
        typer.Option("--generate", metavar="SPEC", help="Generate jobs as this file describes, and run them."),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="N", min=0, help="Seed for --generate; by default that of the file."),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option("--write", metavar="FILE.csv", help="Write the jobs of --generate to this file as a trace."),
    ] = None,
    form: Annotated[TraceForm | None, typer.Option("--format", help="Format of the trace.")] = None,
    nodes: Annotated[
        str | None,
        typer.Option("--nodes", metavar="N|FILE", help="Number of nodes for the trace, or a file that lists them."),
    ] = None,
    node_cpus: Annotated[
        str | None, typer.Option("--node-cpus", metavar="C", help="CPUs of each node; 1 by default.")
    ] = None,
    node_gpus: Annotated[
        int | None, typer.Option("--node-gpus", min=0, metavar="G", help="GPUs of each node; 0 by default.")
    ] = None,
    policy: Annotated[
        TracePolicy, typer.Option("--policy", help="Order in which the jobs of the trace start.")
    ] = TracePolicy.FCFS,
    backfill: Annotated[
        Backfill, typer.Option("--backfill", help="Which jobs may start before a job that does not fit.")
    ] = Backfill.NONE,
    depth: Annotated[
        int | None,
        typer.Option(
            "--depth",
            min=1,
            max=1000,
            metavar="K",
            help="Number of waiting jobs with a reservation: 1 by default with easy, 1000 with conservative.",
        ),
    ] = None,
    shape: Annotated[
        PodShape, typer.Option("--shape", help="One pod for each processor or task, or one pod for each job (rigid).")
    ] = PodShape.PODS,
    job_nodes: Annotated[
        bool, typer.Option("--job-nodes/--no-job-nodes", help="Include the nodes of each job in the JSON output.")
    ] = True,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE.svg", help="Write a chart of utilisation, queue lengths and shares."),
    ] = None,
    check_backfill: Annotated[
        bool,
        typer.Option(
            "--check-backfill", help="Check whether backfilled jobs delayed others; if so, the exit status is 1."
        ),
    ] = False,
    output: Format = Output.TEXT,
) -> None:
    """Run the scheduler on manifests, or a trace of jobs, in virtual time, and print the result.

    Nothing is sent anywhere. The exit status is 2 where the input cannot be used, 3 where --max-cycles cut the run
    off, and 1 where --check-backfill found a job that was delayed.
    """
    given = _given(context)
    if trace is not None and generate is not None:
        fail("--trace and --generate cannot be used together", BAD_INPUT)
    if trace is not None or generate is not None:
        if paths:
            fail("manifests cannot be used together with --trace or --generate", BAD_INPUT)
        for option in _MANIFESTS:
            if option in given:
                fail(f"{option} cannot be used with --trace or --generate", BAD_INPUT)
        run_trace(
            TraceRequest(
                trace, generate, seed, write, form, nodes, node_cpus, node_gpus, policy, backfill, depth, shape, until,
                job_nodes, plot, check_backfill, scheduler_conf, output,
            )
        )  # fmt: skip
        return
    if not paths:
        raise typer.BadParameter("manifests, --trace FILE or --generate SPEC are missing", param_hint="PATH...")
    for option in sorted(given - {*_MANIFESTS, *_BOTH}):
        fail(f"{option} needs --trace or --generate", BAD_INPUT)
    _simulate_manifests(
        paths, scheduler_conf, scheduler_name, default_queue, until, max_cycles, extra_cycles, check_backfill, output
    )


def _given(context: typer.Context) -> set[str]:
    """The options that stand on the command line, by their long names; of a switch the one that was given."""
    return {
        (parameter.secondary_opts if context.params.get(parameter.name or "") is False else parameter.opts)[0]
        for parameter in context.command.params
        if parameter.param_type_name == "option"
        and (source := context.get_parameter_source(parameter.name or "")) is not None
        and source.name == "COMMANDLINE"
    }


def _simulate_manifests(
    paths: list[str],
    scheduler_conf: Path | None,
    scheduler_name: str | None,
    default_queue: str | None,
    until: float | None,
    max_cycles: int,
    extra_cycles: int,
    check_backfill: bool,
    output: Output,
) -> None:
    from kbatch.api.configuration import ConfigurationError
    from kbatch.api.objects import Node
    from kbatch.cli.configuration import load as load_configuration
    from kbatch.simulator.backfill_check import check_backfill as check
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
        ours, queue = scheduler_name or DEFAULT_SCHEDULER_NAME, default_queue or DEFAULT_QUEUE
        manifests = load(paths, scheduler_name=ours, default_queue=queue)
        _, policy = load_configuration(scheduler_conf, manifests.configuration)
        with shown() as progress:
            result = run(manifests, policy, limits, progress=progress)
        if check_backfill:
            result = replace(result, check=check(manifests, policy, limits, result))
    except (InputError, ConfigurationError) as error:
        fail(str(error), BAD_INPUT)
    print_result(result, output)
    if not any(isinstance(one.obj, Node) for one in manifests.objects):
        warn("there is no Node in the manifests, so no pod can be placed")
    if result.limited:
        warn(f"cut off after {result.cycle_count} cycles (--max-cycles)")
        raise typer.Exit(LIMIT_REACHED)
    if result.check is not None and result.check.delays:
        raise typer.Exit(FAILED)
