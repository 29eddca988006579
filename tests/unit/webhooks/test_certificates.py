"""The webhook's certificate, and its renewal. (The key pairs are made for these tests and used nowhere else.)"""

from __future__ import annotations

import asyncio
import shutil
import ssl
import time
from pathlib import Path
from typing import Any

import pytest

from kbatch.process.certificates import CertificateError, Certificates

PAIRS = Path(__file__).parent / "certificates"


def mount(folder: Path, certificate: str, key: str = "") -> None:
    shutil.copyfile(PAIRS / f"{certificate}.crt", folder / "tls.crt")
    shutil.copyfile(PAIRS / f"{key or certificate}.key", folder / "tls.key")


def test_a_pair_is_read_and_says_when_it_ends(tmp_path: Path) -> None:
    mount(tmp_path, "first")
    certificates = Certificates(tmp_path)
    assert certificates.check() == f"no certificate in {tmp_path} yet"
    assert certificates.reload() is True
    assert certificates.check() is None
    assert certificates.expires is not None
    assert certificates.expires > time.time() + 10 * 365 * 86400
    assert certificates.reload() is False


def test_a_renewed_pair_is_taken_at_the_second_look(tmp_path: Path) -> None:
    """Those who call are to trust it first: Helm tells them a moment later."""
    mount(tmp_path, "first")
    certificates = Certificates(tmp_path)
    certificates.reload()
    mount(tmp_path, "second")
    assert certificates.reload() is False
    assert certificates.reload() is True
    assert certificates.reload() is False


def test_a_renewed_pair_is_taken_at_once_where_the_one_before_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mount(tmp_path, "first")
    certificates = Certificates(tmp_path)
    certificates.reload()
    monkeypatch.setattr(certificates, "expires", time.time() - 1)
    mount(tmp_path, "second")
    assert certificates.reload() is True


def test_half_of_a_renewal_is_not_taken_and_the_rest_completes_it(tmp_path: Path) -> None:
    mount(tmp_path, "first")
    certificates = Certificates(tmp_path)
    certificates.reload()
    mount(tmp_path, "second", "first")
    assert certificates.reload() is False
    with pytest.raises(CertificateError, match=r"tls\.crt and tls\.key cannot be used"):
        certificates.reload()
    assert certificates.check() is None
    mount(tmp_path, "second")
    assert certificates.reload() is False
    assert certificates.reload() is True


def test_an_expired_certificate_is_refused(tmp_path: Path) -> None:
    mount(tmp_path, "expired")
    with pytest.raises(CertificateError, match="expired"):
        Certificates(tmp_path).reload()


def test_what_is_missing_or_no_certificate_is_named(tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match=r"tls\.crt: No such file"):
        Certificates(tmp_path).reload()
    mount(tmp_path, "first")
    (tmp_path / "tls.crt").write_text("nonsense")
    with pytest.raises(CertificateError, match=r"tls\.crt"):
        Certificates(tmp_path).reload()


@pytest.fixture
def guarded(tmp_path: Path) -> Certificates:
    """Certificates of a server that asks callers for one that `second` signed, of one name."""
    mount(tmp_path, "first")
    certificates = Certificates(tmp_path, PAIRS / "second.crt", ["kbatch test second"])
    certificates.reload()
    return certificates


async def asked(certificates: Certificates, pair: str | None) -> dict[str, Any]:
    """The certificate that the server sees of a caller with this pair; raises OSError where the two do not agree."""
    seen: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.set_result(writer.get_extra_info("peercert"))
        writer.write(b"x")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=certificates.context)
    context = ssl.create_default_context(cafile=str(PAIRS / "first.crt"))
    if pair is not None:
        context.load_cert_chain(PAIRS / f"{pair}.crt", PAIRS / f"{pair}.key")
    async with server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
        try:
            if await reader.read(1) != b"x":
                raise ConnectionError("closed")
        finally:
            writer.close()
    return await seen


async def test_a_caller_without_the_certificate_that_is_asked_for_gets_no_connection(guarded: Certificates) -> None:
    peer = await asked(guarded, "second")
    assert guarded.knows(peer)
    for other in (None, "first"):
        with pytest.raises(OSError):  # noqa: PT011 - which one depends on who closes first
            await asked(guarded, other)


async def test_of_those_with_the_certificate_only_some_names_are_let_in(tmp_path: Path, guarded: Certificates) -> None:
    peer = await asked(guarded, "second")
    assert not Certificates(tmp_path, PAIRS / "second.crt", ["somebody"]).knows(peer)
    assert Certificates(tmp_path, PAIRS / "second.crt").knows(peer)
    assert not guarded.knows(None)
    assert Certificates(tmp_path).knows(None)


def test_an_authority_that_is_missing_or_none_is_said(tmp_path: Path) -> None:
    mount(tmp_path, "first")
    with pytest.raises(CertificateError, match=r"authority: No such file"):
        Certificates(tmp_path, tmp_path / "authority").reload()
    (tmp_path / "authority").write_text("no certificate")
    with pytest.raises(CertificateError, match="cannot be used"):
        Certificates(tmp_path, tmp_path / "authority").reload()
