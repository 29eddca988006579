"""A server's certificate: a mounted folder, read again when it changes.

A renewed certificate goes into the TLS context that is in use: connections made from then on see it, those that exist
are not cut, and no request is lost. A pair that does not fit together (half of a renewal) is not taken; the old one
stays in use until the folder is whole again.
"""

from __future__ import annotations

import hashlib
import logging
import ssl
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

_log = logging.getLogger(__name__)


class CertificateError(Exception):
    """The certificate cannot be used; the message says which file and why."""


class Certificates:
    """The key pair in `folder` (`tls.crt`, `tls.key`) as a TLS context of the server's side.

    Args:
        folder: where they are mounted.
        authority: of the certificates that callers must present; None where none is asked for.
        names: the common names in these that are let in; empty: any.
    """

    def __init__(self, folder: Path, authority: Path | None = None, names: Collection[str] = ()) -> None:
        self._certificate = folder / "tls.crt"
        self._key = folder / "tls.key"
        self._authority = authority
        self._names = frozenset(names)
        self._content = ""
        self._found = ""
        """What was found last, and differs from what is in use."""
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        if authority is not None:
            self.context.verify_mode = ssl.CERT_REQUIRED
        self.expires: float | None = None
        """When the certificate ends, in seconds since the epoch; None before one was read."""

    def check(self) -> str | None:
        """None while there is a certificate that counts."""
        if self.expires is None:
            return f"no certificate in {self._certificate.parent} yet"
        return "the certificate has expired" if self.expires < time.time() else None

    def reload(self) -> bool:
        """Read the folder again; whether the certificate is a new one.

        A renewed one is taken when it is found for the second time, unless the one before has ended: Helm writes the
        Secret a moment before the webhook configurations, which are to trust it first.

        Raises:
            CertificateError: it cannot be used; the one before stays in use.
        """
        content = self._digest()
        if content == self._content:
            return False
        if self.check() is None and content != self._found:
            self._found = content
            return False
        self.expires = self._try()
        self.context.load_cert_chain(self._certificate, self._key)
        if self._authority is not None:
            # One that is no longer in the file is trusted until the process ends.
            self.context.load_verify_locations(self._authority)
        renewed = self._content != ""
        self._content = content
        if renewed:
            _log.info("took a renewed certificate")
        return True

    def knows(self, certificate: Mapping[str, Any] | None) -> bool:
        """Whether a caller with this certificate, as TLS has verified and decoded it, is one of those let in."""
        if not self._names:
            return True
        subject = (certificate or {}).get("subject", ())
        return any(name == "commonName" and value in self._names for part in subject for name, value in part)

    def _digest(self) -> str:
        digest = hashlib.sha256()
        for path in (self._certificate, self._key, *([self._authority] if self._authority is not None else [])):
            try:
                digest.update(path.read_bytes())
            except OSError as error:
                raise CertificateError(f"{path}: {error.strerror}") from error
        return digest.hexdigest()

    def _try(self) -> float:
        """Serve a client in memory with the pair: it fits together, and this is when it ends."""
        try:
            server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            server.load_cert_chain(self._certificate, self._key)
            client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            client.check_hostname = False
            client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the certificate itself is the anchor
            client.load_verify_locations(self._certificate)
            if self._authority is not None:
                server.load_verify_locations(self._authority)
            ends = _handshake(server, client).get("notAfter")
        except (OSError, ValueError) as error:
            raise CertificateError(f"{self._certificate} and {self._key.name} cannot be used: {error}") from error
        if not isinstance(ends, str):
            raise CertificateError(f"{self._certificate} does not say when it ends")
        return float(ssl.cert_time_to_seconds(ends))


def _handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> dict[str, object]:
    """Connect the two in memory; the server's certificate as the client decodes it.

    Raises:
        ssl.SSLError: they could not agree, or the certificate has expired.
    """
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (client.wrap_bio(down, up, server_side=False), server.wrap_bio(up, down, server_side=True))
    shaken = [False, False]
    for _ in range(8):
        for index, end in enumerate(ends):
            if not shaken[index]:
                try:
                    end.do_handshake()
                    shaken[index] = True
                except ssl.SSLWantReadError:
                    continue
        if all(shaken):
            break
    return dict(ends[0].getpeercert() or {})
