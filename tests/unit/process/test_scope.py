"""What is heard of the cluster where only some namespaces are looked after."""

from __future__ import annotations

from kbatch.api.objects import (
    AnyObject,
    Container,
    Job,
    Metadata,
    Namespace,
    Node,
    Pod,
    PodGroup,
    PodSpec,
    ResourceQuota,
)
from kbatch.kube.informer import Batch
from kbatch.model.events import Delete, Event, Unreadable, Upsert
from kbatch.process.scope import Scope


def pod(namespace: str, scheduler: str = "kube-batch", node: str = "") -> Pod:
    spec = PodSpec(containers=(Container(name="c"),), scheduler_name=scheduler, node_name=node)
    return Pod(metadata=Metadata(name="p", namespace=namespace), spec=spec)


def heard(namespaces: str, *events: Event) -> tuple[Event, ...]:
    batches: list[Batch] = []
    sent = Batch(events, complete=True, listed=(Pod, "7"))
    Scope(namespaces, "kube-batch").over(batches.append)(sent)
    (batch,) = batches
    assert (batch.complete, batch.listed) == (True, (Pod, "7"))
    return batch.events


def test_without_namespaces_everything_is_handed_on_as_it_is() -> None:
    batches: list[Batch] = []
    receive = batches.append
    assert Scope("", "kube-batch").over(receive) == receive
    assert Scope(" , ", "kube-batch").holds("any")


def test_groups_jobs_and_quotas_of_others_are_not_there() -> None:
    kinds: tuple[type[AnyObject], ...] = (PodGroup, Job, ResourceQuota)
    for kind in kinds:
        mine, other = (Upsert(kind(metadata=Metadata(name="x", namespace=where))) for where in ("a", "z"))
        assert heard("a,b", mine, other) == (mine,)
        assert heard("a, b", Delete(kind, "z", "x"), Delete(kind, "b", "x")) == (Delete(kind, "b", "x"),)
        assert heard("a", Unreadable(kind, "z", "x", "u", "", "why")) == ()


def test_pods_of_others_take_their_room_and_are_not_ours() -> None:
    mine, bound, foreign = Upsert(pod("a")), Upsert(pod("z", node="n")), Upsert(pod("z", "default-scheduler"))
    seen = heard("a", mine, bound, foreign, Delete(Pod, "z", "p"), Unreadable(Pod, "z", "p", "u", "n", "why"))
    assert seen[0] == mine
    assert isinstance(seen[1], Upsert)
    assert seen[1].obj == pod("z", "", "n")
    assert seen[2:] == (foreign, Delete(Pod, "z", "p"), Unreadable(Pod, "z", "p", "u", "n", "why"))
    assert bound.obj == pod("z", node="n")  # the object itself is nobody's to change


def test_what_is_in_no_namespace_belongs_to_all() -> None:
    events = (Upsert(Node(metadata=Metadata(name="n"))), Upsert(Namespace(metadata=Metadata(name="z"))))
    assert heard("a", *events) == events
