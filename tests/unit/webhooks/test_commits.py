"""Ledgers written by several replicas at once, against a server that compares versions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from kbatch.api.objects import PodGroup, ResourceQuota
from kbatch.api.reasons import QuotaExceeded
from kbatch.kube.errors import ApiError, NoAnswerError
from kbatch.kube.informer import Batch
from kbatch.metrics import LedgerMetrics
from kbatch.model.events import Delete, Upsert
from tests.unit.webhooks.build import cores, group, quota
from webhooks import commits
from webhooks.cluster_view import ClusterView
from webhooks.commits import Ledgers, UndecidedError
from webhooks.ledger import EXPIRY_MS, Claim, decode


class Server:
    """What Ledgers ask of an API server: ConfigMaps with versions, and the lists of a namespace."""

    def __init__(self) -> None:
        self.version = 100
        self.maps: dict[str, dict[str, Any]] = {}
        self.groups: dict[str, PodGroup] = {}
        self.quotas: list[ResourceQuota] = [quota(requests_cpu="10")]
        self.asked: list[str] = []
        self.listed: list[int] = []
        """How many groups each list of them held."""
        self.uids: dict[str, str] = {}
        self.down = False
        self.selects = True

    async def request(
        self, method: str, path: str, *, body: Any = None, params: Mapping[str, str] | None = None, **_: Any
    ) -> bytes:
        selector = (params or {}).get("fieldSelector", "")
        self.asked.append(f"{method} {path.rpartition('/')[2]}")
        await asyncio.sleep(0)
        if self.down:
            raise NoAnswerError(method, path, sent=True, why="down")
        if path.endswith("podgroups"):
            if selector and not self.selects:
                raise ApiError(400, "BadRequest", "field label not supported: status.phase")
            over = {part.removeprefix("status.phase!=") for part in selector.split(",")} if selector else set[str]()
            self.listed.append(sum(one.status.phase not in over for one in self.groups.values()))
            return self._list(
                [msgspec.to_builtins(one) for one in self.groups.values() if one.status.phase not in over]
            )
        if path.endswith("resourcequotas"):
            return self._list([msgspec.to_builtins(one) for one in self.quotas])
        if path.startswith("/api/v1/namespaces/") and path.count("/") == 4:
            return msgspec.json.encode({"metadata": {"uid": self.uids.get(path.rpartition("/")[2], "first")}})
        if method == "GET":
            name = path.rpartition("/")[2]
            if name not in self.maps:
                raise ApiError(404, "NotFound")
            return msgspec.json.encode(self.maps[name])
        name = body["metadata"]["name"]
        have = self.maps.get(name)
        if method == "POST" and have is not None:
            raise ApiError(409, "AlreadyExists")
        if method == "PUT":
            if have is None:
                raise ApiError(404, "NotFound")
            if have["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
                raise ApiError(409, "Conflict")
        self.version += 1
        made = msgspec.json.decode(msgspec.json.encode(body))
        made["metadata"]["resourceVersion"] = str(self.version)
        self.maps[name] = made
        return msgspec.json.encode(made)

    def stream(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("nothing is watched here")

    def _list(self, items: list[dict[str, Any]]) -> bytes:
        return msgspec.json.encode({"metadata": {"resourceVersion": str(self.version)}, "items": items})

    def create(self, name: str, cpu: int, token: str) -> PodGroup:
        """What happens after a grant: the group stands, and its watchers are told, some time."""
        self.version += 1
        made = self.groups[name] = group(name, str(cpu), version=self.version, token=token)
        return made

    def answers_late(self) -> asyncio.Event:
        """Writes are carried out from now on, but answered when that is set."""
        request, told = self.request, asyncio.Event()

        async def late(method: str, path: str, **more: Any) -> bytes:
            answer = await request(method, path, **more)
            if method != "GET":
                await told.wait()
            return answer

        self.request = late  # type: ignore[method-assign]
        return told

    def granted(self, namespace: str = "ns") -> set[str]:
        """The names in a ledger as it stands."""
        return set(decode(self.maps[f"kbatch-ledger-{namespace}"]["data"]["entries"], None).entries)

    @property
    def ledger(self) -> dict[str, Any]:
        return self.maps["kbatch-ledger-ns"]


class Replica:
    """A webhook's memory; it learns of a group when it is told."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.view = ClusterView()
        self.tell(*server.quotas)
        self.now = 0
        self.registry = CollectorRegistry()
        self.ledgers = Ledgers(
            server, self.view, namespace="own", now=lambda: self.now, metrics=LedgerMetrics(self.registry)
        )

    def counted(self, name: str, outcome: str) -> float:
        return self.registry.get_sample_value(f"kbatch_webhook_ledger_{name}_total", {"outcome": outcome}) or 0.0

    def tell(self, *objects: Any) -> None:
        self.view.receive(Batch(tuple(Upsert(one) for one in objects), complete=True))

    def forget(self, name: str) -> None:
        self.view.receive(Batch((Delete(PodGroup, "ns", name),), complete=True))

    async def admit(self, name: str, cpu: int = 1, *, dry_run: bool = False) -> QuotaExceeded | None:
        return await self.ledgers.admit("ns", Claim(name, cores(cpu), f"token-{name}"), dry_run=dry_run)

    async def give_up(self, claim: Claim) -> None:
        """Ask, and wait for less time than the answer takes."""
        deadline = asyncio.get_running_loop().time() + 0.05
        with pytest.raises(UndecidedError):
            await self.ledgers.admit("ns", claim, dry_run=False, deadline=deadline)


@pytest.fixture
def server() -> Server:
    return Server()


async def test_what_is_granted_stands_in_the_ledger_before_the_answer(server: Server) -> None:
    assert await Replica(server).admit("a", 4) is None
    assert server.granted() == {"a"}
    assert server.ledger["metadata"]["namespace"] == "own"


async def test_reviews_that_wait_share_one_write(server: Server) -> None:
    replica = Replica(server)
    answers = await asyncio.gather(*(replica.admit(f"g{n}") for n in range(10)))
    assert answers == [None] * 10
    assert replica.counted("commits", "ok") == 1


async def test_replicas_together_never_pass_the_limit(server: Server) -> None:
    replicas = [Replica(server) for _ in range(3)]
    names = [f"g{n}" for n in range(60)]
    answers = await asyncio.gather(*(replicas[place % 3].admit(name) for place, name in enumerate(names)))
    assert answers.count(None) == 10
    assert sum(replica.counted("commits", "conflict") for replica in replicas) > 0


async def test_a_replica_that_lags_counts_what_it_has_not_seen(server: Server) -> None:
    quick, slow = Replica(server), Replica(server)
    assert await quick.admit("a", 6) is None
    quick.tell(server.create("a", 6, "token-a"))
    assert await quick.admit("b", 1) is None
    assert server.granted() == {"b"}  # the entry of a is gone, as quick saw a
    assert await slow.admit("c", 4) is not None
    assert "GET podgroups" in server.asked
    assert await slow.admit("d", 3) is None


async def test_a_refusal_follows_only_from_what_stands_now(server: Server) -> None:
    replica = Replica(server)
    replica.tell(server.create("a", 10, "x"))
    assert await replica.admit("b") is not None
    del server.groups["a"]  # the replica is not told
    assert await replica.admit("b", 10) is None


async def test_groups_that_are_over_are_not_listed_where_the_server_can_choose(server: Server) -> None:
    replica = Replica(server)
    for number in range(30):
        server.groups[f"old-{number}"] = group(f"old-{number}", "9", phase=("Completed", "Failed")[number % 2])
    stands = server.create("a", 8, "x")
    replica.tell(stands)
    assert await replica.admit("b", 3) is not None
    assert await replica.admit("b", 2) is None
    assert set(server.listed) == {1}
    server.selects = False  # 1.30 knows no fields of custom resources
    server.listed.clear()
    another = Replica(server)
    another.tell(stands)
    assert await another.admit("c", 3) is not None
    assert set(server.listed) == {31}
    assert server.asked.count("GET podgroups") < 10, "it is found out once"


async def test_a_quota_that_was_raised_counts_at_once(server: Server) -> None:
    replica = Replica(server)
    server.quotas = [quota(requests_cpu="50")]
    assert await replica.admit("a", 40) is None


async def test_a_dry_run_writes_nothing_and_counts_for_nobody(server: Server) -> None:
    replica = Replica(server)
    assert await replica.admit("a", 6, dry_run=True) is None
    assert server.maps == {}
    dry, firm = await asyncio.gather(replica.admit("a", 6, dry_run=True), replica.admit("b", 6))
    assert firm is None
    assert dry is not None
    assert server.granted() == {"b"}
    assert await replica.admit("b", 3, dry_run=True) is None
    assert server.granted() == {"b"}


async def test_a_request_that_was_lost_gives_back_what_it_was_granted(server: Server) -> None:
    replica = Replica(server)
    assert await replica.admit("lost", 10) is None
    replica.now = EXPIRY_MS
    assert await replica.admit("a") is not None
    replica.now = EXPIRY_MS + 1
    assert await replica.admit("a") is None
    assert server.granted() == {"a"}


async def test_a_group_seen_after_the_list_was_made_is_not_taken_to_be_in_it(server: Server) -> None:
    replica = Replica(server)
    assert await replica.admit("a", 6) is None
    listed = server._list

    def late(items: list[dict[str, Any]]) -> bytes:
        answer = listed(items)
        replica.tell(server.create("a", 6, "token-a"))  # between the list and its arrival
        return answer

    server._list = late  # type: ignore[method-assign]
    assert await replica.admit("b", 6) is not None


async def test_a_ledger_that_somebody_deleted_is_begun_anew(server: Server) -> None:
    replica = Replica(server)
    assert await replica.admit("a") is None
    del server.maps["kbatch-ledger-ns"]
    assert await replica.admit("b") is None
    assert server.granted() == {"b"}


async def test_without_an_answer_nothing_is_decided_and_it_goes_on_afterwards(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    replica = Replica(server)
    server.down = True
    with pytest.raises(UndecidedError):
        await replica.admit("a")
    assert "the ledger of ns cannot be kept: " in caplog.text
    server.down = False
    assert await replica.admit("a") is None


async def test_who_waits_too_long_is_told_so(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "SECONDS", 0.05)
    replica = Replica(server)
    hangs = asyncio.Event()

    async def hang(*_: Any, **__: Any) -> bytes:
        await hangs.wait()
        raise NoAnswerError("GET", "", sent=True, why="hung")

    monkeypatch.setattr(server, "request", hang)
    with pytest.raises(UndecidedError, match="in time"):
        await replica.admit("a")
    hangs.set()
    monkeypatch.undo()
    assert await replica.admit("a") is None


async def test_a_claim_that_was_given_up_leaves_nothing(server: Server) -> None:
    replica = Replica(server)
    written = server.answers_late()
    await replica.give_up(Claim("late", cores(10), "t"))
    assert server.granted() == {"late"}
    written.set()
    assert await replica.admit("a", 10) is None
    assert server.granted() == {"a"}


async def test_namespaces_have_ledgers_of_their_own(server: Server) -> None:
    replica = Replica(server)
    replica.tell(quota(namespace="other", requests_cpu="10"))
    assert await replica.admit("a", 10) is None
    assert await replica.ledgers.admit("other", Claim("a", cores(10), "t"), dry_run=False) is None
    assert set(server.maps) == {"kbatch-ledger-ns", "kbatch-ledger-other"}


async def test_a_ledger_is_owned_by_its_namespace(server: Server) -> None:
    server.uids["ns"] = "first"
    assert await Replica(server).admit("a") is None
    assert server.ledger["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Namespace", "name": "ns", "uid": "first"}
    ]


async def test_grants_of_a_namespace_that_was_deleted_bind_none_of_its_name(server: Server) -> None:
    replica, other = Replica(server), Replica(server)
    assert await replica.admit("a", 10) is None
    server.uids["ns"] = "second"
    assert await other.admit("b", 10) is None  # it was started since
    assert server.granted() == {"b"}
    assert server.ledger["metadata"]["ownerReferences"][0]["uid"] == "second"
    # The first one saw the namespace's quotas go and come.
    replica.view.receive(Batch((Delete(ResourceQuota, "ns", "quota"),), complete=True))
    replica.tell(*server.quotas)
    assert await replica.admit("c") is not None
    assert server.granted() == {"b"}


async def test_who_begins_a_ledger_looks_which_groups_there_are(server: Server) -> None:
    quick, slow = Replica(server), Replica(server)
    assert await quick.admit("a", 10) is None
    server.create("a", 10, "token-a")
    del server.maps["kbatch-ledger-ns"]
    assert await slow.admit("b") is not None  # it was told of nothing


async def test_what_is_known_of_a_namespace_without_quotas_is_forgotten(server: Server) -> None:
    replica = Replica(server)
    assert await replica.admit("a") is None
    assert replica.registry.get_sample_value("kbatch_webhook_ledger_entries") == 1
    replica.view.receive(Batch((Delete(ResourceQuota, "ns", "quota"),), complete=True))
    replica.tell(quota(namespace="other", requests_cpu="10"))
    assert await replica.ledgers.admit("other", Claim("b", cores(1), "t"), dry_run=True) is None
    assert replica.registry.get_sample_value("kbatch_webhook_ledger_entries") == 0


async def test_metrics_can_be_read_while_a_namespace_gets_its_ledger(server: Server) -> None:
    """They are read by a thread of their own."""
    replica = Replica(server)
    ledgers: Any = replica.ledgers

    class Adding:
        @property
        def count(self) -> int:
            ledgers._accounts["another"] = ledgers._accounts["one"]
            return 1

    ledgers._accounts = {"one": SimpleNamespace(ledger=Adding())}
    assert replica.registry.get_sample_value("kbatch_webhook_ledger_entries") == 1


async def test_claims_are_counted_by_what_became_of_them(server: Server) -> None:
    replica = Replica(server)
    await replica.admit("a", 10)
    await replica.admit("b", 10)
    server.down = True
    with pytest.raises(UndecidedError):
        await replica.admit("c")
    assert [replica.counted("claims", outcome) for outcome in ("granted", "exceeded", "failed", "late")] == [1, 1, 1, 0]
    assert replica.counted("commits", "ok") == 1


async def test_a_ledger_that_would_not_fit_an_object_is_not_written(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "MOST_BYTES", 60)
    replica = Replica(server)
    assert await replica.admit("a") is None
    with pytest.raises(UndecidedError, match="did not appear yet"):
        await replica.admit("b" * 60)
    assert replica.counted("claims", "full") == 1
    assert server.granted() == {"a"}


async def test_a_claim_that_was_given_up_while_the_ledger_was_read_is_not_written(server: Server) -> None:
    replica = Replica(server)
    answer, read = server.request, asyncio.Event()

    async def slow(method: str, path: str, **more: Any) -> bytes:
        if method == "GET":
            await read.wait()
        return await answer(method, path, **more)

    server.request = slow  # type: ignore[method-assign]
    await replica.give_up(Claim("late", cores(10), "t"))
    read.set()
    assert await replica.admit("a", 10) is None
    assert server.granted() == {"a"}
