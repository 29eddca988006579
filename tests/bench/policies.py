"""Days of a cluster under one policy and another: the study in `docs/policies.md`.

    python -m tests.bench.policies [--seeds N] [--days NAME ...] [--ways NAME ...] [--keep FILE] [--write]

Days are made from the specifications in `examples/trace` and `tests/data/days`, and from a log in the Standard Workload
Format that `tests.bench.traces` makes; each is run to its last job by every way, with equal jobs. `--keep` appends the
figures of each run to a file, and takes runs that stand there from it: it is for one version of the code. `--write`
puts the tables into the page.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from kbatch.api.configuration import DEFAULT_TEXT, parse
from kbatch.choices import Backfill, TraceForm, TracePolicy
from kbatch.engine import build_policy
from kbatch.simulator.traces.cluster import Cluster, numbered
from kbatch.simulator.traces.day import read_day
from kbatch.simulator.traces.engine import simulate_by_engine
from kbatch.simulator.traces.files import load_trace
from kbatch.simulator.traces.generation import cluster_of, generate
from kbatch.simulator.traces.jobs import DIMENSIONS, Trace
from kbatch.simulator.traces.options import Options
from kbatch.simulator.traces.result import TraceResult
from kbatch.simulator.traces.run import simulate
from kbatch.times import HOUR
from tests.bench import traces

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "policies.md"
SEEDS: Final = 3
_EXAMPLES: Final = ROOT / "examples" / "configurations"
_SPECS: Final = {
    "gpus": ROOT / "examples" / "trace" / "day.yaml",
    "gangs": ROOT / "tests" / "data" / "days" / "gangs.yaml",
    "full": ROOT / "tests" / "data" / "days" / "full.yaml",
}
_LOG_NODES: Final = 128
_LOG_JOBS: Final = 1500


@dataclass(frozen=True, slots=True)
class Day:
    """Jobs as they come, and until when: in microseconds from the first instant. `until`: nothing is simulated that is
    later.
    """

    trace: Trace
    cluster: Cluster
    span: int
    until: int | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """What came of one run.

    Attributes:
        useful: what jobs that ended held in their last run, while jobs came, over what there was: of the resource asked
            for most.
        mean_wait, p99_wait, max_wait: in seconds, to the first start. max_total_wait: also after evictions.
        lag: the greatest part of the cluster by which a queue held less than it deserved.
        wasted: seconds that evicted pods had run.
        seconds: of the processor, for the run.
    """

    useful: float
    mean_wait: float
    p99_wait: float
    max_wait: float
    max_total_wait: float
    slowdown: float
    jain: float
    lag: float
    evictions: int
    wasted: float
    seconds: float


Way = Callable[[Day], TraceResult]


def _listed(backfill: Backfill, policy: TracePolicy = TracePolicy.FCFS) -> Way:
    return lambda day: simulate(
        day.trace, day.cluster, Options(policy=policy, backfill=backfill, nodes=False, until=day.until)
    )  # fmt: skip


def _configured(text: str) -> Way:
    policy = build_policy(parse(text, "study"))
    return lambda day: simulate_by_engine(
        day.trace, day.cluster, Options(policy=TracePolicy.CONF, nodes=False, until=day.until), policy
    )  # fmt: skip


def backfilling(text: str, mode: str) -> str:
    """A configuration with planned starts; its actions stand in one line."""
    actions = re.search(r'(?m)^actions: "(.*)"$', text)
    if actions is None:
        raise ValueError("the actions do not stand in one line")
    lines = [
        f"- name: backfill\n  arguments: {{mode: {mode}}}" if name == "backfill" else f"- {name}"
        for name in actions[1].split(", ")
    ]
    return text.replace(actions[0], "actions:\n" + "\n".join(lines))


def example(name: str) -> str:
    """The text of an example configuration."""
    return (_EXAMPLES / f"{name}.yaml").read_text("utf-8")


WAYS: Final[Mapping[str, Way]] = {
    "first come, first served": _listed(Backfill.NONE),
    "the same, EASY": _listed(Backfill.EASY),
    "the same, conservative": _listed(Backfill.CONSERVATIVE),
    "default (drf, proportion)": _configured(DEFAULT_TEXT),
    "default, EASY": _configured(backfilling(DEFAULT_TEXT, "easy")),
    "default, conservative": _configured(backfilling(DEFAULT_TEXT, "conservative")),
    "flow": _configured(example("flow")),
    "flow, EASY": _configured(backfilling(example("flow"), "easy")),
    "packing": _configured(example("packing")),
    "packing, EASY": _configured(backfilling(example("packing"), "easy")),
}
"""First those that know nothing of queues, then the engine by its configuration."""


def made(name: str) -> Callable[[int], Day]:
    """Days of a specification."""

    def day(seed: int) -> Day:
        spec = read_day(_SPECS[name])
        return Day(generate(spec, seed), cluster_of(spec), round(spec.days * 24 * HOUR))

    return day


def log(seed: int) -> Day:
    """A log of one-CPU processors: `tests.bench.traces`, on a smaller cluster."""
    with tempfile.TemporaryDirectory(prefix="kbatch-bench-") as folder:
        path = Path(folder) / "log.swf"
        nodes = _LOG_NODES
        path.write_text("".join(traces.lines(_LOG_JOBS, seed, 0.52, 86_400, nodes=nodes)), "utf-8")
        trace = load_trace(str(path), TraceForm.SWF)
    return Day(trace, numbered(nodes, 1000, 0), trace.jobs[-1].submit)


DAYS: Final[Mapping[str, Callable[[int], Day]]] = {"gpus": made("gpus"), "gangs": made("gangs"), "log": log}


def figures(day: Day, result: TraceResult, seconds: float) -> Figures:
    """What there is to say of a run."""
    summary = result.summary()
    held = [0.0] * len(DIMENSIONS)
    for job in result.jobs:
        if job.finish is None:
            raise ValueError(f"job {job.name} never ended")
        length = max(0, min(job.finish, day.span) - min(job.finish - job.run, day.span))
        for at, amount in enumerate(job.shape):
            held[at] += job.tasks * amount * length
    totals = [day.cluster.total(at) for at in range(len(DIMENSIONS))]
    useful = max(amount / (total * day.span) for amount, total in zip(held, totals, strict=True) if total)
    return Figures(
        useful=useful,
        mean_wait=summary["mean_wait"],
        p99_wait=summary["p99_wait"],
        max_wait=summary["max_wait"],
        max_total_wait=summary["max_total_wait"],
        slowdown=summary["mean_bounded_slowdown"],
        jain=summary["jain_index"],
        lag=summary["greatest_lag"],
        evictions=summary["evictions"],
        wasted=summary["wasted_seconds"],
        seconds=seconds,
    )


Run = tuple[str, int, str]
"""The day's name, its seed, and the way."""


def kept_runs(keep: Path | None) -> dict[Run, Figures]:
    """The runs that stand in a file of earlier ones, a JSON object in each line."""
    lines = keep.read_text("utf-8").splitlines() if keep is not None and keep.exists() else ()
    found = [json.loads(line) for line in lines]
    return {(each["day"], each["seed"], each["way"]): Figures(**each["figures"]) for each in found}


def one_run(name: str, seed: int, way: str) -> Figures:
    """Make the day, and run it to its last job."""
    day = DAYS[name](seed)
    begin = time.process_time()
    result = WAYS[way](day)
    return figures(day, result, time.process_time() - begin)


def study(name: str, ways: Sequence[str], seeds: int, keep: Path | None = None) -> dict[str, list[Figures]]:
    """The runs of each way, in the order of seeds. `keep`: the file of earlier runs, to which new ones are appended."""
    found: dict[str, list[Figures]] = {way: [] for way in ways}
    known = kept_runs(keep)
    for seed in range(1, seeds + 1):
        for way in ways:
            run = known.get((name, seed, way))
            if run is None:
                run = one_run(name, seed, way)
                if keep is not None:
                    line = json.dumps({"day": name, "seed": seed, "way": way, "figures": asdict(run)})
                    with keep.open("a", encoding="utf-8") as file:
                        file.write(f"{line}\n")
            found[way].append(run)
            print(f"{name} {seed}: {way}: {run}", file=sys.stderr, flush=True)
    return found


def table(found: Mapping[str, Sequence[Figures]]) -> str:
    """The means over the seeds, the longest wait of all, as Markdown."""
    lines = [
        "| way | useful | mean wait | p99 | longest | slowdown | Jain's index | greatest lag | evicted pods, lost |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for way, runs in found.items():
        mean = {
            name: statistics.fmean(getattr(run, name) for run in runs)
            for name in ("useful", "mean_wait", "p99_wait", "slowdown", "jain", "lag", "evictions", "wasted")
        }
        lost = f"{mean['evictions']:.0f}, {mean['wasted'] / 3600:.0f} h" if mean["evictions"] else "0"
        lines.append(
            f"| {way} | {mean['useful']:.1%} | {_minutes(mean['mean_wait'])} | {_minutes(mean['p99_wait'])}"
            f" | {_minutes(max(run.max_wait for run in runs))} | {mean['slowdown']:.1f} | {mean['jain']:.3f}"
            f" | {mean['lag']:.0%} | {lost} |"
        )
    return "\n".join(lines)


def write(name: str, text: str) -> None:
    """Put a table below its mark on the page, in the place of the one that stands there."""
    mark = f"<!-- {name} -->"
    before, _, rest = PAGE.read_text("utf-8").partition(mark)
    after = re.sub(r"\A\n+(\|[^\n]*\n)*", "", rest)
    PAGE.write_text(f"{before}{mark}\n\n{text}\n{after}", "utf-8")


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds < 600 else f"{seconds / 60:.0f} min"


def main() -> int:
    """Run the study, and print or write its tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--days", nargs="+", choices=list(DAYS), default=list(DAYS))
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument(
        "--keep", type=Path, metavar="FILE", help="append each run's figures; those that stand there are not made again"
    )
    parser.add_argument("--write", action="store_true", help="put the tables into docs/policies.md")
    arguments = parser.parse_args()
    for name in arguments.days:
        text = table(study(name, arguments.ways, arguments.seeds, arguments.keep))
        print(f"{name}\n\n{text}\n", flush=True)
        if arguments.write:
            write(name, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
