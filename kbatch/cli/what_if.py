"""`kbatch what-if`: what would become of these manifests in the live cluster as it is now. Nothing is sent to it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kbatch.cli.live import Context, Kubeconfig, ask
from kbatch.cli.ours import DefaultQueue, SchedulerName
from kbatch.cli.output import BAD_INPUT, LIMIT_REACHED, Format, Output, fail, print_result, warn
from kbatch.times import SECOND

if TYPE_CHECKING:
    from kbatch.api.objects import AnyObject
    from kbatch.kube.client import Api
    from kbatch.simulator.manifests import Declared


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("what-if", short_help="Try manifests on a copy of a live cluster.")(what_if)


def what_if(
    paths: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Manifests: files, folders, or - for standard input.")
    ],
    scheduler_conf: Annotated[
        Path | None, typer.Option("--scheduler-conf", metavar="FILE", help="Scheduler configuration to try.")
    ] = None,
    scheduler_name: SchedulerName = None,
    default_queue: DefaultQueue = None,
    until: Annotated[
        float, typer.Option("--until", min=0, max=10**9, metavar="SECONDS", help="How far to look ahead.")
    ] = 3600,
    output: Format = Output.TEXT,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show what would happen to manifests in the live cluster as it is now; nothing is changed there.

    What runs in the cluster is taken to run on. An object of the same name as a live one replaces it. The
    configuration, scheduler name and default queue are those of the installed scheduler unless options give others.
    """
    from kbatch.api.configuration import ConfigurationError
    from kbatch.api.names import DEFAULT_QUEUE, DEFAULT_SCHEDULER_NAME
    from kbatch.cli.configuration import half_life_of, installed
    from kbatch.cli.configuration import load as load_configuration
    from kbatch.simulator.errors import InputError
    from kbatch.simulator.manifests import load
    from kbatch.simulator.overlay import overlay
    from kbatch.simulator.run import Limits, simulate

    try:
        found = ask(installed, kubeconfig, context)
        known = None if isinstance(found, str) else found
        manifests = load(
            paths,
            scheduler_name=scheduler_name or (known and known.scheduler_name) or DEFAULT_SCHEDULER_NAME,
            default_queue=default_queue or (known and known.default_queue) or DEFAULT_QUEUE,
        )
        alone = known.leaves_alone(_namespaces(manifests.objects)) if known is not None else ""
        if alone:
            warn(f"{alone}: what is shown of that would not happen")
        given = manifests.configuration
        if scheduler_conf is None and given is None:
            if known is None:
                warn(f"{found}; the default configuration is assumed (give another by --scheduler-conf)")
            else:
                given = known.given
        _, policy = load_configuration(scheduler_conf, given)
        live = as_of_now(ask(everything, kubeconfig, context), half_life_of(policy))
        result = simulate(overlay(live, manifests), policy, Limits(until=round(until * SECOND)))
    except (InputError, ConfigurationError) as error:
        fail(str(error), BAD_INPUT)
    print_result(result, output)
    if result.limited:
        raise typer.Exit(LIMIT_REACHED)


def _namespaces(objects: Iterable[Declared]) -> set[str]:
    """Those in which there are groups, pods or Jobs."""
    from kbatch.api.objects import Job, Pod, PodGroup

    return {each.obj.metadata.namespace for each in objects if isinstance(each.obj, Job | Pod | PodGroup)}


def as_of_now(live: list[AnyObject], half_life: int | None) -> list[AnyObject]:
    """The objects; what queues have used, by their status, has faded by now."""
    import time

    from kbatch.api.objects import Queue
    from kbatch.model.usage import faded_until
    from kbatch.times import SECOND

    for obj in live if half_life is not None else ():
        if isinstance(obj, Queue) and obj.status.flow is not None and half_life is not None:
            obj.status.flow = faded_until(obj.status.flow, int(time.time() * SECOND), half_life)
    return live


async def everything(api: Api) -> list[AnyObject]:
    """All that the scheduler sees of the cluster.

    Raises:
        KubeError: the cluster does not answer, or refuses.
    """
    import asyncio

    from kbatch.kube import kinds
    from kbatch.kube.lists import list_all

    seen = (
        kinds.NODES, kinds.NAMESPACES, kinds.PRIORITYCLASSES, kinds.QUEUES, kinds.PODGROUPS, kinds.PODS, kinds.JOBS,
        kinds.RESOURCEQUOTAS, kinds.PODDISRUPTIONBUDGETS, kinds.PERSISTENTVOLUMES, kinds.PERSISTENTVOLUMECLAIMS,
        kinds.STORAGECLASSES, kinds.CSINODES,
    )  # fmt: skip
    lists = await asyncio.gather(*(list_all(api, kind) for kind in seen))
    return [obj for found in lists for obj in found]
