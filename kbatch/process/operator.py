"""An operator as a process: it waits for the Lease, reads, and works while it leads.

What one consists of is an `Operator`, put together by the operator's own module out of its `Ground`; how it starts,
what its health says and how it ends is the same for all, and stands here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

import kopf

from kbatch.kube.client import Api, Client
from kbatch.kube.credentials import load_credentials
from kbatch.kube.informer import Informer
from kbatch.kube.kinds import AnyKind
from kbatch.metrics import RequestMetrics, WatchMetrics
from kbatch.process import memory
from kbatch.process.feed import Feed, Receiver
from kbatch.process.kopf_host import KopfHost, operator_settings
from kbatch.process.leading import LEASE_CONNECTIONS, elector_of, fenced, while_active
from kbatch.process.measured import Attempts, Measured
from kbatch.process.preflight import Preflight
from kbatch.process.run import Runtime, before_stop, while_leading
from kbatch.process.settings import LeaderSettings

SettingsT = TypeVar("SettingsT", bound=LeaderSettings)
P = ParamSpec("P")


@dataclass(frozen=True)
class Ground(Generic[SettingsT]):
    """What an operator stands on.

    Attributes:
        runtime: the process.
        client: for reads.
        api: for writes: counted, and refused while this process does not lead.
        loop: the process's own; kopf's handlers run in another.
    """

    runtime: Runtime[SettingsT]
    client: Client
    api: Api
    loop: asyncio.AbstractEventLoop

    def crossing(self, receive: Callable[P, object]) -> Callable[P, None]:
        """For kopf's handlers: calls `receive` in the process's own loop, soon."""

        def cross(*args: P.args, **kwargs: P.kwargs) -> None:
            with contextlib.suppress(RuntimeError):  # while the process ends there may be no loop any more
                self.loop.call_soon_threadsafe(lambda: receive(*args, **kwargs))

        return cross


@dataclass(frozen=True, kw_only=True)
class Operator:
    """What one operator consists of.

    Attributes:
        handlers: kopf's registry, the operator's own; its handlers say which object to look at, and the informers,
            which see the same kinds, what it is.
        needed: kinds that must be served before anything starts; those of the informers must be listable besides.
        informers: what is read into `receive`.
        work: started once everything is listed; does not return.
        first: awaited before anything is read.
        beside: run from the start, until the end.
        around: opened before the start, closed after the end.
    """

    handlers: kopf.OperatorRegistry
    needed: Sequence[AnyKind]
    informers: Sequence[Informer[Any]]
    receive: Receiver
    work: Callable[[], Coroutine[Any, Any, None]]
    first: Callable[[], Awaitable[None]] | None = None
    beside: Sequence[Callable[[], Coroutine[Any, Any, None]]] = ()
    around: Sequence[AbstractAsyncContextManager[object]] = ()


async def serve_operator(runtime: Runtime[SettingsT], assemble: Callable[[Ground[SettingsT]], Operator]) -> None:
    """Wait for the Lease, then operate until a stop is asked for.

    Raises:
        LeadershipLostError: the Lease was lost.
        ProcessError: kopf ended by itself, or the settings cannot work.
    """
    credentials = load_credentials(runtime.settings.kubeconfig or None)
    agent = runtime.user_agent
    requests = RequestMetrics(runtime.registry)
    heard = Attempts(requests).heard
    leases = Client(credentials, user_agent=agent, connections=LEASE_CONNECTIONS, heard=heard)
    async with leases, Client(credentials, user_agent=agent, heard=heard) as client:
        elector = elector_of(runtime, leases)
        api = fenced(Measured(client, requests), elector)
        operator = assemble(Ground(runtime, client, api, asyncio.get_running_loop()))
        feed = Feed(operator.informers, operator.receive, WatchMetrics(runtime.registry))
        kinds = {kind.plural: kind for kind in (*operator.needed, *(one.kind for one in operator.informers))}
        preflight = Preflight(client, needed=operator.needed, listed=kinds.values())
        host = KopfHost(
            name=runtime.name,
            registry=operator.handlers,
            settings=operator_settings(),
            credentials=credentials,
            user_agent=agent,
        )
        while_active(runtime.health, elector, "crds", preflight.check)
        while_active(runtime.health, elector, "synced", feed.unsynced)
        while_active(runtime.health, elector, "kopf", host.check)
        feed.tell(runtime.health)

        async def operate() -> None:
            await preflight.wait()
            if operator.first is not None:
                await operator.first()
            async with AsyncExitStack() as around, asyncio.TaskGroup() as group:
                for context in (*operator.around, host):
                    await around.enter_async_context(context)
                group.create_task(host.ended(), name="kopf")
                group.create_task(feed.run(), name="feed")
                for beside in operator.beside:
                    group.create_task(beside(), name=beside.__name__.strip("_"))
                await feed.synced.wait()
                memory.settle()
                group.create_task(operator.work(), name="work")

        async def until_stopped() -> None:
            await before_stop(operate(), runtime.stopping)

        await while_leading(runtime, elector, until_stopped)
