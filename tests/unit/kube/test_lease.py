"""The election, with a clock in the test's hand and an API server that is one object in memory."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch.kube.errors import ApiError, KubeError, NoAnswerError, NotLeadingError
from kbatch.kube.lease import STUCK_SECONDS, Elector, Fenced
from tests.examples import examples


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class LeaseServer:
    """One Lease with optimistic locking; `fault` may lose a request before or after it is carried out."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.fault: str = ""
        self.writes = 0

    async def request(self, method: str, path: str, *, body: Any = None, attempts: int = 6, **_: object) -> bytes:
        assert attempts == 1
        if self.fault == "before":
            raise NoAnswerError(method, path, sent=False, why="test")
        answer = self._carry_out(method, body)
        if self.fault == "after":
            raise NoAnswerError(method, path, sent=True, why="test")
        return answer

    def _carry_out(self, method: str, body: Any) -> bytes:
        if method == "GET":
            if self.lease is None:
                raise ApiError(404, "NotFound")
        else:
            if (method == "POST") != (self.lease is None):
                raise ApiError(404 if self.lease is None else 409, "Conflict")
            if self.lease and body["metadata"].get("resourceVersion") != self.lease["metadata"]["resourceVersion"]:
                raise ApiError(409, "Conflict")
            assert re.fullmatch(r"....-..-..T..:..:..\.\d{6}Z", body["spec"]["renewTime"])
            assert body["spec"]["leaseDurationSeconds"] >= 1
            self.store(body)
            self.writes += 1
        return json.dumps(self.lease).encode()

    def store(self, body: dict[str, Any]) -> None:
        self.version += 1
        self.lease = json.loads(json.dumps(body))
        self.lease["metadata"]["resourceVersion"] = str(self.version)

    def stream(
        self, path: str, *, params: Mapping[str, str] | None = None, silence: float
    ) -> AbstractAsyncContextManager[AsyncIterator[list[bytes]]]:
        raise NotImplementedError


def elector(server: LeaseServer, identity: str, clock: Clock) -> Elector:
    return Elector(server, namespace="n", name="l", identity=identity, clock=clock)


async def test_the_first_creates_the_lease_and_the_second_waits_its_whole_duration() -> None:
    server, clock = LeaseServer(), Clock()
    a, b = elector(server, "a", clock), elector(server, "b", clock)
    assert await a.attempt()
    assert not await b.attempt()
    clock.now += 14.9
    assert not a.is_leader, "past its renew deadline a leader has stopped, whatever its task does"
    assert not await b.attempt()
    clock.now += 0.2
    assert await b.attempt()
    assert b.token == a.token + 1
    assert not await a.attempt()
    assert a.lost.is_set()
    assert a.holder == "b"


async def test_a_leader_whose_machine_was_suspended_knows_that_it_leads_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The monotonic clock stands still meanwhile, and another may lead since long ago."""
    a = Elector(LeaseServer(), namespace="n", name="l", identity="a")
    assert await a.attempt()
    assert a.is_leader
    read, suspended = time.clock_gettime, {time.CLOCK_BOOTTIME: 60.0}
    monkeypatch.setattr(time, "clock_gettime", lambda clock: read(clock) + suspended.get(clock, 0.0))
    assert not a.is_leader


async def test_a_process_that_does_not_try_to_renew_is_not_alive() -> None:
    server, clock = LeaseServer(), Clock()
    a = elector(server, "a", clock)
    assert a.stuck() is None, "it takes no part yet"
    async with a:
        await a.wait_leader()
        assert a.stuck() is None
        clock.now += STUCK_SECONDS + 1
        assert a.stuck() == f"no attempt to renew the Lease for {STUCK_SECONDS + 1:.0f} s"
        assert a._task is not None
        a._task.cancel()
        await asyncio.wait({a._task})
        assert a.stuck() == "the task that renews the Lease has ended"
    assert a.stuck() is None, "nor any more"


async def test_who_saw_that_nobody_leads_knows_by_its_term_whether_somebody_did_since() -> None:
    server, clock = LeaseServer(), Clock()
    a, b = elector(server, "a", clock), elector(server, "b", clock)
    assert await a.vacant_term() is None, "there is no Lease: it may be somebody's that was deleted a moment ago"
    assert await a.attempt()
    assert await b.vacant_term() is None, "somebody leads, or did a moment ago"
    again = elector(server, "a", clock)
    vacant = await again.vacant_term()
    assert await again.attempt()
    assert again.token == vacant, "its name on the Lease is that of a process which is dead"
    assert server.lease is not None
    server.store({**server.lease, "spec": {**server.lease["spec"], "holderIdentity": ""}})
    vacant = await a.vacant_term()
    assert await b.attempt()
    server.store({**server.lease, "spec": {**server.lease["spec"], "holderIdentity": ""}})
    late = elector(server, "a", clock)
    assert await late.attempt()
    assert late.token != vacant, "another led meanwhile"
    server.fault = "before"
    assert await a.vacant_term() is None


async def test_renewals_are_seen_and_keep_others_away() -> None:
    server, clock = LeaseServer(), Clock()
    a, b = elector(server, "a", clock), elector(server, "b", clock)
    for _ in range(30):
        assert await a.attempt()
        assert not await b.attempt()
        clock.now += 2
    assert a.token == 0
    assert server.writes == 30, "a renewal is one write and no read"


async def test_leadership_is_counted_from_before_the_request_was_sent() -> None:
    server, clock = LeaseServer(), Clock()
    a = elector(server, "a", clock)
    carry_out = server._carry_out

    def slowly(method: str, body: Any) -> bytes:
        clock.now += 4
        return carry_out(method, body)

    server._carry_out = slowly  # type: ignore[method-assign]
    before = clock.now
    assert await a.attempt()
    clock.now = before + 4 + 9.9  # the read took 4 s, then the write began
    assert a.is_leader
    clock.now = before + 4 + 10.1
    assert not a.is_leader
    with pytest.raises(NotLeadingError):
        a.check()


async def test_a_renewal_whose_answer_was_lost_is_found_out() -> None:
    server, clock = LeaseServer(), Clock()
    a = elector(server, "a", clock)
    await a.attempt()
    server.fault = "after"
    with pytest.raises(NoAnswerError):
        await a.attempt()
    server.fault = ""
    clock.now += 2
    assert await a.attempt()
    assert not a.lost.is_set()


async def test_a_restarted_process_takes_its_own_lease_at_once_in_a_new_term() -> None:
    server, clock = LeaseServer(), Clock()
    old = elector(server, "a", clock)
    await old.attempt()
    new = elector(server, "a", clock)
    assert await new.attempt()
    assert new.token == old.token + 1
    assert not await old.attempt(), "a namesake that still lives learns from the term that it was replaced"
    assert old.lost.is_set()


async def test_a_leader_whose_lease_was_deleted_steps_down_and_may_stand_again() -> None:
    server, clock = LeaseServer(), Clock()
    a = elector(server, "a", clock)
    await a.attempt()
    server.lease = None
    assert not await a.attempt()
    assert a.lost.is_set()
    assert await a.attempt()
    assert not a.lost.is_set()


async def test_a_lease_that_somebody_deletes_is_not_made_anew_before_its_holder_must_have_noticed() -> None:
    server, clock = LeaseServer(), Clock()
    a, b, late = (elector(server, name, clock) for name in ("a", "b", "late"))
    await a.attempt()
    assert not await b.attempt()
    server.lease = None
    assert a.is_leader, "it cannot know yet"
    for _ in range(29):
        assert not await b.attempt()
        clock.now += 0.5
    assert not a.is_leader
    clock.now += 0.5
    assert await b.attempt()
    assert not await a.attempt()
    assert not await late.attempt()

    server.lease = None
    assert not await b.attempt()
    assert await b.attempt(), "who led until now has nobody to wait for"
    assert not await a.attempt()


async def test_a_leader_whose_lease_somebody_wrote_stops_until_it_has_read_it() -> None:
    led_meanwhile: list[bool] = []

    class Telling(LeaseServer):
        async def request(self, method: str, path: str, **options: Any) -> bytes:
            if method == "GET":
                led_meanwhile.append(a.is_leader)
            return await super().request(method, path, **options)

    server, clock = Telling(), Clock()
    a = elector(server, "a", clock)
    await a.attempt()
    led_meanwhile.clear()
    assert server.lease is not None
    server.store(server.lease | {"metadata": server.lease["metadata"] | {"labels": {"touched": "yes"}}})
    assert await a.attempt(), "touched, but not taken"
    assert led_meanwhile == [False]
    assert not a.lost.is_set()

    server.store(server.lease | {"spec": server.lease["spec"] | {"holderIdentity": "thief"}})
    assert not await a.attempt()
    assert led_meanwhile == [False, False]
    assert a.lost.is_set()


async def test_nothing_of_somebody_elses_in_the_lease_is_lost() -> None:
    server, clock = LeaseServer(), Clock()
    labels = {"app": "x"}
    server.store({"metadata": {"name": "l", "namespace": "n", "labels": labels}, "spec": {"strategy": "S"}})
    a = elector(server, "a", clock)
    assert await a.attempt()
    assert server.lease is not None
    assert server.lease["metadata"]["labels"] == labels
    assert server.lease["spec"]["strategy"] == "S"


@pytest.mark.parametrize(
    "options",
    [
        {"renew_deadline": 15.0},
        {"retry_period": 10.0},
        {"lease_duration": 10.5, "renew_deadline": 10.0},
        {"identity": ""},
    ],
)
def test_what_could_not_be_safe_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"need|whole|identity"):
        Elector(LeaseServer(), **{"namespace": "n", "name": "l", "identity": "a"} | options)


@pytest.mark.parametrize("nonsense", [b"<html>", b"[]", b'{"metadata": 1}', b'{"metadata": {}, "spec": 7}'])
async def test_an_answer_that_is_no_lease_is_a_failure_that_passes(nonsense: bytes) -> None:
    class Odd(LeaseServer):
        odd = True

        async def request(self, method: str, path: str, **options: Any) -> bytes:
            answer = await super().request(method, path, **options)
            return nonsense if self.odd else answer

    server, clock = Odd(), Clock()
    a = elector(server, "a", clock)
    with pytest.raises(KubeError):
        await a.attempt()
    assert not a.is_leader
    server.odd = False
    assert await a.attempt()
    server.odd = True
    clock.now += 2
    with pytest.raises(KubeError):
        await a.attempt()
    assert a.is_leader, "as after any renewal without an answer, until the deadline"


async def test_an_election_goes_on_whatever_one_attempt_ends_in(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(LeaseServer):
        asked = 0

        async def request(self, method: str, path: str, **options: Any) -> bytes:
            self.asked += 1
            if self.asked == 1:
                raise ZeroDivisionError
            return await super().request(method, path, **options)

    async with Elector(Broken(), namespace="n", name="l", identity="a") as a, asyncio.timeout(5):
        await a.wait_leader()
    assert "ZeroDivisionError" in caplog.text


async def test_a_fenced_client_reads_always_and_writes_only_while_leading() -> None:
    class Recording(LeaseServer):
        async def request(self, method: str, path: str, **options: Any) -> bytes:
            options["guard"]()
            return b"sent"

    clock = Clock()
    a = elector(LeaseServer(), "a", clock)
    fenced = Fenced(Recording(), a)
    assert await fenced.request("GET", "/x") == b"sent"
    with pytest.raises(NotLeadingError):
        await fenced.request("POST", "/x")
    await a.attempt()
    assert await fenced.request("POST", "/x") == b"sent"
    clock.now += 11
    with pytest.raises(NotLeadingError):
        await fenced.request("POST", "/x")


@settings(max_examples=examples(30), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2), st.floats(0.0, 6.0), st.sampled_from(["", "", "", "before", "after"]), st.booleans()
        ),
        max_size=60,
    )
)
async def test_never_two_at_once(steps: list[tuple[int, float, str, bool]]) -> None:
    """Whoever tries when, and whatever is lost: at no instant do two lead."""
    server, clock = LeaseServer(), Clock()
    electors = [elector(server, name, clock) for name in "abc"]
    for who, wait, fault, leave in steps:
        clock.now += wait
        server.fault = fault
        try:
            if leave and electors[who].is_leader:
                electors[who]._step_down("test")
                await electors[who]._release()
            else:
                await electors[who].attempt()
        except NoAnswerError:
            pass
        assert sum(one.is_leader for one in electors) <= 1
