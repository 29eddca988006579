"""The ledger's sums after what is undone, replaced, merged or given up."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from kbatch.api.objects import ResourceQuota
from kbatch.kube.errors import NoAnswerError
from kbatch.model.promised import Groups
from kbatch.model.quota import Ask, Subject
from tests.unit.webhooks.build import cores, group, quota
from tests.unit.webhooks.test_commits import Replica, Server
from webhooks.ledger import Claim, Entry, Ledger, Settlement, decode, settle, without

TEN = (quota(requests_cpu="10"),)


def settled(claims: list[Claim], ledger: Ledger | None = None, groups: Groups | None = None) -> Settlement:
    return settle(ledger or Ledger(), groups or Groups(), TEN, claims, now=0, fresh=False)


def test_a_raise_that_is_refused_leaves_what_the_group_had() -> None:
    groups = Groups([group("a", "4")])
    assert settled([Claim("a", cores(12), "t"), Claim("b", cores(7), "u")], groups=groups).granted == ()


def test_the_sums_of_a_ledger_are_those_of_its_entries() -> None:
    first = settled([Claim("a", cores(3), "t"), Claim("b", cores(2), "u")])
    again = settled([Claim("a", cores(5), "v"), Claim("c", cores(1), "w")], first.ledger)
    for done in (first, again):
        assert done.ledger.sums.total() == Ledger(done.ledger.entries, again=done.ledger.again).sums.total()
    assert again.ledger.sums.total() == cores(11, pods=4)


def test_the_floor_never_goes_back() -> None:
    ledger = Ledger({"a": Entry("a", cores(1), "t", 0)}, floor=20)
    assert settled([], ledger, Groups([group("a", "1", version=9, token="t")])).ledger.floor == 20
    assert without(ledger, {"t"}).floor == 20
    assert not without(ledger, {"t"}).entries


def test_a_grant_under_another_scope_counts_besides_the_group_that_is_seen() -> None:
    spec = {"hard": {"requests.cpu": "4"}, "scopes": ["PriorityClass"]}
    scoped = msgspec.convert({"metadata": {"name": "q", "namespace": "ns"}, "spec": spec}, ResourceQuota)
    high = Subject(priority_class="high")
    ledger = Ledger({"a": Entry("a", Ask({"cpu": 4000}, {}, 1, high), "t", 0)})
    claim = Claim("b", Ask({"cpu": 1000}, {}, 1, high), "u")
    done = settle(ledger, Groups([group("a", "4")]), (scoped,), [claim], now=0, fresh=False)
    assert done.granted == ()


def test_a_group_seen_with_fewer_pods_than_granted_counts_as_granted() -> None:
    ledger = Ledger({"a": Entry("a", Ask({}, {}, 3, Subject(best_effort=True)), "t", 0)})
    claim = Claim("b", Ask({}, {}, 2, Subject(best_effort=True)), "u")
    done = settle(ledger, Groups([group("a", minMember=1)]), (quota(pods="4"),), [claim], now=0, fresh=False)
    assert done.granted == ()


def test_below_terms_that_cannot_be_read_there_is_no_entry() -> None:
    assert set(decode("@5 1 cpu=1000 - = -\na t\n@junk\nb u", None).entries) == {"a"}


def test_a_group_that_is_seen_again_counts_once() -> None:
    groups = Groups([group("a", "4")])
    groups.put(group("a", "5", version=2))
    assert groups.sums.total().requests == {"cpu": 5000}


# --- as they are written ----------------------------------------------------------------------------------------------


async def test_a_dry_run_is_answered_by_what_stands_now() -> None:
    server = Server()
    replica = Replica(server)
    assert await replica.admit("a") is None
    server.create("large", 9, "another's")  # the replica is not told
    assert await replica.admit("b", 5, dry_run=True) is not None


async def test_a_group_that_came_and_went_is_known_of_when_all_are_listed() -> None:
    server = Server()
    replica = Replica(server)
    assert await replica.admit("a", 10) is None
    replica.tell(server.create("a", 10, "token-a"))
    del server.groups["a"]
    replica.forget("a")
    assert await replica.admit("b", 10, dry_run=True) is None


async def test_a_second_request_that_is_given_up_leaves_the_grant_of_the_first() -> None:
    server = Server()
    replica = Replica(server)
    assert await replica.admit("a", 4) is None
    written = server.answers_late()
    await replica.give_up(Claim("a", cores(4), "second"))
    written.set()
    assert await replica.admit("b", 7) is not None


async def test_a_second_request_whose_write_is_not_answered_leaves_the_grant_of_the_first() -> None:
    """It is given up before it is written; what is written of it all the same goes, and nothing else."""
    server = Server()
    replica = Replica(server)
    assert await replica.admit("a", 4) is None
    put, given_up = server.request, asyncio.Event()

    async def lost(method: str, path: str, **more: Any) -> bytes:
        if method != "PUT":
            return await put(method, path, **more)
        await given_up.wait()
        await put(method, path, **more)
        raise NoAnswerError(method, path, sent=True, why="lost")

    server.request = lost  # type: ignore[method-assign]
    await replica.give_up(Claim("a", cores(4), "second"))
    given_up.set()
    await asyncio.sleep(0.01)
    server.request = put  # type: ignore[method-assign]
    assert await replica.admit("b", 7) is not None
    assert await replica.admit("b", 6) is None
