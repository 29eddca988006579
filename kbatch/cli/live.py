"""`kbatch groups`, `kbatch queues`, `kbatch explain`: what a live cluster says about groups and queues.

They only read, and only pods and what kbatch's own processes wrote: anybody who may see the PodGroups of a namespace
may ask.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from kbatch.cli.output import Format, Output, console, fail, print_json, say

if TYPE_CHECKING:
    from kbatch.api.objects import Job, PodGroup, Queue
    from kbatch.kube.client import Client

_Found = TypeVar("_Found")

Kubeconfig = Annotated[
    str | None,
    typer.Option(
        "--kubeconfig",
        metavar="FILE",
        help="Kubeconfig file; by default KUBECONFIG, the pod's ServiceAccount, or ~/.kube/config.",
    ),
]
Context = Annotated[str | None, typer.Option("--context", metavar="NAME", help="The kubeconfig's context to use.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("groups", short_help="List PodGroups, and why they wait.")(groups)
    app.command("queues", short_help="List Queues, and what each deserves.")(queues)
    app.command("explain", short_help="Explain why a PodGroup, a pod or a Job waits.")(explain)
    app.command("held-jobs", short_help="List the Jobs that kbatch holds suspended.")(held_jobs)


def groups(
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", metavar="NAME", help="Only this namespace; by default all.")
    ] = None,
    waiting: Annotated[bool, typer.Option("--waiting", help="Only PodGroups that wait.")] = False,
    output: Format = Output.TEXT,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """List the PodGroups of a cluster: phase, pods, and why they wait; and the Jobs that wait without one."""
    from kbatch.cli.configuration import left_alone
    from kbatch.cli.held import all_jobs, group_key, without_group
    from kbatch.cli.outside import outside_queues
    from kbatch.cli.views import group_rows, group_table, held_row
    from kbatch.kube.kinds import PODGROUPS, key_of
    from kbatch.kube.lists import list_all

    async def look(client: Client) -> tuple[list[PodGroup], list[Job], str]:
        # Jobs first: of one that has come since, the PodGroup may not be there yet.
        jobs = await all_jobs(client, namespace)
        groups = await list_all(client, PODGROUPS, namespace=namespace)
        unseen = {row.namespace for row in group_rows(groups) if row.waits and not row.reason}
        return groups, jobs, await left_alone(client, unseen) if unseen else ""

    found, jobs, alone = ask(look, kubeconfig, context, hint=namespace_hint(namespace))
    outside = outside_queues(jobs)
    known = {key_of(group.metadata.namespace, group.metadata.name): group for group in found}
    held = [held_row(job, taken=group_key(job) in known) for job in without_group(jobs, known)]
    rows = [row for row in (*group_rows(found), *held) if row.waits or not waiting]
    if output is Output.JSON:
        print_json([row.json() for row in rows])
    else:
        with console() as out:
            out.print(group_table(rows))
        if alone:
            say(f"{alone[:1].upper()}{alone[1:]}")
        if outside:
            say(f"Outside of the queue that they name, on the default scheduler: Jobs {', '.join(outside)}")


def queues(output: Format = Output.TEXT, kubeconfig: Kubeconfig = None, context: Context = None) -> None:
    """List the Queues of a cluster: what each deserves, holds and requests; with the plugin flow, what it has used."""
    import time

    from kbatch.cli.views import queue_rows, queue_table
    from kbatch.times import SECOND

    found, half_life = ask(_queues, kubeconfig, context)
    rows = queue_rows(found, int(time.time() * SECOND), half_life)
    if output is Output.JSON:
        print_json([row.json() for row in rows])
    else:
        with console() as out:
            out.print(queue_table(rows))


async def _queues(client: Client) -> tuple[list[Queue], int | None]:
    """The Queues, and the half-life of what they have used; None: it does not fade, or is not known."""
    from kbatch.api.configuration import ConfigurationError
    from kbatch.cli.configuration import half_life_of, installed, load
    from kbatch.kube.errors import KubeError
    from kbatch.kube.kinds import QUEUES
    from kbatch.kube.lists import list_all

    found = await list_all(client, QUEUES)
    if all(queue.status.flow is None for queue in found):
        return found, None
    try:
        configuration = await installed(client)
        policy = load(None, configuration.given)[1] if not isinstance(configuration, str) else None
    except (ConfigurationError, KubeError):
        return found, None  # what was written last is shown
    return found, half_life_of(policy) if policy is not None else None


def explain(
    name: Annotated[str, typer.Argument(metavar="NAMESPACE/NAME", help="A PodGroup, a pod, or a Job.")],
    output: Format = Output.TEXT,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Explain why a PodGroup, a pod or a Job waits, and what would help."""
    from kbatch.cli.explanation import NotThereError, gather

    namespace, _, own_name = name.rpartition("/")
    if not namespace or not own_name:
        fail(f"{name!r} is not of the form NAMESPACE/NAME", 2)
    try:
        explanation = ask(lambda client: gather(client, namespace, own_name), kubeconfig, context)
    except NotThereError as error:
        fail(str(error))
    if output is Output.JSON:
        print_json(explanation.json())
    else:
        for line in explanation.lines():
            say(line)


def held_jobs(
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", metavar="NAME", help="Only this namespace; by default all.")
    ] = None,
    plain: Annotated[
        bool,
        typer.Option(
            "--plain", help="Print manifests of the same Jobs without kbatch, for: kubectl replace --force -f -"
        ),
    ] = False,
    output: Format = Output.TEXT,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """List the Jobs that kbatch holds suspended. Without kbatch they stay so; --plain shows how they start then."""
    from kbatch.cli.held import group_key, is_held, plain_manifests
    from kbatch.kube.kinds import JOBS, key_of
    from kbatch.kube.lists import list_all

    async def look(client: Client) -> tuple[list[Job], list[dict[str, Any]]]:
        found = [job for job in await list_all(client, JOBS, namespace=namespace) if is_held(job)]
        return found, await plain_manifests(client, found) if plain else []

    jobs, manifests = ask(look, kubeconfig, context, hint=namespace_hint(namespace))
    if plain:
        print_json({"apiVersion": "v1", "kind": "List", "items": manifests})
    elif output is Output.JSON:
        print_json(
            [
                {"namespace": job.metadata.namespace, "name": job.metadata.name, "podGroup": group_key(job)}
                for job in jobs
            ]
        )
    else:
        for job in jobs:
            say(key_of(job.metadata.namespace, job.metadata.name))


def namespace_hint(namespace: str | None) -> str:
    """What helps whoever may not look at all namespaces."""
    return "" if namespace else "; look at one namespace with -n NAMESPACE"


def ask(
    question: Callable[[Client], Coroutine[Any, Any, _Found]],
    kubeconfig: str | None,
    context: str | None,
    *,
    hint: str = "",
) -> _Found:
    """The answer of the cluster; what keeps it from answering is one sentence and status 1.

    `hint`: what helps where it is not permitted.
    """
    import asyncio

    from kbatch.kube.client import Client
    from kbatch.kube.credentials import load_credentials
    from kbatch.kube.depth import allow_deep_objects
    from kbatch.kube.errors import ApiError, KubeError, NoAnswerError

    allow_deep_objects()

    async def ask() -> _Found:
        async with Client(load_credentials(kubeconfig, context=context), user_agent="kbatch-cli") as client:
            return await question(client)

    try:
        return asyncio.run(ask())
    except NoAnswerError as error:
        fail(f"the cluster does not answer: {error.why}")
    except ApiError as error:
        if error.status == 404:
            fail("the cluster does not know PodGroups and Queues; is kbatch installed there?")
        fail(f"the cluster refuses: {error}{hint if error.status == 403 else ''}")
    except (KubeError, OSError) as error:
        fail(str(error))
