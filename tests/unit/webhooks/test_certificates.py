"""The webhook's certificate, and its renewal. (The key pairs are made for these tests and used nowhere else.)"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from webhooks.certificates import CertificateError, Certificates

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


def test_a_renewed_pair_is_taken(tmp_path: Path) -> None:
    mount(tmp_path, "first")
    certificates = Certificates(tmp_path)
    certificates.reload()
    mount(tmp_path, "second")
    assert certificates.reload() is True


def test_half_of_a_renewal_is_not_taken_and_the_rest_completes_it(tmp_path: Path) -> None:
    mount(tmp_path, "first")
    certificates = Certificates(tmp_path)
    certificates.reload()
    mount(tmp_path, "second", "first")
    with pytest.raises(CertificateError, match=r"tls\.crt and tls\.key cannot be used"):
        certificates.reload()
    assert certificates.check() is None
    mount(tmp_path, "second")
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
