"""What `kbatch simulate` costs: jobs that come over time, half as many again as their cluster has room for.

    python -m tests.bench.simulate [--seed N] [--shapes N] [--form written|made] [--keep FOLDER] [--json FILE] [JOBS]

A cluster of 40 nodes of 32 CPUs; 2,000 jobs of ten pods on average, then 10,000. They differ as in
`tests.bench.waiting_load`: sizes, CPUs, priorities, roles, selectors, spread, minResources; one queue with a capability
below its share by weight; namespaces with and without ResourceQuota, of which three have one of their even part of the
cluster. Until the last has come, the work that comes is 150 % of what the cluster can do. Each row runs with manifests
of two forms: with every pod of its own (`written`: each belongs to a controller, which makes another in the place of a
victim), and with Jobs and PodGroups with templates (`made`). Quotas refuse only the latter: pods that are written are
there, whatever a quota says.

The whole command is measured as it is installed, with its modules compiled to bytecode, from its start to its end:
seconds of its process on the processor, and its resident memory at the peak. Ends with status 1 where a limit is
missed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
from msgspec.structs import replace

from kbatch.api.names import SUB_GROUP_LABEL
from kbatch.api.objects import AnyObject, Job, JobSpec, Metadata, OwnerReference, Pod, PodTemplate
from kbatch.simulator.names import ARRIVAL, DURATION
from tests.bench.engine import keep
from tests.bench.waiting_load import BOUND, NAMESPACES, Shape, cluster_of, pods_of, shapes_of, waiting_group

NODES: Final = 40
CPUS: Final = 32
QUEUES: Final = 5
LOAD: Final = 1.5
SIZES: Final = (4, 16)
QUOTA: Final = NODES * CPUS // NAMESPACES
"""CPUs of a quota that binds: a namespace's even part of the cluster, and as many as the largest job asks for."""
SECONDS: Final = (60, 600)
"""How long a job's pods run."""
JOBS_PER_SHAPE: Final = 50
LIMITS: Final = {2000: 15.0, 10_000: 120.0}
"""Seconds of the processor for so many jobs."""
FORMS: Final = ("written", "made")
_GROUP, _NAMESPACE, _QUEUE = "the-group", "the-namespace", "the-queue"
_ARRIVAL, _DURATION = "777777.7", "888888"
"""What stands in the text of a shape for that in which jobs differ."""


@dataclass(frozen=True, slots=True)
class Figure:
    """What one run gave; what follows `memory` (MiB) is from its output."""

    jobs: int
    form: str
    shapes: int
    pods: int
    megabytes: float
    seconds: float
    memory: float
    cycles: int
    binds: int
    evictions: int
    makespan: float
    utilisation: float
    engine_seconds: float
    met: bool


def document(obj: AnyObject) -> str:
    """One object as YAML, as people write it."""
    content = {"apiVersion": obj.api_version, "kind": obj.kind, **msgspec.to_builtins(obj)}
    return "---\n" + str(yaml.dump(content, Dumper=yaml.CSafeDumper, sort_keys=False))


def _unmade(metadata: Metadata, **more: Any) -> Metadata:
    """Without what the API server fills in."""
    return replace(metadata, uid="", creation_timestamp=None, generation=0, **more)


def _annotations(pod: Pod) -> dict[str, str]:
    return {**(pod.metadata.annotations or {}), DURATION: _DURATION}


def _group(shape: Shape, templates: dict[str, PodTemplate]) -> str:
    group = waiting_group(_GROUP, _NAMESPACE, shape, _QUEUE, "", stated=shape.stated)
    roles = tuple(
        replace(role, template=msgspec.to_builtins(templates[role.name])) if templates else role
        for role in group.spec.sub_groups or ()
    )
    metadata = _unmade(group.metadata, annotations={ARRIVAL: _ARRIVAL})
    return document(replace(group, metadata=metadata, spec=replace(group.spec, sub_groups=roles or None)))


def written(shape: Shape) -> str:
    """A job of the shape: its PodGroup and each of its pods."""
    text = _group(shape, {})
    owner = OwnerReference(api_version="example.com/v1", kind="Run", name=_GROUP, uid=_GROUP, controller=True)
    for pod in pods_of(_GROUP, _NAMESPACE, shape, ""):
        annotations = {**_annotations(pod), ARRIVAL: _ARRIVAL}
        metadata = _unmade(pod.metadata, annotations=annotations, owner_references=(owner,))
        text += document(Pod(metadata=metadata, spec=pod.spec))
    return text


def made(shape: Shape) -> str:
    """A job of the shape: its PodGroup, with templates where it has roles, and without them a Job."""
    pods = {(pod.metadata.labels or {}).get(SUB_GROUP_LABEL, ""): pod for pod in pods_of(_GROUP, _NAMESPACE, shape, "")}
    templates = {
        role: PodTemplate(
            metadata=Metadata(labels={"app": _GROUP}, annotations=_annotations(pod)),
            spec=pod.spec,
        )
        for role, pod in pods.items()
    }
    if "" not in templates:
        return _group(shape, templates)
    job = Job(
        metadata=Metadata(name=_GROUP, namespace=_NAMESPACE, annotations={ARRIVAL: _ARRIVAL}),
        spec=JobSpec(parallelism=shape.size, completions=shape.size, template=templates[""]),
    )
    return _group(shape, {}) + document(job)


def manifests(jobs: int, form: str, shapes: int, seed: int) -> Iterator[tuple[str, int]]:
    """The input piece by piece, as text, and how many pods each brings."""
    chance = random.Random(seed)
    for obj in cluster_of(NODES, CPUS, QUEUES, dict.fromkeys(BOUND, QUOTA)):
        yield document(obj), 0
    kinds = shapes_of(shapes, chance, affinity=False, sizes=SIZES)
    texts = [written(shape) if form == "written" else made(shape) for shape in kinds]
    drawn = [(chance.randrange(shapes), chance.randint(*SECONDS)) for _ in range(jobs)]
    span = sum(kinds[kind].cpus * seconds for kind, seconds in drawn) / (LOAD * NODES * CPUS)
    arrivals = sorted(chance.uniform(0, span) for _ in drawn)
    for at, ((kind, seconds), arrival) in enumerate(zip(drawn, arrivals, strict=True)):
        values = {
            _GROUP: f"w{at:06}", _NAMESPACE: f"ns{chance.randrange(NAMESPACES)}",
            _QUEUE: f"q{chance.randrange(QUEUES)}", _ARRIVAL: f"{arrival:.1f}", _DURATION: str(seconds),
        }  # fmt: skip
        text = texts[kind]
        for placeholder, value in values.items():
            text = text.replace(placeholder, value)
        yield text, kinds[kind].size


@cache
def installed(folder: Path) -> dict[str, str]:
    """An environment in which the command's modules are compiled already, as where it is installed."""
    found = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    found["PYTHONPYCACHEPREFIX"] = str(folder / "compiled")
    command = [sys.executable, "-P", "-m", "kbatch", "simulate", "-", "-o", "json"]
    subprocess.run(command, check=True, env=found, input=b"", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return found


def run(jobs: int, form: str, shapes: int, seed: int, folder: Path) -> Figure:
    """One run of the command."""
    path, output = folder / f"{jobs}-{form}.yaml", folder / f"{jobs}-{form}.json"
    pods = 0
    with path.open("w", encoding="utf-8") as file:
        for text, count in manifests(jobs, form, shapes, seed):
            file.write(text)
            pods += count
    command = [sys.executable, "-P", "-c", MEASURED, "simulate", str(path), "-o", "json"]
    environment = installed(folder)
    with output.open("wb") as file:
        done = subprocess.run(command, check=True, stdout=file, stderr=subprocess.PIPE, env=environment)
    used = done.stderr.splitlines()[-1]
    seconds, memory = json.loads(used)
    summary = msgspec.json.decode(output.read_bytes())["summary"]
    return Figure(
        jobs, form, shapes, pods, path.stat().st_size / 1e6, seconds, memory / 1024, summary["cycles"],
        summary["binds"], summary["evictions"], summary["makespan"], summary["utilisation"]["cpu"],
        summary["engine_seconds"], seconds <= LIMITS.get(jobs, float("inf")),
    )  # fmt: skip


MEASURED: Final = """
import atexit, json, resource, sys
def tell():
    use = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps([use.ru_utime + use.ru_stime, use.ru_maxrss]), file=sys.stderr)
atexit.register(tell)
from kbatch.cli.main import main
main()
"""
"""The command as it is installed, which says at its end what it took."""


def main() -> int:
    """Run the rows; 1 where one misses its limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--shapes", type=int, help=f"of how many shapes the jobs are; by default one for {JOBS_PER_SHAPE}"
    )
    parser.add_argument("--form", choices=FORMS, help="one form of the manifests; both by default")
    parser.add_argument("--keep", metavar="FOLDER", type=Path, help="leave manifests and outputs there")
    parser.add_argument("--json", type=Path, help="write one JSON line per figure to this file")
    parser.add_argument("jobs", nargs="*", type=int, help=f"how many; by default {' and '.join(map(str, LIMITS))}")
    arguments = parser.parse_args()
    figures = []
    with tempfile.TemporaryDirectory(prefix="kbatch-bench-") as scratch:
        folder = arguments.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for jobs in arguments.jobs or LIMITS:
            for form in [arguments.form] if arguments.form else FORMS:
                shapes = arguments.shapes or max(1, jobs // JOBS_PER_SHAPE)
                figure = run(jobs, form, shapes, arguments.seed, folder)
                figures.append(figure)
                limit = LIMITS.get(jobs)
                print(
                    f"{'ok  ' if figure.met else 'MISS'} {jobs:6} jobs, {figure.pods} pods, {form:7}"
                    f" {figure.megabytes:5.1f} MB"
                    f"  {figure.seconds:7.2f} s  {figure.memory:5.0f} MiB  {figure.cycles} cycles"
                    f" ({figure.engine_seconds:.2f} s)  {figure.binds} binds {figure.evictions} evictions"
                    f"  makespan {figure.makespan:.0f} s, utilisation {figure.utilisation:.0%}"
                    + (f"  (<= {limit:g} s)" if limit else ""),
                    flush=True,
                )
    return keep(figures, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
