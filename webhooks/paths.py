"""The paths that the API server calls. Each ends in a token that nobody else knows, so that nobody else can ask.

The port of a webhook is open to the whole cluster, and few platforms let the API server present a certificate. What it
always sends is the path of the webhook configuration, which users of namespaces cannot read. Each handler has a token
of its own, made of one secret: should the API server name one in an error (it does to whoever is refused because no
webhook answers), the others stay unknown.
"""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path
from typing import Final

SHORTEST: Final = 32
"""Characters that a secret has at least."""


class PathSecretError(Exception):
    """The secret cannot be used; the message says which file and why, and nothing of the secret."""


class Paths:
    """Who knows the path of a handler.

    Args:
        file: holds the secret; None where no token is asked for.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._secret = b""

    def check(self) -> str | None:
        """None while callers can be told apart."""
        return None if self._file is None or self._secret else f"no secret in {self._file} yet"

    def reload(self) -> None:
        """Read the file again. The tokens of a secret that was replaced open nothing any more.

        Raises:
            PathSecretError: it cannot be used; the one before stays in use.
        """
        if self._file is None:
            return
        try:
            secret = self._file.read_bytes().strip()
        except OSError as error:
            raise PathSecretError(f"{self._file}: {error.strerror}") from error
        if len(secret) < SHORTEST:
            raise PathSecretError(f"{self._file}: less than {SHORTEST} characters")
        self._secret = secret

    def opens(self, handler: str, token: str) -> bool:
        """Whether the token is that of the handler; takes as long whatever it is."""
        if self._file is None:
            return not token
        return bool(self._secret) and hmac.compare_digest(
            token_of(self._secret, handler), token.encode("utf-8", "replace")
        )


def token_of(secret: bytes, handler: str) -> bytes:
    """The last part of a handler's path: the SHA-256 of `SECRET/HANDLER` in hexadecimal, as the chart makes it."""
    return hashlib.sha256(secret + b"/" + handler.encode()).hexdigest().encode()
