"""The scheduler configuration, followed while the process runs.

The file comes from a ConfigMap and is replaced as a whole whenever that changes. A new file that cannot be used leaves
the one before in force; a process that has none yet waits for a good one, and says so in its readiness.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from kbatch.api.configuration import ConfigurationError, parse
from kbatch.engine import Policy, build_policy
from kbatch.metrics import SchedulerMetrics

_log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0


class ConfigurationFile:
    """A policy that follows its file.

    Args:
        path: the file.
        refused: called once for each content that cannot be used, with the sentence that says why.
        applied: called when a policy comes into force.
    """

    def __init__(
        self,
        path: Path,
        *,
        metrics: SchedulerMetrics,
        refused: Callable[[str], None] = lambda _: None,
        applied: Callable[[Policy], None] = lambda _: None,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self.ready = asyncio.Event()
        """Set once there is a policy."""
        self._path = path
        self._metrics = metrics
        self._refused = refused
        self._applied = applied
        self._look_seconds = look_seconds
        self._seen: bytes | str | None = None
        self._policy: Policy | None = None
        self._text = ""
        self._plugins: list[str] = []
        self._problem: str | None = "not read yet"

    @property
    def policy(self) -> Policy:
        """The policy in force.

        Raises:
            RuntimeError: there is none yet (`ready`).
        """
        if self._policy is None:
            raise RuntimeError("no scheduler configuration yet")
        return self._policy

    @property
    def text(self) -> str:
        """What the policy in force was read from; empty while there is none."""
        return self._text

    def described(self) -> dict[str, str | None]:
        """For /configz: the file, what is in force, and what is wrong with a newer one."""
        return {"file": str(self._path), "inForce": self._text or None, "problem": self._problem}

    def problem(self) -> str | None:
        """What is wrong with the newest file, whether or not an older one is in force; None if it is in force."""
        return self._problem

    def missing(self) -> str | None:
        """Why there is no policy at all; None if there is one."""
        return self._problem if self._policy is None else None

    async def run(self) -> None:
        """Follow the file, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(self._look_seconds)

    async def look(self) -> None:
        """Read the file; where it has changed, put it into force or say why not."""
        content: bytes | str
        try:
            content = await asyncio.to_thread(self._path.read_bytes)
        except OSError as error:
            content = f"{self._path}: {error.strerror or error}"
        if content == self._seen:
            return
        self._seen = content
        try:
            if isinstance(content, str):
                raise ConfigurationError(str(self._path), None, content.rpartition(": ")[2])
            text = _decoded(content, str(self._path))
            configuration = parse(text, str(self._path))
            policy = build_policy(configuration)
        except ConfigurationError as error:
            self._problem = str(error)
            self._metrics.configuration_valid.set(0)
            self._metrics.reloads.labels("refused").inc()
            kept = "; the one before stays in force" if self._policy is not None else ""
            _log.error("the scheduler configuration is refused%s: %s", kept, error)
            self._refused(str(error))
            return
        self._problem = None
        plugins = [plugin.name for tier in configuration.tiers for plugin in tier]
        changes = _changes(self._plugins, plugins) if self._policy is not None else ""
        self._policy, self._text, self._plugins = policy, text, plugins
        self._metrics.configuration_valid.set(1)
        self._metrics.reloads.labels("ok").inc()
        _log.info(
            "scheduler configuration in force: actions %s; plugins %s%s",
            ", ".join(policy.actions), ", ".join(plugins), changes,
        )  # fmt: skip
        self._applied(policy)
        self.ready.set()


def _changes(before: Collection[str], now: Collection[str]) -> str:
    """Which plugins came and went, in words; empty where none did."""
    came, went = sorted(set(now) - set(before)), sorted(set(before) - set(now))
    return (f"; added: {', '.join(came)}" if came else "") + (f"; removed: {', '.join(went)}" if went else "")


def _decoded(content: bytes, source: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ConfigurationError(source, None, "not text in UTF-8") from None
