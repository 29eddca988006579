"""Only who knows the path of a handler is listened to, and nothing of what others send is read."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path

import pytest

from tests.unit.webhooks.test_certificates import PAIRS, mount
from tests.unit.webhooks.test_server import Rig, review
from webhooks.paths import Paths, PathSecretError, token_of

SECRET = "s" * 40
OTHER = "t" * 40


def token(handler: str, secret: str = SECRET) -> str:
    return sha256(f"{secret}/{handler}".encode()).hexdigest()


def test_each_handler_has_a_token_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    paths = Paths(file)
    assert paths.check() == f"no secret in {file} yet"
    assert not paths.opens("a", token("a")), "before it is read nobody knows it"
    paths.reload()
    assert paths.check() is None
    assert paths.opens("a", token("a"))
    for wrong in ("", token("b"), token("a", OTHER), token("a")[:-1], SECRET, "ä\udc80"):
        assert not paths.opens("a", wrong)
    assert token_of(SECRET.encode(), "a").decode() == token("a")


def test_a_secret_that_was_replaced_opens_nothing_and_one_that_is_gone_or_short_is_not_taken(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRET)
    paths = Paths(file)
    paths.reload()
    for broken in (lambda: file.write_text("short"), file.unlink):
        broken()
        with pytest.raises(PathSecretError) as caught:
            paths.reload()
        assert "short" not in str(caught.value).replace(str(file), "")
        assert paths.opens("a", token("a"))
    file.write_text(OTHER)
    paths.reload()
    assert paths.opens("a", token("a", OTHER))
    assert not paths.opens("a", token("a"))


def test_without_a_file_anybody_may_ask_and_no_token_is_one() -> None:
    paths = Paths(None)
    paths.reload()
    assert paths.check() is None
    assert paths.opens("a", "")
    assert not paths.opens("a", token("a"))


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A server that asks for tokens."""
    mount(tmp_path, "first")
    (tmp_path / "secret").write_text(SECRET)
    paths = Paths(tmp_path / "secret")
    paths.reload()
    async with Rig(tmp_path, paths).running() as rig:
        yield rig


async def test_a_review_by_the_right_path_is_answered_and_others_are_not_read(rig: Rig) -> None:
    body = json.dumps(review())
    assert (await rig.post(body, path=f"/podgroup-defaults/{token('podgroup-defaults')}"))[0] == 200
    assert len(rig.reviews) == 1
    strangers = ("/podgroup-defaults", f"/podgroup-defaults/{token('job-suspension')}",
                 f"/{token('podgroup-defaults')}/podgroup-defaults", f"/podgroup-defaults/{SECRET}")  # fmt: skip
    for path in strangers:
        status, answer = await rig.post(body, path=path)
        assert status == 404
        assert SECRET not in str(answer)
    assert len(rig.reviews) == 1
    assert sum(rig.counted(outcome) for outcome in ("allowed", "malformed", "denied", "failed")) == 1


async def test_a_stranger_is_answered_before_the_body_has_come(rig: Rig) -> None:
    context = ssl.create_default_context(cafile=str(PAIRS / "first.crt"))
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", rig.server.port, ssl=context, server_hostname="localhost"
    )
    writer.write(b"POST /podgroup-defaults/x HTTP/1.1\r\nHost: x\r\nContent-Length: 4000000\r\n\r\n{")
    assert b" 404 " in await asyncio.wait_for(reader.readline(), 5)
    writer.close()


async def test_the_secret_is_not_logged(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    rig.answer = ZeroDivisionError("a defect")
    known = token("podgroup-defaults")
    assert (await rig.post(json.dumps(review()), path=f"/podgroup-defaults/{known}"))[0] == 500
    (rig.folder / "secret").unlink()
    rig.server._reload()
    assert "the secret of the paths is not taken" in caplog.text
    assert SECRET not in caplog.text
    assert known not in caplog.text
