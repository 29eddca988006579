"""One process kept running as a container would be: probed, restarted with back-off, ended gracefully."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import time
from typing import TYPE_CHECKING

from kbatch.localcluster import probes, processes
from kbatch.localcluster.probes import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from kbatch.localcluster.pods import Probe, ProcessSpec

log = logging.getLogger(__name__)

_FIRST_BACK_OFF, _LONGEST_BACK_OFF, _FORGIVEN_AFTER = 10.0, 300.0, 600.0
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


class BackOff:
    """How long to wait before the next start: at once the first time, then 10 s, doubled up to 5 minutes.

    A process that ran for ten minutes is forgiven.
    """

    def __init__(self) -> None:
        self._delay = 0.0

    def after(self, ran: float) -> float:
        """Return the seconds to wait after a process ended that had run for `ran` seconds."""
        if ran >= _FORGIVEN_AFTER:
            self._delay = 0.0
        delay = self._delay
        self._delay = min(max(2 * delay, _FIRST_BACK_OFF), _LONGEST_BACK_OFF)
        return delay


class Container:
    """A process that is started again whenever it ends, until `stop`."""

    def __init__(self, spec: ProcessSpec, *, credentials: Path, log_file: Path, changed: Callable[[], None]) -> None:
        self.spec = spec
        self.pid: int | None = None
        self.ready = False
        self.restarts = 0
        self.message = ""
        self._credentials = credentials
        self._log_file = log_file
        self._changed = changed
        self._task = asyncio.create_task(self._run(), name=spec.component)

    async def stop(self, *, at_most: float | None = None) -> None:
        """End the process: SIGTERM, and SIGKILL after its grace (or `at_most` seconds, if that is less)."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        if self.pid is not None:
            grace = self.spec.grace if at_most is None else min(self.spec.grace, at_most)
            await asyncio.to_thread(processes.end, [self.pid], grace=grace)
        self._set(pid=None, ready=False)

    async def _run(self) -> None:
        back_off = BackOff()
        while True:
            started = time.monotonic()
            self.message = await self._run_once()
            delay = back_off.after(time.monotonic() - started)
            log.warning("%s %s; starting it again in %.0f s", self.spec.component, self.message, delay)
            self.restarts += 1
            self._set(pid=None, ready=False)
            await asyncio.sleep(delay)

    async def _run_once(self) -> str:
        """Run the process until it ends or must be ended, and return how that came."""
        with self._log_file.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *self.spec.command, env=self._environment(), cwd="/", stdin=asyncio.subprocess.DEVNULL,
                stdout=output, stderr=output, start_new_session=True, preexec_fn=_die_with_parent,
            )  # fmt: skip
        self._set(pid=process.pid, ready=False)
        log.info("%s started as process %d", self.spec.component, process.pid)
        ended = asyncio.create_task(process.wait())
        watching = asyncio.create_task(self._watch())
        try:
            await asyncio.wait({ended, watching}, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                return _how(ended.result())
            verdict = watching.result()
            await asyncio.to_thread(processes.end, [process.pid], grace=self.spec.grace)
            await ended
            return verdict
        finally:
            for task in (ended, watching):
                task.cancel()
            await asyncio.gather(ended, watching, return_exceptions=True)

    async def _watch(self) -> str:
        """Probe for ever; return only to have the process ended."""
        if self.spec.startup and await probes.until_decided(self.spec.startup) is Result.FAILURE:
            return "did not start in time (startup probe)"
        readiness = asyncio.create_task(self._watch_readiness())
        try:
            await self._watch_liveness(self.spec.liveness)
        finally:
            readiness.cancel()
            await asyncio.gather(readiness, return_exceptions=True)
        return "does not answer any more (liveness probe)"

    async def _watch_readiness(self) -> None:
        probe = self.spec.readiness
        if probe is None:
            self._set(pid=self.pid, ready=True)
            return
        tally = probes.Tally(probe)
        await asyncio.sleep(probe.initial_delay)
        while True:
            result = tally.add(success=await probes.ask(probe))
            self._set(pid=self.pid, ready=result is Result.SUCCESS)
            await asyncio.sleep(probe.period if self.ready else min(0.2, probe.period))

    async def _watch_liveness(self, probe: Probe | None) -> None:
        if probe is None:
            await asyncio.get_running_loop().create_future()  # for ever
            return
        tally = probes.Tally(probe)
        await asyncio.sleep(probe.initial_delay)
        while True:
            if tally.add(success=await probes.ask(probe)) is Result.FAILURE:
                return
            await asyncio.sleep(probe.period)

    def _environment(self) -> Mapping[str, str]:
        # What an image has besides the pod's own variables, and nothing else of ours: no proxy, no Python path.
        image = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self._credentials.parent), "LANG": "C.UTF-8"}
        return {**image, **self.spec.environment, "KUBECONFIG": str(self._credentials)}

    def _set(self, *, pid: int | None, ready: bool) -> None:
        if (pid, ready) != (self.pid, self.ready):
            self.pid, self.ready = pid, ready
            self._changed()


def _how(status: int) -> str:
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"ended with status {status}"


def _die_with_parent() -> None:
    """Ask the kernel to end this process when the supervisor ends, however that happens."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
