"""`kbatch job-sets`, `cancel`, `suspend`, `resume`, `reprioritize`: work that is managed as one.

They change what the user may change himself, with his own rights: PodGroups, Jobs, and for `cancel` pods.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbatch.cli.live import Context, Kubeconfig, ask, namespace_hint
from kbatch.cli.output import BAD_INPUT, FAILED, Format, Output, console, fail, plain, print_json, warn

if TYPE_CHECKING:
    from kbatch.api.objects import PodGroup
    from kbatch.cli.set_changes import Done
    from kbatch.cli.sets import JobSet
    from kbatch.kube.client import Api

Named = Annotated[
    str, typer.Option("--job-set", metavar="NAME", help="The job set: the value of the label kbatch.dev/job-set.")
]
OfQueue = Annotated[
    str | None,
    typer.Option(
        "--queue", "-q", metavar="NAME", help="The set's queue; required if several queues have a set of that name."
    ),
]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", metavar="NAME", help="Only this namespace; by default all.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and do nothing.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command("job-sets", short_help="List job sets: groups and Jobs of a queue with the same label.")(job_sets)
    app.command("cancel", short_help="Delete the groups and Jobs of a job set that have not ended.")(
        _command("cancel", "Delete all PodGroups and Jobs of a job set that have not ended, and their pods.")
    )
    app.command("suspend", short_help="Suspend a job set and delete its pods.")(
        _command(
            "suspend",
            "Suspend a job set: nothing is reserved for its Jobs and groups, and the pods that they made are deleted.",
        )
    )
    app.command("resume", short_help="Resume a suspended job set.")(
        _command("resume", "Resume a suspended job set: it waits for its turn again.")
    )
    app.command("reprioritize", short_help="Change the PriorityClass of PodGroups.")(reprioritize)


def job_sets(
    queue: Annotated[str | None, typer.Option("--queue", "-q", metavar="NAME", help="Only this queue.")] = None,
    namespace: Namespace = None,
    output: Format = Output.TEXT,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """List the job sets of a cluster: the PodGroups and Jobs of a queue that carry the same label."""
    from kbatch.cli.views import job_set_table

    found = ask(lambda client: gather(client, namespace), kubeconfig, context, hint=namespace_hint(namespace))
    rows = [one.json() for one in found if queue in (None, one.queue)]
    if output is Output.JSON:
        print_json(rows)
    else:
        with console() as out:
            out.print(job_set_table(rows))


def _command(name: str, text: str) -> Callable[..., None]:
    """The command that does what the method of `Changes` of that name does, to a whole job set."""

    def command(
        job_set: Named,
        queue: OfQueue = None,
        namespace: Namespace = None,
        dry_run: DryRun = False,
        output: Format = Output.TEXT,
        kubeconfig: Kubeconfig = None,
        context: Context = None,
    ) -> None:
        async def change(api: Api) -> list[Done]:
            from kbatch.cli.set_changes import Changes
            from kbatch.cli.sets import choose

            found = choose(await gather(api, namespace), job_set, queue)
            done: list[Done] = await getattr(Changes(api, dry_run=dry_run), name)(found)
            return done

        _show(change, output, kubeconfig, context, hint=namespace_hint(namespace))

    command.__doc__ = text
    return command


def reprioritize(
    priority_class: Annotated[str, typer.Option("--priority-class", metavar="NAME", help="The new PriorityClass.")],
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAMESPACE/NAME]...", help="The PodGroups; not with --job-set.")
    ] = None,
    job_set: Annotated[
        str | None, typer.Option("--job-set", metavar="NAME", help="All PodGroups of this job set.")
    ] = None,
    queue: OfQueue = None,
    namespace: Namespace = None,
    dry_run: DryRun = False,
    output: Format = Output.TEXT,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Change the PriorityClass of PodGroups that have not ended."""
    if bool(names) == (job_set is not None):
        fail("name PodGroups (NAMESPACE/NAME), or a job set with --job-set", BAD_INPUT)
    keys = [(namespace_, name) for namespace_, _, name in (text.rpartition("/") for text in names or ())]
    if not all(part for key in keys for part in key):
        fail("a PodGroup is named as NAMESPACE/NAME", BAD_INPUT)

    async def change(api: Api) -> list[Done]:
        from kbatch.cli.set_changes import Changes
        from kbatch.cli.sets import choose

        await _check_class(api, priority_class)
        if job_set is not None:
            found = choose(await gather(api, namespace), job_set, queue)
            groups, without = found.groups, found.jobs_without_group()
        else:
            groups, without = [await _group(api, *key) for key in keys], []
        return await Changes(api, dry_run=dry_run).reprioritize(groups, priority_class, without)

    _show(change, output, kubeconfig, context, hint=namespace_hint(namespace) if job_set is not None else "")


async def gather(api: Api, namespace: str | None) -> list[JobSet]:
    """All job sets, of one namespace or of all.

    Raises:
        KubeError: the cluster does not answer, or refuses.
    """
    import asyncio

    from kbatch.api.names import DEFAULT_QUEUE
    from kbatch.cli import sets
    from kbatch.cli.configuration import known
    from kbatch.kube.kinds import JOBS, PODGROUPS
    from kbatch.kube.lists import list_all

    groups, jobs, installed = await asyncio.gather(
        list_all(api, PODGROUPS, namespace=namespace), list_all(api, JOBS, namespace=namespace), known(api)
    )
    default = installed.default_queue if installed is not None else None
    return sets.job_sets(groups, jobs, default or DEFAULT_QUEUE)


def _show(
    change: Callable[[Api], Coroutine[Any, Any, list[Done]]],
    output: Output,
    kubeconfig: str | None,
    context: str | None,
    *,
    hint: str = "",
) -> None:
    """Make a change, and print what became of each object; status 1 where something was refused."""
    from kbatch.cli.sets import UnknownNameError

    try:
        done = ask(change, kubeconfig, context, hint=hint)
    except UnknownNameError as error:
        fail(str(error))
    if output is Output.JSON:
        print_json([one.json() for one in done])
    else:
        for one in done:
            typer.echo(plain(one.line()), err=one.refused)
        if not done:
            typer.echo("nothing to do: all of it is over")
    if any(one.refused for one in done):
        raise typer.Exit(FAILED)


async def _check_class(api: Api, name: str) -> None:
    """Raises: UnknownNameError where there is no such PriorityClass; who may not see them is believed, and told so."""
    from kbatch.api.reasons import PriorityClassNotFound
    from kbatch.cli.sets import UnknownNameError
    from kbatch.kube.errors import ApiError
    from kbatch.kube.kinds import PRIORITYCLASSES
    from kbatch.kube.writes import get

    try:
        await get(api, PRIORITYCLASSES, name=name)
    except ApiError as error:
        if error.status == 404:
            near = " or ".join(await _similar_classes(api, name))
            raise UnknownNameError(
                f"there is no PriorityClass {name}" + (f": {near} may be meant" if near else "")
            ) from None
        if error.status != 403:
            raise
        warn(
            f"whether there is a PriorityClass {name} is not known, as you may not get it; "
            f"without it the groups wait with {PriorityClassNotFound.code}"
        )


async def _similar_classes(api: Api, name: str) -> list[str]:
    """Up to three PriorityClasses of similar names, the nearest first; none where they may not be listed."""
    import difflib

    from kbatch.cli.permitted import if_readable
    from kbatch.kube.kinds import PRIORITYCLASSES
    from kbatch.kube.lists import list_all

    found = await if_readable(list_all(api, PRIORITYCLASSES)) or []
    return difflib.get_close_matches(name, sorted(one.metadata.name for one in found))


async def _group(api: Api, namespace: str, name: str) -> PodGroup:
    from kbatch.cli.sets import UnknownNameError
    from kbatch.kube.errors import ApiError
    from kbatch.kube.kinds import PODGROUPS
    from kbatch.kube.writes import get

    try:
        return await get(api, PODGROUPS, namespace=namespace, name=name)
    except ApiError as error:
        if error.status == 404:
            raise UnknownNameError(f"there is no PodGroup {namespace}/{name}") from None
        raise
