"""From the names of files to a trace and a cluster."""

from __future__ import annotations

from typing import Final

from kbatch.choices import TraceForm
from kbatch.simulator.traces import swf, tables
from kbatch.simulator.traces.cluster import Cluster, listed, numbered
from kbatch.simulator.traces.jobs import Trace
from kbatch.simulator.traces.reading import read

_PARSERS: Final = {TraceForm.SWF: swf.parse, TraceForm.OPENB: tables.parse_openb, TraceForm.CSV: tables.parse}


def load_trace(path: str, form: TraceForm) -> Trace:
    """The jobs of a file.

    Raises:
        InputError: it cannot be read or understood; with the line.
    """
    return read(path, _PARSERS[form])


def load_cluster(nodes: str, cpu: int, gpus: int) -> Cluster:
    """So many nodes of so many milli-cores and GPUs; or those of an openb node list, if `nodes` is no number.

    Raises:
        InputError: the list cannot be read or understood.
    """
    if nodes.isdecimal() and nodes.isascii():
        return numbered(int(nodes), cpu, gpus)
    return listed(nodes)
