"""The Standard Workload Format of the Parallel Workloads Archive: 18 columns a line, comments after `;`, -1 is missing.

Of the columns: 1 the job's number, 2 submission, 4 run time, 5 processors that it had, 8 processors that it asked for,
9 the time that it asked for, 11 status, 15 the number of its queue. A log may tell of a job once more in parts (status
2 to 4, where it was interrupted); these lines follow the one that sums them up, and are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kbatch.api.names import DEFAULT_QUEUE
from kbatch.simulator.traces.jobs import ONE_CPU, PARTS, PROCESSORS, RUN_TIME, SUBMISSION, Job
from kbatch.simulator.traces.reading import LineError, Lines, instant, seconds, whole

COLUMNS: Final = 18
_PART: Final = frozenset({"2", "3", "4"})


def parse(lines: Lines) -> Iterator[Job | str]:
    """The jobs of a log.

    Raises:
        LineError: a line is none of the format.
    """
    known: set[str] = set()
    for number, line in lines:
        fields = line.partition(";")[0].split()
        if not fields:
            continue
        if len(fields) != COLUMNS:
            raise LineError(number, "", f"there are {len(fields)} columns, not {COLUMNS}")
        name = str(whole(number, "column 1 (job)", fields[0], 10**15))
        if fields[10] in _PART and name in known:
            yield PARTS
            continue
        known.add(name)
        yield _job(number, name, fields)


def _job(number: int, name: str, fields: list[str]) -> Job | str:
    submit = instant(number, "column 2 (submit time)", fields[1])
    run = seconds(number, "column 4 (run time)", fields[3])
    processors = whole(number, "column 8 (requested processors)", fields[7])
    if processors < 0:
        processors = whole(number, "column 5 (allocated processors)", fields[4])
    estimate = seconds(number, "column 9 (requested time)", fields[8])
    queue = whole(number, "column 15 (queue)", fields[14])
    if submit < 0:
        return SUBMISSION
    if run <= 0:
        return RUN_TIME
    if processors <= 0:
        return PROCESSORS
    return Job(
        number=0,
        name=name,
        submit=submit,
        run=run,
        estimate=estimate if estimate > 0 else run,
        tasks=processors,
        shape=ONE_CPU,
        queue=DEFAULT_QUEUE if queue < 0 else str(queue),
    )
