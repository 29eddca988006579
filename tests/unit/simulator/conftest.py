from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kbatch.api.configuration import DEFAULT, parse
from kbatch.engine import build_policy
from kbatch.simulator.documents import parse as parse_documents
from kbatch.simulator.manifests import from_documents, load
from kbatch.simulator.run import Limits
from kbatch.simulator.run import simulate as run
from kbatch.times import SECOND

CASES = Path(__file__).parents[2] / "cases"


class Outcome:
    """A result as its readers get it: decoded from the JSON text, with shortcuts for what tests ask most."""

    def __init__(self, text: bytes, limited: bool, warnings: tuple[str, ...]) -> None:
        self.text = text
        self.limited = limited
        self.warnings = warnings
        self.json: dict[str, Any] = msgspec.json.decode(text)
        self.cycles: list[dict[str, Any]] = self.json["cycles"]
        self.pods: dict[str, dict[str, Any]] = self.json["pods"]
        self.summary: dict[str, Any] = self.json["summary"]
        self.queues: dict[str, dict[str, Any]] = self.json["queues"]

    def running(self, prefix: str = "") -> list[str]:
        """Names of the pods in `default` that run, without the namespace."""
        return sorted(
            key.removeprefix("default/")
            for key, pod in self.pods.items()
            if pod["phase"] == "Running" and key.startswith(f"default/{prefix}")
        )

    @property
    def binds(self) -> list[dict[str, Any]]:
        return [{**bind, "time": cycle["time"]} for cycle in self.cycles for bind in cycle["binds"]]

    @property
    def evictions(self) -> list[dict[str, Any]]:
        return [{**each, "time": cycle["time"]} for cycle in self.cycles for each in cycle["evictions"]]

    def condition(self, group: str, type_: str) -> dict[str, str] | None:
        found = [each for each in self.json["podgroups"][f"default/{group}"]["conditions"] if each["type"] == type_]
        return found[0] if found else None

    def reason(self, group: str) -> str:
        """Why the group waits."""
        condition = self.condition(group, "Scheduled")
        assert condition is not None
        assert condition["status"] == "False"
        reason: str = condition["reason"]
        return reason

    def message(self, group: str) -> str:
        condition = self.condition(group, "Scheduled")
        assert condition is not None
        message: str = condition["message"]
        return message

    def phase(self, group: str) -> str:
        phase: str = self.json["podgroups"][f"default/{group}"]["phase"]
        return phase


Simulate = Callable[..., Outcome]


def simulate(source: str, conf: str | None = None, *, until: int | None = None, **limits: int) -> Outcome:
    """Simulate a named case, or the text of manifests; `until` in seconds."""
    end = None if until is None else until * SECOND
    configuration = DEFAULT if conf is None else parse(conf, "test")
    path = CASES / f"{source}.yaml"
    manifests = (
        load([str(path)]) if "\n" not in source and path.exists() else from_documents(parse_documents(source, "text"))
    )
    result = run(manifests, build_policy(configuration), Limits(end, **limits))
    return Outcome(result.encode(), result.limited, result.warnings)


@pytest.fixture(name="simulate")
def _simulate() -> Simulate:
    return simulate
