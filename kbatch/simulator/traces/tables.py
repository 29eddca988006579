"""Traces and node lists as comma separated values, the first line naming the columns: our own, and Alibaba's openb.

Ours: `arrival,duration,estimate,tasks,cpu,memory,gpu,queue,priority`, of which the first two must be there; quantities
as in Kubernetes. The jobs are numbered from 1, by their places in the file.

openb (Alibaba's GPU cluster trace of 2023): a list of pods, `name,cpu_milli,memory_mib,num_gpu,gpu_milli,...,
creation_time,deletion_time,scheduled_time`, and a list of nodes, `sn,cpu_milli,memory_mib,gpu,...`. GPUs are whole: a
pod that asks for a part of one takes one.
"""

from __future__ import annotations

import csv
import difflib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

from kbatch.api.names import DEFAULT_QUEUE
from kbatch.resources import QuantityError, parse_quantity
from kbatch.simulator.traces.jobs import DIMENSIONS, PROCESSORS, RUN_TIME, SUBMISSION, Job, Shape
from kbatch.simulator.traces.reading import LineError, Lines, instant, seconds, whole

MIB: Final = 2**20

Row: TypeAlias = Mapping[str, str]


def rows(lines: Lines, needed: tuple[str, ...], known: tuple[str, ...] = ()) -> Iterator[tuple[int, Row]]:
    """Each line below the header by the names of its columns, with its number. Columns not named here are ignored, with
    a warning where the name is like that of a known one that is not there.

    Raises:
        LineError: a needed column is not there, one of use is there twice, a line has more or fewer columns than the
            header, or a quote in it is not closed.
    """
    at = 0
    unfinished = False

    def texts() -> Iterator[str]:
        nonlocal at, unfinished
        for number, line in lines:
            at, unfinished = number, True
            yield line
            if unfinished:  # the reader asks for more without having made a row: it would join the lines
                raise LineError(at, "", "a quote is still open at the end of the line")

    table = csv.reader(texts(), skipinitialspace=True)
    try:
        header = [name.strip() for name in next(table, [])]
        unfinished = False
        for name in needed:
            if name not in header:
                near = difflib.get_close_matches(name, header, 1, 0.8)
                meant = f"; there is {near[0]!r}" if near else ""
                raise LineError(max(at, 1), "", f"the first line names no column {name!r}{meant}")
        for name in (*needed, *known):
            if header.count(name) > 1:
                raise LineError(at, "", f"the first line names column {name!r} twice")
        for name in dict.fromkeys(header):
            near = difflib.get_close_matches(name, {*known} - {*header}, 1, 0.8) if name not in known else []
            if near and name not in needed:
                _warn(f"column {name!r} is ignored; is {near[0]!r} meant?")
        for values in table:
            unfinished = False
            if not any(value.strip() for value in values):
                continue
            if len(values) != len(header):
                raise LineError(at, "", f"there are {len(values)} columns, and the first line names {len(header)}")
            yield at, dict(zip(header, values, strict=True))
    except csv.Error as error:
        raise LineError(at, "", str(error)) from None


def _warn(text: str) -> None:
    """A sentence on standard error, where commands put theirs, of what does not end the reading."""
    print(f"kbatch: {text}", file=sys.stderr)


_JOB: Final = ("arrival", "duration")
_JOB_MORE: Final = ("estimate", "tasks", "cpu", "memory", "gpu", "queue", "priority")
COLUMNS: Final = (*_JOB, *_JOB_MORE)
"""Of a table of ours."""


def parse(lines: Lines) -> Iterator[Job | str]:
    """The jobs of a table of ours.

    Raises:
        LineError: a line cannot be understood.
    """
    for place, (number, row) in enumerate(rows(lines, _JOB, _JOB_MORE), start=1):
        submit = instant(number, "arrival", row["arrival"])
        if submit < 0:
            raise LineError(number, "arrival", f"{row['arrival'].strip()!r} is before the start")
        run = seconds(number, "duration", row["duration"])
        estimate = _given(number, row, "estimate", seconds, -1)
        tasks = _given(number, row, "tasks", whole, 1)
        asked = [
            _given(number, row, column, _amount, default, missing="-1")
            for column, default in (("cpu", 1000), ("memory", 0), ("gpu", 0))
        ]
        priority = _given(number, row, "priority", whole, 0)
        if run <= 0:
            yield RUN_TIME
        elif tasks <= 0:
            yield PROCESSORS
        else:
            queue = row.get("queue", "").strip() or DEFAULT_QUEUE
            yield Job(
                0, str(place), submit, run, estimate if estimate > 0 else run, tasks, Shape(*asked), queue, priority
            )  # fmt: skip


def _given(
    number: int, row: Row, column: str, read: Callable[[int, str, str], int], default: int, *, missing: str = ""
) -> int:
    """What a column says; the default where it is not there, empty or `missing`."""
    text = row.get(column, "").strip()
    return default if text in ("", missing) else read(number, column, text)


def _name(number: int, row: Row, column: str) -> str:
    """What something is called."""
    text = row[column].strip()
    if not text:
        raise LineError(number, column, "is empty")
    return text


def _amount(number: int, column: str, text: str) -> int:
    """A quantity that is not negative."""
    name = dict(zip(("cpu", "memory", "gpu"), DIMENSIONS, strict=True))[column]
    try:
        amount = parse_quantity(name, text)
    except QuantityError as error:
        raise LineError(number, column, str(error)) from None
    if amount < 0:
        raise LineError(number, column, f"{text!r} is negative")
    return amount


_POD: Final = ("name", "cpu_milli", "memory_mib", "num_gpu", "creation_time", "deletion_time")
_POD_MORE: Final = ("gpu_milli", "scheduled_time")
_NODE: Final = ("sn", "cpu_milli", "memory_mib", "gpu")


def parse_openb(lines: Lines) -> Iterator[Job | str]:
    """The pods of a list of Alibaba's, each a job of one pod.

    Raises:
        LineError: a line cannot be understood.
    """
    for number, row in rows(lines, _POD, _POD_MORE):
        name = _name(number, row, "name")
        created, scheduled, deleted = (
            _given(number, row, column, instant, -1) for column in ("creation_time", "scheduled_time", "deletion_time")
        )
        gpus = _given(number, row, "num_gpu", whole, 0)
        part = _given(number, row, "gpu_milli", whole, 0)
        shape = Shape(
            _natural(number, row, "cpu_milli"),
            _natural(number, row, "memory_mib") * MIB,
            max(gpus, 1) if part > 0 else max(gpus, 0),
        )
        run = deleted - (created if scheduled < 0 else scheduled)
        if created < 0:
            yield SUBMISSION
        elif deleted < 0 or run <= 0:
            yield RUN_TIME
        else:
            yield Job(0, name, created, run, run, 1, shape, DEFAULT_QUEUE)


def parse_openb_nodes(lines: Lines) -> Iterator[tuple[str, Shape]]:
    """The nodes of a list of Alibaba's: what each is called and offers.

    Raises:
        LineError: a line cannot be understood.
    """
    for number, row in rows(lines, _NODE):
        offers = Shape(
            _natural(number, row, "cpu_milli"),
            _natural(number, row, "memory_mib") * MIB,
            _natural(number, row, "gpu"),
        )
        yield _name(number, row, "sn"), offers


def _natural(number: int, row: Row, column: str) -> int:
    """A whole number from 0 on; what is missing is 0."""
    amount = _given(number, row, column, whole, 0)
    if amount < 0:
        raise LineError(number, column, f"{row[column].strip()!r} is negative")
    return amount
