"""`kbatch simulate --trace` and `--generate`: a workload log, or days that are made, in virtual time."""

from __future__ import annotations

import errno
import gc
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from kbatch.choices import Backfill, PodShape, TraceForm, TracePolicy
from kbatch.cli.output import BAD_INPUT, FAILED, Output, console, fail, warn
from kbatch.cli.progress import shown
from kbatch.times import SECOND

if TYPE_CHECKING:
    from kbatch.engine import Policy as EnginePolicy
    from kbatch.simulator.traces.cluster import Cluster
    from kbatch.simulator.traces.jobs import Trace
    from kbatch.simulator.traces.result import TraceResult

MOST_NODES: Final = 1_000_000
_MOST_DELAYS: Final = 5


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """What the command line says of a trace; None: it says nothing. There is either a file or a specification.

    Attributes:
        trace: the file of a log; generate: the specification of days to be made.
        write: where to keep the jobs that were made.
        nodes: a number, or a file that lists them.
        until: in seconds.
    """

    trace: Path | None
    generate: Path | None
    seed: int | None
    write: Path | None
    form: TraceForm | None
    nodes: str | None
    node_cpus: str | None
    node_gpus: int | None
    policy: TracePolicy
    backfill: Backfill
    depth: int | None
    shape: PodShape
    until: float | None
    job_nodes: bool
    plot: Path | None
    check: bool
    scheduler_conf: Path | None
    output: Output


def run_trace(request: TraceRequest) -> None:
    """Run a trace and print what became of it. Status 1 where the check of backfilling finds a delay."""
    from kbatch.api.configuration import ConfigurationError
    from kbatch.simulator.errors import InputError
    from kbatch.simulator.traces.options import Options
    from kbatch.simulator.traces.run import simulate

    gc.set_threshold(200_000, 50, 100)
    try:
        if request.policy is TracePolicy.CONF:
            _refuse_list_scheduling(request)
        elif request.scheduler_conf is not None:
            _refuse("--scheduler-conf needs --policy conf")
        if request.depth is not None and request.backfill is Backfill.NONE:
            _refuse("--depth needs --backfill easy or --backfill conservative")
        options = Options(
            policy=request.policy,
            backfill=request.backfill,
            depth=request.depth,
            shape=request.shape,
            until=None if request.until is None else round(request.until * SECOND),
            nodes=request.job_nodes and request.output is Output.JSON,
            slices=request.plot is not None,
            check=request.check,
        )
        policy = _engine_policy(request)
        _check_outputs(request)
        trace, cluster = _generated(request) if request.trace is None else _logged(request, str(request.trace))
        with shown() as progress:
            if policy is not None:
                from kbatch.simulator.traces.engine import simulate_by_engine

                result = simulate_by_engine(trace, cluster, options, policy, progress)
            else:
                result = simulate(trace, cluster, options, progress)
    except (InputError, ConfigurationError) as error:
        fail(str(error), BAD_INPUT)
    _print(result, request.output)
    if request.plot is not None:
        _draw(result, request.plot)
    for delay in result.delays[:_MOST_DELAYS]:
        warn(str(delay))
    if result.delays:
        fail(f"{len(result.delays)} reservations were delayed by jobs that were backfilled before them", FAILED)


def _logged(request: TraceRequest, path: str) -> tuple[Trace, Cluster]:
    """A log, and the nodes that the command line names."""
    from kbatch.simulator.traces.files import load_trace

    if request.form is None:
        _refuse("--format is missing: swf, openb or csv")
    for option, given in (("--seed", request.seed), ("--write", request.write)):
        if given is not None:
            _refuse(f"{option} needs --generate")
    cluster = _cluster(request)
    return load_trace(path, request.form), cluster


def _generated(request: TraceRequest) -> tuple[Trace, Cluster]:
    """Days as the specification describes them, and its nodes."""
    from kbatch.simulator.traces.day import read_day
    from kbatch.simulator.traces.generation import cluster_of, generate, written

    assert request.generate is not None  # noqa: S101 -- there is one or the other
    for option, given in (
        ("--format", request.form),
        ("--nodes", request.nodes),
        ("--node-cpus", request.node_cpus),
        ("--node-gpus", request.node_gpus),
    ):
        if given is not None:
            _refuse(f"{option} cannot be used with --generate: the specification names the nodes")
    spec = read_day(request.generate)
    trace = generate(spec, request.seed, str(request.generate))
    if request.write is not None:
        try:
            with request.write.open("w", encoding="utf-8") as file:
                file.writelines(written(trace.jobs))
        except OSError as error:
            fail(f"{request.write}: cannot be written: {error.strerror or error}")
    return trace, cluster_of(spec)


def _refuse_list_scheduling(request: TraceRequest) -> None:
    """The configuration says what the engine does: options of the other policies say nothing."""
    if request.backfill is not Backfill.NONE or request.depth is not None:
        _refuse("--backfill and --depth cannot be used with --policy conf: the configuration says how to backfill")
    if request.check:
        _refuse("--check-backfill cannot be used with --policy conf")


def _engine_policy(request: TraceRequest) -> EnginePolicy | None:
    from kbatch.cli.configuration import load

    return load(request.scheduler_conf)[1] if request.policy is TracePolicy.CONF else None


def _cluster(request: TraceRequest) -> Cluster:
    from kbatch.resources import CPU, QuantityError, parse_quantity
    from kbatch.simulator.traces.files import load_cluster

    nodes = request.nodes
    if nodes is None:
        _refuse("--nodes is missing: how many nodes there are, or a file that lists them")
    if not (nodes.isdecimal() and nodes.isascii()):
        if request.node_cpus is not None or request.node_gpus is not None:
            _refuse("--node-cpus and --node-gpus cannot be used if --nodes names a file")
        if not nodes or not Path(nodes).exists():
            _refuse(f"--nodes {nodes}: neither a whole number nor a file that lists nodes")
    elif not 1 <= int(nodes) <= MOST_NODES:
        _refuse(f"--nodes {nodes}: there must be from 1 to {MOST_NODES} nodes")
    try:
        cpu = parse_quantity(CPU, request.node_cpus or "1")
    except QuantityError as error:
        _refuse(f"--node-cpus: {error}")
    if cpu <= 0:
        _refuse(f"--node-cpus {request.node_cpus}: a node must have some")
    return load_cluster(nodes, cpu, request.node_gpus or 0)


def _check_outputs(request: TraceRequest) -> None:
    """End the command before it writes over what it reads, or has written."""
    taken = {
        "the trace": request.trace,
        "the specification": request.generate,
        "the configuration": request.scheduler_conf,
    }
    if request.nodes is not None and not request.nodes.isdecimal():
        taken["the list of nodes"] = Path(request.nodes)
    for option, path in (("--write", request.write), ("--plot", request.plot)):
        if path is None:
            continue
        for what, other in taken.items():
            if other is not None and path.resolve() == other.resolve():
                _refuse(f"{option} {path}: this is {what}, and would be written over")
        taken[f"what {option} writes"] = path
        _check_writable(path)


def _check_writable(path: Path) -> None:
    """End the command before a long run where its folder tells that the file cannot be written after it."""
    if path.is_dir():
        why = errno.EISDIR
    elif not path.parent.is_dir():
        why = errno.ENOTDIR if path.parent.exists() else errno.ENOENT
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        why = errno.EACCES
    else:
        return
    fail(f"{path}: cannot be written: {os.strerror(why)}")


def _draw(result: TraceResult, path: Path) -> None:
    from kbatch.simulator.traces.plot import draw

    try:
        path.write_text(draw(result), "utf-8")
    except OSError as error:
        fail(f"{path}: cannot be written: {error.strerror or error}")


def _print(result: TraceResult, output: Output) -> None:
    if output is Output.JSON:
        for piece in result.encode():
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return
    with console() as out:
        result.report(out)


def _refuse(text: str) -> NoReturn:
    fail(text, BAD_INPUT)
