"""Probing a process as the kubelet probes a container."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbatch.localcluster.pods import Probe

# Before its first success a probe is tried this often, so that nobody waits a whole period for something that is
# there; only the declared periods count towards a failure.
_EAGER = 0.2


class Result(enum.Enum):
    """What a series of probes amounts to."""

    UNKNOWN = "unknown"
    SUCCESS = "success"
    FAILURE = "failure"


@dataclass
class Tally:
    """Counts answers until one of the thresholds is reached."""

    probe: Probe
    result: Result = Result.UNKNOWN
    in_a_row: int = 0
    last: bool | None = None

    def add(self, *, success: bool) -> Result:
        """Take one answer into account, and return what all of them amount to."""
        self.in_a_row = self.in_a_row + 1 if success == self.last else 1
        self.last = success
        if success and self.in_a_row >= self.probe.success_threshold:
            self.result = Result.SUCCESS
        elif not success and self.in_a_row >= self.probe.failure_threshold:
            self.result = Result.FAILURE
        return self.result


async def until_decided(probe: Probe) -> Result:
    """Probe until it succeeds or fails for good: what a startup probe is for."""
    await asyncio.sleep(probe.initial_delay)
    tally = Tally(probe)
    loop = asyncio.get_running_loop()
    next_counted = loop.time() + probe.period
    while True:
        success = await ask(probe)
        if success or loop.time() >= next_counted:
            next_counted += probe.period
            result = tally.add(success=success)
            if result is not Result.UNKNOWN:
                return result
        await asyncio.sleep(min(_EAGER, probe.period))


async def ask(probe: Probe) -> bool:
    """Probe once: a status from 200 to 399, or a connection, within the time-out."""
    try:
        async with asyncio.timeout(probe.timeout):
            return await _ask(probe)
    except (OSError, TimeoutError, ValueError, IndexError, asyncio.IncompleteReadError):
        return False


async def _ask(probe: Probe) -> bool:
    tls = None
    if probe.path is not None and probe.scheme == "https":
        tls = ssl.create_default_context()
        # The kubelet does not look at certificates either: it asks whether somebody answers.
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", probe.port, ssl=tls)
    try:
        if probe.path is None:
            return True
        request = f"GET {probe.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: kube-probe\r\nConnection: close\r\n\r\n"
        writer.write(request.encode())
        status_line = await reader.readline()
        return 200 <= int(status_line.split()[1]) < 400
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
