"""What a running process can be asked."""

from __future__ import annotations

import dataclasses
import json
import logging
import subprocess
import sys
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from kbatch.process.diagnosis import FIRST, Diagnosis
from kbatch.process.health import Health, HealthServer
from kbatch.process.settings import ProcessSettings


def dumped(caplog: pytest.LogCaptureFixture) -> dict[str, Any]:
    found = [vars(record) for record in caplog.records if record.getMessage() == "dump"]
    return {one["part"]: (one["count"], one["first"].split(" | ")) for one in found}


async def test_a_dump_counts_each_part_and_names_the_first(caplog: pytest.LogCaptureFixture) -> None:
    diagnosis = Diagnosis()
    diagnosis.parts["assumed"] = lambda: (f"ns/p{number}" for number in range(1000))

    def broken() -> list[str]:
        raise KeyError("x")

    diagnosis.parts["broken"] = broken
    diagnosis.parts["planned"] = lambda: ["ns/g"]
    diagnosis.dump()
    parts = dumped(caplog)
    count, first = parts["assumed"]
    assert count == 1000
    assert len(first) == FIRST
    assert first[0] == "ns/p0"
    assert parts["planned"] == (1, ["ns/g"])
    assert "broken" not in parts
    assert parts["tasks"][0] >= 1
    assert f"{__file__}:" in parts["tasks"][1][0], "the line at which a task stands"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(ProcessSettings):
    extra: str = "token=abcdef123456"


async def test_configz_says_the_flags_and_what_was_added_without_secrets() -> None:
    diagnosis = Diagnosis()
    diagnosis.configuration["scheduler"] = lambda: {"text": "actions: allocate", "list": ["password: hunter22"]}
    server = HealthServer(
        Health(), CollectorRegistry(), address="127.0.0.1", health_port=0, metrics_port=0,
        configz=lambda: diagnosis.configz("example", "1.2", Settings()),
    )  # fmt: skip
    async with server, aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{server.metrics_port}/configz") as response:
            assert response.status == 200
            said = await response.json()
        async with session.get(f"http://127.0.0.1:{server.health_port}/configz") as response:
            assert response.status == 404
    assert (said["process"], said["version"]) == ("example", "1.2")
    assert said["settings"]["scheduler_name"] == "kube-batch"
    assert said["scheduler"]["text"] == "actions: allocate"
    assert said["logLevel"] == logging.getLevelName(logging.getLogger().level).lower()
    assert "abcdef" not in json.dumps(said)
    assert "hunter22" not in json.dumps(said)


PROGRAM = """
import asyncio, logging, os, signal
from kbatch.process.run import main
from kbatch.process.settings import ProcessSettings

log = logging.getLogger("example")

async def serve(this):
    this.diagnosis.parts["planned"] = lambda: ["ns/g"]
    asked = lambda number: os.kill(os.getpid(), number)
    log.debug("first")
    asked(signal.SIGUSR1)
    while logging.getLogger().level != logging.DEBUG:
        await asyncio.sleep(0)
    log.debug("second")
    asked(signal.SIGUSR1)
    while logging.getLogger().level == logging.DEBUG:
        await asyncio.sleep(0)
    log.debug("third")
    asked(signal.SIGUSR2)
    seen = asyncio.Event()
    this.diagnosis.parts["seen"] = lambda: (seen.set(), ["x"])[1]
    await seen.wait()
    asked(signal.SIGTERM)
    await this.stopping.wait()

main("example", ProcessSettings, serve, ["--health-port=0", "--metrics-port=0", "--log-level=error"])
"""


def test_signals_ask_for_a_dump_and_for_another_log_level() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30, check=False)
    assert ran.returncode == 0, ran.stderr
    told = [json.loads(line) for line in ran.stderr.splitlines() if line.startswith("{")]
    messages = [line["message"] for line in told]
    assert "second" in messages
    assert "first" not in messages
    assert "third" not in messages
    assert [message for message in messages if "log level" in message] == [
        "the log level is debug now",
        "the log level is error now",
    ]
    assert [line["first"] for line in told if line.get("part") == "planned"] == ["ns/g"]
    assert "Current thread" in ran.stderr, "the stacks of all threads"
    assert "dump ends" in messages
