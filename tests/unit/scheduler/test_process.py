"""What the scheduler's process is put together of."""

from __future__ import annotations

import pytest

from kbatch.kube.events import Regarding
from operators.scheduler.process import SchedulerSettings, own_pod


def test_events_of_the_process_are_about_its_pod_by_uid(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("POD_NAMESPACE", "batch"), ("POD_NAME", "kbatch-scheduler-x"), ("POD_UID", "7-f")):
        monkeypatch.setenv(name, value)
    assert own_pod(SchedulerSettings()) == Regarding("v1", "Pod", "batch", "kbatch-scheduler-x", "7-f")


def test_outside_a_pod_they_name_the_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("POD_NAMESPACE", "POD_NAME", "POD_UID"):
        monkeypatch.delenv(name, raising=False)
    settings = SchedulerSettings(identity="me", lease_namespace="here")
    assert own_pod(settings) == Regarding("v1", "Pod", "here", "me")
