"""Where groups stand on the real control plane: in one rack, and alone on their nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.scenarios.life import completed, job
from tests.e2e.scenarios.manifests import gang, group, pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.scenarios.conftest import Installed

pytestmark = pytest.mark.installed

RACK = "example.com/rack"
NODES = 4


@pytest.fixture
def racks(kbatch: Installed) -> Iterator[dict[str, set[str]]]:
    """Two racks of two nodes by name, and a scheduler that knows of them. Afterwards all is as it was."""
    kbatch.ensure_nodes(NODES)
    found = {"a": {"node-0", "node-1"}, "b": {"node-2", "node-3"}}
    for rack, nodes in found.items():
        kbatch.run("label", "nodes", *sorted(nodes), f"{RACK}={rack}")
    original = kbatch.configuration()
    plugin = f"  - name: topology\n    arguments: {{levels: '{RACK}'}}\n"
    kbatch.configure(original.rstrip("\n") + "\n" + plugin)
    yield found
    kbatch.clean()
    kbatch.configure(original)
    kbatch.run("label", "nodes", "--all", f"{RACK}-")


def pinned(name: str, of: str, cpu: str, node: str) -> dict[str, Any]:
    """A pod that can stand on one node only."""
    found = pod(name, of, cpu)
    found["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    return found


def standing(kbatch: Installed, name: str) -> dict[str, str]:
    """By uid the nodes of the group's pods that have one."""
    return {
        one["metadata"]["uid"]: one["spec"]["nodeName"]
        for one in kbatch.items("pods")
        if one["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == name and one["spec"].get("nodeName")
    }


def test_a_gang_waits_for_its_rack_and_starts_when_that_is_freed(kbatch: Installed, racks: dict[str, set[str]]) -> None:
    kbatch.create_all(
        [group("busy", 1), pinned("busy-a", "busy", "20", "node-0"), pinned("busy-b", "busy", "20", "node-2")]
    )
    kbatch.wait("one node of each rack is taken", lambda: len(standing(kbatch, "busy")) == 2)
    kbatch.create_all(gang("close", 2, cpu="20", topology={"maxHops": 2}))
    waiting = kbatch.wait_condition("close", "Scheduled", "False", "TopologyUnsatisfied")
    assert waiting["message"].startswith("1 of 2 pods fit within 2 hops of one another, in rack a;"), waiting
    told = [
        c for one in kbatch.items("pods") for c in one["status"].get("conditions", []) if c["type"] == "PodScheduled"
    ]
    assert "Unschedulable" not in {c.get("reason") for c in told}, "no autoscaler is asked: more nodes may not help"
    said = kbatch.explain("close")
    assert (said["reason"], said["message"]) == ("TopologyUnsatisfied", waiting["message"])
    assert not standing(kbatch, "close")

    kbatch.run("delete", "pod", "busy-b", "--wait=false")

    kbatch.wait_phase("close", "Running")
    kbatch.wait_condition("close", "Scheduled", "True")
    assert sorted(standing(kbatch, "close").values()) == sorted(racks["b"])


def test_an_exclusive_gang_is_alone_on_its_nodes_beside_a_stream_of_small_pods(kbatch: Installed) -> None:
    kbatch.ensure_nodes(NODES)
    kbatch.create_all([group("small", 1), *(pinned(f"small-{at}", "small", "1", f"node-{at}") for at in range(3))])
    kbatch.wait("small pods stand on three of four nodes", lambda: len(standing(kbatch, "small")) == 3)
    kbatch.create_all(gang("alone", 2, cpu="20", exclusive=True))
    waiting = kbatch.wait_condition("alone", "Scheduled", "False", "NotEnoughResources")
    assert "3 exclusive" in waiting["message"], waiting

    kbatch.run("delete", "pod", "small-1", "--wait=false")
    kbatch.wait("it has two nodes", lambda: len(standing(kbatch, "alone")) == 2)
    gang_pods = standing(kbatch, "alone")
    own = set(gang_pods.values())
    assert own == {"node-1", "node-3"}

    # Five times as many small pods as run at one time: they come and go, and all of them get room elsewhere.
    stream = job("stream", 60, "4", seconds="1", parallelism=12)
    stream["spec"]["template"]["metadata"]["annotations"]["scheduling.k8s.io/group-min-member"] = "1"
    kbatch.apply(stream)
    kbatch.wait("all small pods have run", lambda: "stream" in completed(kbatch), 60)
    came = {one["spec"]["nodeName"] for one in kbatch.items("pods", "-l", "job-name=stream")}
    assert came == {"node-0", "node-2"}
    assert standing(kbatch, "alone") == gang_pods, "the same pods, where they were"

    kbatch.run("delete", "podgroup/alone", *(f"pod/{name}" for name in ("alone-0", "alone-1")), "--wait=false")
    kbatch.apply(job("after", 12, "8"))  # more than the two other nodes hold
    kbatch.wait("its nodes are everybody's again", lambda: own <= set(standing(kbatch, "after").values()))
