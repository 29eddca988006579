from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kbatch.api.objects import Job, ReplicaSet
from kbatch.simulator.controllers import maker_of_job, maker_of_replica_set

TEMPLATE: dict[str, Any] = {"metadata": {}, "spec": {"containers": []}}


def maker_of(**spec: Any) -> Any:
    content = {"metadata": {"name": "j", "namespace": "default"}, "spec": {**spec, "template": TEMPLATE}}
    return maker_of_job(msgspec.convert(content, Job))


@pytest.mark.parametrize(("completions", "waves"), [(2, [2]), (5, [2, 2, 1]), (1, [1])])
def test_a_job_makes_its_pods_wave_after_wave_and_then_has_ended(completions: int, waves: list[int]) -> None:
    maker = maker_of(parallelism=2, completions=completions)
    for wave in waves:
        assert maker.ongoing
        assert len(maker.make(())) == wave
        assert maker.missing() == 0
        maker.alive, maker.succeeded = 0, maker.succeeded + wave
    assert (maker.ongoing, maker.missing()) == (False, 0)


def test_a_job_without_completions_has_ended_when_all_its_pods_have() -> None:
    maker = maker_of(parallelism=2)
    assert len(maker.make(())) == 2
    maker.alive, maker.succeeded = 1, 1
    assert maker.ongoing
    maker.alive, maker.succeeded = 0, 2
    assert (maker.ongoing, maker.missing()) == (False, 0)


def test_a_replica_set_tells_nothing_of_an_end() -> None:
    content = {"metadata": {"name": "r", "namespace": "default"}, "spec": {"replicas": 1, "template": TEMPLATE}}
    assert not maker_of_replica_set(msgspec.convert(content, ReplicaSet)).ongoing
