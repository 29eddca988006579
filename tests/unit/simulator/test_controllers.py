from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kbatch.api.objects import Job, Pod, ReplicaSet, ResourceQuota
from kbatch.simulator.controllers import QuotaUse, maker_of_job, maker_of_replica_set

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


def pod(name: str, cpu: str, phase: str = "Pending", uid: str = "1") -> Pod:
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "a", "uid": uid},
            "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]},
            "status": {"phase": phase},
        },
        Pod,
    )


def test_a_quota_counts_the_pods_that_have_not_ended_each_once() -> None:
    quota = msgspec.convert(
        {"metadata": {"name": "q", "namespace": "a"}, "spec": {"hard": {"requests.cpu": "8", "pods": "5"}}},
        ResourceQuota,
    )
    use = QuotaUse(quota)

    def used() -> object:
        return use.stated().status.used

    assert used() == {"pods": "0", "requests.cpu": "0"}
    use.count("a/x", pod("x", "2"))
    use.count("a/y", pod("y", "500m"))
    use.count("a/x", pod("x", "2", "Running"))
    assert used() == {"pods": "2", "requests.cpu": "2500m"}
    use.count("a/x", pod("x", "2", "Succeeded"))
    use.count("a/x", pod("x", "2", "Succeeded"))
    assert used() == {"pods": "1", "requests.cpu": "500m"}
    use.count("a/y", pod("y", "3", uid="2"))  # another one of the same name
    assert used() == {"pods": "1", "requests.cpu": "3"}
    use.count("a/y", None)
    use.count("a/z", None)
    assert used() == {"pods": "0", "requests.cpu": "0"}
    assert use.stated().status.hard == quota.spec.hard
