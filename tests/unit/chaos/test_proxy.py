"""The proxy that injects faults, before a small server: each fault is what it says, and on record."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web

from tests.e2e.auditor.allowances import RECOVERY
from tests.e2e.proxy.faults import (
    FURTHER_PAGE,
    Action,
    Fault,
    Injection,
    Script,
    everything,
    foreign_webhook,
    hard,
    refused_evictions,
    slow,
    watches,
)
from tests.e2e.proxy.proxy import Proxy


class Server(threading.Thread):
    """Answers with what it was asked, and remembers; `/watch` gives a line every 20 ms."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.asked: list[str] = []
        self.url = ""
        self.ready = threading.Event()

    def run(self) -> None:
        asyncio.run(self._serve())

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._done.set)
        self.join(10)

    async def _serve(self) -> None:
        self._loop, self._done = asyncio.get_running_loop(), asyncio.Event()
        runner = web.ServerRunner(web.Server(self._answer), shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        self.ready.set()
        await self._done.wait()
        await runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked.append(f"{request.method} {request.raw_path} {request.headers.get('Authorization', '')}")
        if request.query.get("watch"):
            response = web.StreamResponse()
            await response.prepare(request)
            for number in range(200):
                await response.write(json.dumps({"type": "MODIFIED", "object": {"n": number}}).encode() + b"\n")
                await asyncio.sleep(0.02)
            return response
        return web.Response(status=201, text=(await request.text()) or "nothing")


@pytest.fixture
def server() -> Iterator[Server]:
    one = Server()
    one.start()
    assert one.ready.wait(5)
    yield one
    one.stop()


def ask(proxy: Proxy, method: str, path: str, body: str | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection(proxy.url.removeprefix("http://"), timeout=10)
    try:
        connection.request(method, path, body, {"Authorization": "Bearer token"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_without_faults_requests_pass_as_they_are(server: Server) -> None:
    with Proxy(server.url, None, Script(1)) as proxy:
        assert ask(proxy, "POST", "/a%2Fb?c=d%20e", "body") == (201, "body")
    assert server.asked == ["POST /a%2Fb?c=d%20e Bearer token"]


def test_a_refused_request_never_reaches_the_server(server: Server, tmp_path: Path) -> None:
    fault = Fault(Action.REFUSE, 1, frozenset({"POST"}), r"/binding$", status=429, retry_after=2)
    script = Script(1, [fault], log=tmp_path / "injections")
    with Proxy(server.url, None, script) as proxy:
        status, text = ask(proxy, "POST", "/pods/p/binding", "x")
        assert (status, json.loads(text)["reason"]) == (429, "TooManyRequests")
        assert ask(proxy, "POST", "/pods/p/eviction", "x")[0] == 201
        assert ask(proxy, "GET", "/pods/p/binding")[0] == 201
    assert len(server.asked) == 2
    assert script.counts() == {"bind refuse 429": 1}
    [line] = (tmp_path / "injections").read_text().splitlines()
    assert json.loads(line)["path"] == "/pods/p/binding"


@pytest.mark.parametrize(("action", "seen"), [(Action.DROP, 0), (Action.LOSE, 1)])
def test_no_answer_whether_it_was_carried_out_or_not(server: Server, action: Action, seen: int) -> None:
    with Proxy(server.url, None, Script(1, [Fault(action, 1)])) as proxy, pytest.raises(ConnectionError):
        ask(proxy, "POST", "/x", "y")
    assert len(server.asked) == seen


@pytest.mark.parametrize("action", [Action.SLOW, Action.LATE])
def test_a_slow_answer_is_the_servers(server: Server, action: Action) -> None:
    with Proxy(server.url, None, Script(1, [Fault(action, 1, seconds=0.1)])) as proxy:
        assert ask(proxy, "POST", "/x", "y") == (201, "y")


def test_a_watch_is_cut_in_the_middle_of_a_line(server: Server) -> None:
    with (
        Proxy(server.url, None, Script(1, [watches(Action.CUT, 1, seconds=0.5)])) as proxy,
        pytest.raises((http.client.HTTPException, ConnectionError)),
    ):
        ask(proxy, "GET", "/x?watch=true")


def test_a_watch_expires(server: Server) -> None:
    with Proxy(server.url, None, Script(1, [watches(Action.EXPIRE, 1, seconds=0.5)])) as proxy:
        _, text = ask(proxy, "GET", "/x?watch=true")
    lines = [json.loads(line) for line in text.splitlines()]
    assert 0 < len(lines) < 100
    assert lines[-1]["type"] == "ERROR"
    assert lines[-1]["object"]["code"] == 410


@pytest.mark.many  # four seconds of waiting
def test_faults_of_watches_and_of_requests_do_not_meet(server: Server) -> None:
    with Proxy(server.url, None, Script(1, [Fault(Action.REFUSE, 1)])) as proxy:
        status, text = ask(proxy, "GET", "/x?watch=true")
    assert (status, len(text.splitlines())) == (200, 200)


def test_equal_seeds_draw_equal_faults() -> None:
    def drawn(seed: int) -> list[tuple[str, float]]:
        script = Script(seed, everything())
        for number in range(300):
            script.draw("POST", f"/pods/{number}/binding")
        return [(one.path, one.seconds) for one in script.injections]

    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)
    assert len(drawn(7)) > 30


def test_a_quiet_script_injects_nothing() -> None:
    script = Script(1, everything(30))
    assert script.draw("POST", "/x") is not None
    script.quiet()
    assert script.draw("POST", "/x") is None


def test_for_how_long_a_group_could_not_be_read_or_written_is_counted_from_the_record() -> None:
    script = Script(1)
    status = "/apis/scheduling.incubator.k8s.io/v1alpha1/namespaces/ns/podgroups/g/status"

    def injected(moment: float, method: str, path: str, action: Action, seconds: float = 0.0) -> None:
        script.injections.append(Injection(0.0, moment, method, path, action, 500, seconds))

    injected(10.0, "PATCH", status, Action.REFUSE)
    injected(10.5, "POST", "/api/v1/namespaces/ns/pods/g-1/binding", Action.SLOW, 2.0)  # until 13.5 with the recovery
    injected(11.0, "PATCH", status.replace("/g/", "/other/"), Action.SLOW, 9.0)
    injected(14.0, "WATCH", "/api/v1/pods", Action.CUT, 4.0)  # it is well until 18
    injected(14.0, "WATCH", "/api/v1/nodes", Action.CUT, 1.0)
    injected(15.0, "WATCH", "/api/v1/pods", Action.DELAY, 1.0)
    assert script.hindered("ns/g", 0.0, 30.0) == 3.5 + RECOVERY
    assert script.hindered("ns/g", 11.0, 12.0) == 1.0
    assert script.hindered("ns/g", 13.5, 18.0) == 0.0
    assert script.hindered("ns/unheard-of", 0.0, 30.0) == RECOVERY
    script.faults = everything()
    assert script.watch_delay() == 3.0


def test_an_answer_is_cut_off_in_its_middle(server: Server) -> None:
    with Proxy(server.url, None, Script(1, [Fault(Action.TRUNCATE, 1)])) as proxy:
        with pytest.raises(http.client.IncompleteRead) as caught:
            ask(proxy, "POST", "/a", "0123456789")
        assert caught.value.partial == b"01234"
    assert len(server.asked) == 1


def test_only_further_pages_of_a_list_expire(server: Server) -> None:
    fault = Fault(Action.REFUSE, 1, frozenset({"GET"}), FURTHER_PAGE, status=410)
    with Proxy(server.url, None, Script(1, [fault])) as proxy:
        assert ask(proxy, "GET", "/pods?limit=500")[0] == 201
        status, text = ask(proxy, "GET", "/pods?limit=500&continue=x")
        assert (status, json.loads(text)["reason"]) == (410, "Expired")
        assert ask(proxy, "GET", "/pods/p")[0] == 201


def test_lists_come_in_smaller_pages_than_were_asked_for(server: Server) -> None:
    with Proxy(server.url, None, Script(1, page=20)) as proxy:
        for asked in (
            "/pods?limit=500&continue=x",
            "/pods?a=b&limit=500",
            "/pods?limit=1",
            "/pods",
            "/x?overlimit=500",
        ):
            ask(proxy, "GET", asked)
    assert [one.split()[1] for one in server.asked] == [
        "/pods?limit=20&continue=x", "/pods?a=b&limit=20", "/pods?limit=1", "/pods", "/x?overlimit=500",
    ]  # fmt: skip


def test_evictions_are_refused_in_all_ways(server: Server) -> None:
    script = Script(1, refused_evictions(0.5))
    with Proxy(server.url, None, script) as proxy:
        answers = [ask(proxy, "POST", "/pods/p/eviction", "x")[0] for _ in range(60)]
        assert ask(proxy, "POST", "/pods/p/binding", "x")[0] == 201
    assert set(answers) == {201, 403, 429, 500}
    assert script.counts() == {f"evict refuse {status}": answers.count(status) for status in (403, 429, 500)}


def test_every_request_takes_as_long_as_is_said() -> None:
    script = Script(1, slow(2.0))
    drawn = [script.draw(method, "/pods") for method in ("GET", "POST", "PATCH")]
    assert [one and (one[0].action, one[1]) for one in drawn] == [(Action.SLOW, 2.0)] * 3
    assert script.draw("WATCH", "/pods") is None


def test_another_webhook_says_who_it_is(server: Server) -> None:
    with Proxy(server.url, None, Script(1, foreign_webhook(1.0))) as proxy:
        status, text = ask(proxy, "POST", "/pods/p/binding", "x")
        assert status == 403
        assert "foreign.example.com" in json.loads(text)["message"]
    assert server.asked == []


def test_a_hard_day_has_all_of_a_bad_one_and_time_outs_longer_than_a_client_waits() -> None:
    assert set(everything()) < set(hard())
    assert any(one.action is Action.LATE and one.least > 30 for one in hard())
