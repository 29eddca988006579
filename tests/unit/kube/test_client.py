"""Requests: what is sent again, what is not, and what an error says."""

from __future__ import annotations

import asyncio
import socket
import time

import aiohttp
import pytest

from kbatch.kube.client import APPLY, JSON_PATCH, MERGE, Client, SilenceError
from kbatch.kube.credentials import Credentials, FileToken, FixedToken
from kbatch.kube.errors import ApiError, CredentialsError, NoAnswerError, NotLeadingError, error_from
from tests.unit.kube.server import hangs_up, refuses, says, serving, streams


async def test_429_with_retry_after_is_waited_out() -> None:
    async with serving() as fake, fake.client() as client:
        fake.answers = [refuses(429, "TooManyRequests", "slow down", Retry_After="0.3"), says({"ok": True})]
        began = time.monotonic()
        assert await client.request("POST", "/api/v1/x", body={"a": 1}) == b'{"ok": true}'
        assert time.monotonic() - began >= 0.3
        assert [body for _, _, body in fake.requests] == [b'{"a":1}'] * 2


async def test_storage_that_is_coming_up_is_asked_again_even_without_retry_after() -> None:
    async with serving() as fake, fake.client() as client:
        coming_up = refuses(429, "TooManyRequests", "storage is (re)initializing")
        fake.answers = [coming_up, coming_up, says({})]
        assert await client.request("GET", "/x") == b"{}"


async def test_the_refusal_of_a_budget_is_an_answer() -> None:
    async with serving() as fake, fake.client() as client:
        fake.answers = [refuses(429, "TooManyRequests", "budget", cause="DisruptionBudget", Retry_After="10")]
        with pytest.raises(ApiError) as caught:
            await client.request("POST", "/x")
        assert caught.value.disrupts_budget
        assert caught.value.retry_after == 10
        assert len(fake.requests) == 1


async def test_whoever_is_told_to_wait_for_long_gets_the_error() -> None:
    async with serving() as fake, fake.client() as client:
        fake.answers = [refuses(429, "TooManyRequests", "later", Retry_After="600")]
        with pytest.raises(ApiError, match="later"):
            await client.request("GET", "/x")


async def test_retries_end() -> None:
    async with serving() as fake, fake.client() as client:
        fake.answers = [refuses(503, "ServiceUnavailable") for _ in range(9)]
        with pytest.raises(ApiError) as caught:
            await client.request("GET", "/x", attempts=3)
        assert caught.value.status == 503
        assert len(fake.requests) == 3


@pytest.mark.parametrize(
    ("method", "content_type", "repeated"),
    [
        ("GET", "application/json", True),
        ("DELETE", "application/json", True),
        ("PATCH", APPLY, True),
        ("PATCH", MERGE, True),
        ("PATCH", JSON_PATCH, False),
        ("POST", "application/json", False),
        ("PUT", "application/json", False),
    ],
)
async def test_a_lost_answer_is_asked_for_again_only_where_that_is_harmless(
    method: str, content_type: str, repeated: bool
) -> None:
    async with serving() as fake, fake.client() as client:
        fake.answers = [hangs_up, says({})]
        if repeated:
            assert await client.request(method, "/x", body={}, content_type=content_type) == b"{}"
        else:
            with pytest.raises(NoAnswerError) as caught:
                await client.request(method, "/x", body={}, content_type=content_type)
            assert caught.value.sent
        assert len(fake.requests) == (2 if repeated else 1)


async def test_without_a_connection_even_a_post_is_tried_again() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with Client(Credentials(server=f"http://127.0.0.1:{port}")) as client:
        began = time.monotonic()
        with pytest.raises(NoAnswerError) as caught:
            await client.request("POST", "/x", attempts=3)
        assert not caught.value.sent
        assert 0.1 <= time.monotonic() - began < 5


async def test_a_server_that_never_answers_is_given_up() -> None:
    async def never(_: object) -> None:
        await asyncio.sleep(30)

    async with serving() as fake, fake.client() as client:
        fake.answers = [streams(then=never)]
        with pytest.raises(NoAnswerError) as caught:
            await client.request("POST", "/x", timeout_seconds=0.2)
        assert caught.value.sent


async def test_the_guard_is_asked_before_every_attempt() -> None:
    asked = 0

    def guard() -> None:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise NotLeadingError("lost meanwhile")

    async with serving() as fake, fake.client() as client:
        fake.answers = [refuses(429, "TooManyRequests", "slow down", Retry_After="0.01"), says({})]
        with pytest.raises(NotLeadingError):
            await client.request("POST", "/x", guard=guard)
        assert len(fake.requests) == 1


async def test_a_rotated_token_is_read_again_after_a_401(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "token"
    path.write_text("old\n")
    async with serving() as fake, fake.client(FileToken(path)) as client:
        fake.answers = [says({})]
        await client.request("GET", "/x")
        path.write_text("new\n")
        fake.answers = [says({})]
        await client.request("GET", "/x")
        fake.answers = [refuses(401, "Unauthorized"), says({})]
        await client.request("POST", "/x")
        assert [sent["Authorization"] for sent in fake.headers] == [f"Bearer {t}" for t in ("old", "old", "old", "new")]
        fake.answers = [refuses(401, "Unauthorized"), refuses(401, "Unauthorized")]
        with pytest.raises(ApiError) as caught:
            await client.request("POST", "/x")
        assert caught.value.status == 401
        assert {sent["User-Agent"] for sent in fake.headers} == {"kbatch-test/0"}


async def test_a_401_to_the_last_attempt_is_an_error_like_any_other() -> None:
    async with serving() as fake, fake.client() as client:
        for attempts in 1, 2:
            fake.answers = [refuses(503, "ServiceUnavailable")] * (attempts - 1) + [refuses(401, "Unauthorized")]
            with pytest.raises(ApiError) as caught:
                await client.request("GET", "/x", attempts=attempts)
            assert caught.value.status == 401
            assert not fake.answers


async def test_a_token_that_does_not_come_keeps_nobody_waiting_for_ever() -> None:
    class Slow(FixedToken):
        hangs = True

        def current(self) -> str | None:
            return None

        async def refresh(self) -> str | None:
            if self.hangs:
                await asyncio.sleep(30)
            return "Bearer late"

    token = Slow()
    async with serving() as fake, fake.client(token) as client, asyncio.timeout(5):
        fake.answers = [says({})]
        with pytest.raises(CredentialsError, match=r"0\.05 s"):
            await client.request("GET", "/x", timeout_seconds=0.05)
        token.hangs = False
        await client.request("GET", "/x")
        assert fake.headers[0]["Authorization"] == "Bearer late"


async def test_lines_are_whole_however_they_arrive() -> None:
    long = b"x" * 700_000
    async with serving() as fake, fake.client() as client:
        fake.answers = [streams(b"on", b"e\ntw", b"o\n\nthree\n", long, b"\nunfinished")]
        got: list[bytes] = []
        async with client.stream("/x", silence=5.0) as arriving:
            async for lines in arriving:
                assert lines
                got += lines
        assert got == [b"one", b"two", b"three", long]


async def test_a_silent_stream_is_told_from_one_that_was_cut() -> None:
    async def silent(_: object) -> None:
        await asyncio.sleep(30)

    async with serving() as fake, fake.client() as client:
        fake.answers = [streams(b"one\n", then=silent)]
        with pytest.raises(SilenceError):
            await read(client, silence=0.2)
        fake.answers = [hangs_up]
        with pytest.raises(NoAnswerError) as caught:
            await read(client, silence=5.0)
        assert not isinstance(caught.value, SilenceError)


async def read(client: Client, silence: float) -> None:
    async with client.stream("/x", silence=silence) as arriving:
        async for _ in arriving:
            pass


async def test_a_stream_without_a_connection_is_not_taken_for_a_silent_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def connect(*_: object, **__: object) -> object:
        raise aiohttp.ConnectionTimeoutError("Connection timeout to host")

    monkeypatch.setattr(aiohttp.ClientSession, "_request", connect)
    async with serving() as fake, fake.client() as client:
        with pytest.raises(NoAnswerError) as caught:
            async with client.stream("/watch", silence=5.0):
                pass
        assert not isinstance(caught.value, SilenceError), "of two silences in a row comes a new list"
        assert not caught.value.sent


def test_a_proxys_page_becomes_a_short_message() -> None:
    error = error_from(502, b"<html>" + b"bad gateway " * 100)
    assert (error.status, error.reason) == (502, "")
    assert error.message.startswith("<html>bad gateway")
    assert len(error.message) <= 200


def test_retry_after_may_stand_in_the_details() -> None:
    error = error_from(429, b'{"reason":"TooManyRequests","message":"m","details":{"retryAfterSeconds":7}}')
    assert error.retry_after == 7
    assert error_from(429, b"{}", "Wed, 21 Oct 2026 07:28:00 GMT").retry_after is None
