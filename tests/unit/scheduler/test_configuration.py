"""The configuration file: followed, and a bad one changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path

import pytest

from operators.scheduler.configuration import ConfigurationFile
from tests.unit.scheduler.fakes import metrics, until

GOOD = "actions: allocate\ntiers:\n- plugins: [{name: gang}, {name: predicates}]\n"
BETTER = "actions: allocate\ntiers:\n- plugins: [{name: priority}, {name: gang}, {name: predicates}]\n"
BAD = "actions: alocate\ntiers:\n- plugins: [{name: gang}]\n"


async def test_a_new_file_comes_into_force_and_a_bad_one_does_not(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.yaml"
    refused: list[str] = []
    path.write_text(GOOD)
    file = ConfigurationFile(path, metrics=metrics(), refused=refused.append)
    await file.look()
    first = file.policy
    assert file.problem() is None
    path.write_text(BAD)
    await file.look()
    await file.look()
    assert file.policy is first
    assert len(refused) == 1, "the same bad file is told once"
    assert "allocate" in refused[0]
    assert ":1:" in refused[0]
    assert file.problem() is not None
    assert file.described() == {"file": str(path), "inForce": GOOD, "problem": file.problem()}
    assert file.missing() is None
    assert file._metrics.configuration_valid._value.get() == 0
    path.write_text(BETTER)
    await file.look()
    assert file.policy is not first
    assert file.problem() is None
    assert file._metrics.configuration_valid._value.get() == 1
    path.unlink()
    await file.look()
    assert len(refused) == 2
    assert len(file.policy.plugins) == 3


async def test_without_a_good_file_there_is_no_policy_but_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.yaml"
    file = ConfigurationFile(path, metrics=metrics(), look_seconds=0.01)
    task = asyncio.create_task(file.run())
    try:
        await until(lambda: "No such file" in str(file.missing()))
        with pytest.raises(RuntimeError, match="no scheduler configuration"):
            _ = file.policy
        path.write_bytes(b"\xff\xfe")
        await until(lambda: "UTF-8" in str(file.missing()))
        path.write_text(GOOD)
        await asyncio.wait_for(file.ready.wait(), 5)
        assert file.missing() is None
        assert file.policy.actions == ("allocate",)
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_the_log_names_the_plugins_and_which_have_changed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "scheduler.yaml"
    file = ConfigurationFile(path, metrics=metrics())
    with caplog.at_level(logging.INFO):
        for text in (GOOD, BETTER.replace("{name: predicates}", "{name: nodeorder}"), GOOD.replace("gang", "priority")):
            path.write_text(text)
            await file.look()
    assert [record.getMessage().partition("plugins ")[2] for record in caplog.records] == [
        "gang, predicates",
        "priority, gang, nodeorder; added: nodeorder, priority; removed: predicates",
        "priority, predicates; added: predicates; removed: gang, nodeorder",
    ]
