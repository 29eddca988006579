from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from kbatch.localcluster.container import BackOff
from kbatch.localcluster.credentials import TokenSource, write_kubeconfig
from kbatch.localcluster.errors import StartError, last_line
from kbatch.localcluster.pods import Probe
from kbatch.localcluster.probes import Result, Tally

if TYPE_CHECKING:
    from pathlib import Path


def test_restarts_back_off_and_are_forgiven() -> None:
    back_off = BackOff()
    assert [back_off.after(1) for _ in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]
    assert back_off.after(601) == 0
    assert back_off.after(1) == 10


def test_a_probe_is_decided_by_answers_in_a_row() -> None:
    tally = Tally(Probe(1, "/", "http", 0, 1, 1, failure_threshold=3, success_threshold=2))
    answers = [False, False, True, False, False, False, True, True]
    expected = [Result.UNKNOWN] * 5 + [Result.FAILURE, Result.FAILURE, Result.SUCCESS]
    assert [tally.add(success=answer) for answer in answers] == expected


class FakeApi:
    """Grants tokens of a given life."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.requests: list[tuple[str, Any]] = []

    def post(self, path: str, body: Any) -> Any:
        self.requests.append((path, body["spec"]))
        until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + self.seconds))
        return {"status": {"token": f"token{len(self.requests)}", "expirationTimestamp": until}}


def test_a_token_is_renewed_at_half_its_life(monkeypatch: pytest.MonkeyPatch) -> None:
    api = FakeApi(seconds=1000)
    tokens = TokenSource(api, "ns")  # type: ignore[arg-type]
    assert [tokens.get("a"), tokens.get("a")] == [b"token1", b"token1"]
    assert api.requests == [("/api/v1/namespaces/ns/serviceaccounts/a/token", {"expirationSeconds": 86400})]
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 490)
    assert tokens.get("a") == b"token1"
    monkeypatch.setattr(time, "time", lambda: now + 510)
    assert tokens.get("a") == b"token2"


def test_tokens_for_other_audiences_are_others() -> None:
    api = FakeApi(seconds=1000)
    tokens = TokenSource(api, "ns")  # type: ignore[arg-type]
    assert tokens.get("a") != tokens.get("a", "vault", 60)
    assert api.requests[1][1] == {"expirationSeconds": 600, "audiences": ["vault"]}


def test_a_release_that_is_installed_anew_gets_tokens_of_its_own() -> None:
    api = FakeApi(seconds=1000)
    tokens = TokenSource(api, "ns")  # type: ignore[arg-type]
    assert [tokens.get("a", owner=uid) for uid in ("u1", "u1", "u2")] == [b"token1", b"token1", b"token2"]


def test_a_kubeconfig_reads_its_token_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    write_kubeconfig(
        path, server="https://x:1", authority=tmp_path / "ca.crt", token=tmp_path / "token", namespace="ns"
    )
    document = yaml.safe_load(path.read_text())
    assert document["users"][0]["user"] == {"tokenFile": str(tmp_path / "token")}
    assert document["clusters"][0]["cluster"]["certificate-authority"] == str(tmp_path / "ca.crt")
    assert document["contexts"][0]["context"]["namespace"] == "ns"


def test_the_line_that_says_why_is_found() -> None:
    assert last_line("a\nError: no\nbye\n", ("error",)) == "Error: no"
    assert last_line("a\nbye\n\n", ("error",)) == "bye"
    assert last_line("") == "it printed nothing"


def test_an_error_follows_its_log(tmp_path: Path) -> None:
    error = StartError("kbatch-queue", "it died.", tmp_path / "old")
    assert str(error) == f"kbatch-queue did not start: it died (see {tmp_path}/old)."
    error.moved(tmp_path / "new")
    assert str(error) == f"kbatch-queue did not start: it died (see {tmp_path}/new)."
