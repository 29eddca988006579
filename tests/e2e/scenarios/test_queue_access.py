"""A queue is shut to a namespace whose groups wait in it, and opened again: what the installed product makes of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.e2e.scenarios.manifests import gang, queue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.scenarios.conftest import Installed


@pytest.fixture(autouse=True)
def namespace(kbatch: Installed) -> Iterator[None]:
    """The namespace without the label, before and after."""
    kbatch.ensure_nodes(3)
    kbatch.run("label", "namespace", "default", "team-")
    yield
    kbatch.run("label", "namespace", "default", "team-")


def test_a_group_waits_while_its_queue_is_not_open_to_its_namespace_and_asks_for_no_share(kbatch: Installed) -> None:
    def change(**spec: object) -> None:
        kbatch.run("patch", "queue", "lab", "--type=merge", "-p", json.dumps({"spec": spec}))

    def requested() -> str:
        return str(kbatch.get("queue", "lab").get("status", {}).get("requested", {}).get("cpu", "nothing"))

    kbatch.apply(queue("lab", 1))
    change(state="Closed")  # so that it takes nothing before it is shut
    kbatch.create_all(gang("g", 2, "4", queue="lab"))
    kbatch.wait_condition("g", "Scheduled", "False", "QueueClosed")
    change(state="Open", namespaceSelector={"matchLabels": {"team": "lab"}})
    waits = kbatch.wait_condition("g", "Scheduled", "False", "QueueNotAllowed")
    assert waits["message"].startswith("Queue lab is not open to namespace default")
    kbatch.wait("the queue is not asked for it", lambda: requested() == "nothing")
    assert [one["spec"].get("nodeName") for one in kbatch.items("pods")] == [None, None]
    kbatch.run("label", "namespace", "default", "team=lab")
    kbatch.wait_phase("g", "Running")
    kbatch.wait("it counts", lambda: requested() == "8")
    # What runs goes on.
    kbatch.run("label", "namespace", "default", "--overwrite", "team=shop")
    kbatch.create_all(gang("late", 1, "4"))
    kbatch.wait_phase("late", "Running")
    assert sorted(one["metadata"]["name"] for one in kbatch.items("pods") if one["spec"].get("nodeName")) == [
        "g-0", "g-1", "late-0",
    ]  # fmt: skip
