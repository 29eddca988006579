"""Options that say which pods are kbatch's, where the chart was installed with other names than it has by default."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

SchedulerName: TypeAlias = Annotated[
    str | None,
    typer.Option("--scheduler-name", metavar="NAME", help="spec.schedulerName of the pods that kbatch schedules."),
]
DefaultQueue: TypeAlias = Annotated[
    str | None, typer.Option("--default-queue", metavar="QUEUE", help="The Queue of PodGroups and pods that name none.")
]
