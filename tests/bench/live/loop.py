"""The bare loop as a process of its own: it binds the pods of a row, nodes in turn, and decides nothing.

    python -m tests.bench.live.loop --kubeconfig FILE --row NAME --pods N --nodes N [--hold]

It says `ready` once it watches; with `--hold` it then waits for a line of its input. When all pods are bound it waits
for the end of its input, so that what it has used can be looked up.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from kbatch.kube.client import Client
from kbatch.kube.credentials import load_credentials
from kbatch.kube.informer import Informer
from kbatch.kube.kinds import PODS
from kbatch.kube.writes import bind
from kbatch.model.events import Upsert
from kbatch.process import turns
from tests.bench.live.load import BINDS, LABEL, NAMESPACE


async def main() -> int:
    """Bind what comes."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.live.loop")
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--row", required=True)
    parser.add_argument("--pods", type=int, required=True)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--hold", action="store_true")
    chosen = parser.parse_args()
    async with Client(load_credentials(chosen.kubeconfig), user_agent="bench-loop", connections=BINDS + 8) as client:
        informer = Informer(client, PODS, namespace=NAMESPACE, label_selector=f"{LABEL}={chosen.row}")
        waiting: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

        async def watch() -> None:
            known: set[str] = set()
            async for batch in informer:
                for event in batch.events:
                    if isinstance(event, Upsert) and event.obj.metadata.uid not in known:
                        known.add(event.obj.metadata.uid)
                        waiting.put_nowait((event.obj.metadata.name, event.obj.metadata.uid))

        numbers = iter(range(chosen.pods))

        async def work() -> None:
            for number in numbers:
                name, uid = await waiting.get()
                node = f"node-{number % chosen.nodes}"
                await bind(client, namespace=NAMESPACE, name=name, uid=uid, node=node)

        watching = asyncio.create_task(watch())
        await informer.synced.wait()
        print("ready", flush=True)
        if chosen.hold:
            await asyncio.to_thread(sys.stdin.readline)
        async with asyncio.TaskGroup() as group:
            for _ in range(BINDS):
                group.create_task(work())
        watching.cancel()
        await asyncio.to_thread(sys.stdin.read)
    return 0


if __name__ == "__main__":
    sys.exit(turns.run(main()))  # as kbatch's own processes
