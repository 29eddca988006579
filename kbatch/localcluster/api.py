"""A small blocking client of one API server, for the local cluster's own needs: nodes, tokens, volumes.

It authenticates with the cluster's administrator certificate and knows nothing of kinds; documents are plain JSON.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import tempfile
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import yaml

from kbatch.localcluster.errors import ApiError, LocalClusterError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_TIMEOUT = 30.0


class Api:
    """Requests to the API server of a kubeconfig's current context.

    Usable from several threads; connections are kept until `close`, or the end of a `with`.
    """

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
        context = next(c["context"] for c in config["contexts"] if c["name"] == config["current-context"])
        cluster = next(c["cluster"] for c in config["clusters"] if c["name"] == context["cluster"])
        user = next(u["user"] for u in config["users"] if u["name"] == context["user"])
        self.server: str = cluster["server"].rstrip("/")
        self.certificate_authority: bytes = _content(cluster, "certificate-authority", kubeconfig)
        address = urlsplit(self.server)
        if address.scheme != "https" or not address.hostname:
            raise LocalClusterError(f"{kubeconfig} names {self.server}, which is not an https address.")
        self._host, self._port, self._prefix = address.hostname, address.port or 443, address.path
        self._tls = ssl.create_default_context(cadata=self.certificate_authority.decode("ascii"))
        self._headers = {"Accept": "application/json"}
        if "token" in user:
            self._headers["Authorization"] = f"Bearer {user['token']}"
        else:
            # The ssl module takes certificate and key from files only.
            with tempfile.NamedTemporaryFile() as pair:
                pair.write(_content(user, "client-certificate", kubeconfig))
                pair.write(_content(user, "client-key", kubeconfig))
                pair.flush()
                self._tls.load_cert_chain(pair.name)
        self._idle: deque[http.client.HTTPSConnection] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections that are kept for the next request."""
        while self._idle:
            self._idle.pop().close()

    def get(self, path: str) -> Any:
        """Return the document at a path; ApiError for every status above 299."""
        return self.request("GET", path)

    def post(self, path: str, body: Any) -> Any:
        """Create a document, and return what the server made of it."""
        return self.request("POST", path, body)

    def post_all(self, path: str, bodies: Iterable[Any], *, parallel: int = 16) -> None:
        """Create many documents at once; those that exist already are left alone."""

        def create(body: Any) -> None:
            try:
                self.post(path, body)
            except ApiError as error:
                if error.status != http.client.CONFLICT:
                    raise

        with ThreadPoolExecutor(parallel) as pool:
            for _ in pool.map(create, bodies):
                pass

    def request(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json",
        timeout: float = _TIMEOUT,
    ) -> Any:  # fmt: skip
        """Send one request and return the answer's JSON (text if it is none); ApiError where it fails."""
        payload = None if body is None else json.dumps(body).encode()
        headers = self._headers | ({"Content-Type": content_type} if payload is not None else {})
        for connection in self._connections(timeout):
            fresh = connection.sock is None
            try:
                connection.request(method, self._prefix + path, payload, headers)
                answer = connection.getresponse()
                text = answer.read()
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                # A kept connection may have died unnoticed; a fresh one that fails means that nobody is there.
                if fresh or method != "GET":
                    raise ApiError(method, path, 0, str(error) or type(error).__name__) from error
            else:
                self._idle.append(connection)
                break
        if answer.status > 299:
            raise ApiError(method, path, answer.status, _message(text))
        if "json" in (answer.getheader("Content-Type") or ""):
            return json.loads(text)
        return text.decode("utf-8", "replace")

    def _connections(self, timeout: float) -> Iterator[http.client.HTTPSConnection]:
        """Yield the idle connections, then a fresh one (its `sock` is None)."""
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread was quicker
                break
            if connection.sock is not None:
                connection.sock.settimeout(timeout)
                yield connection
        yield http.client.HTTPSConnection(self._host, self._port, context=self._tls, timeout=timeout)


def _content(entry: dict[str, str], name: str, kubeconfig: Path) -> bytes:
    """Return the bytes that a kubeconfig gives inline (`NAME-data`) or by a path, relative to itself."""
    inline = entry.get(f"{name}-data")
    if inline:
        return base64.b64decode(inline)
    return (kubeconfig.parent / Path(entry[name])).read_bytes()


def _message(text: bytes) -> str:
    try:
        status = json.loads(text)
    except ValueError:
        return text.decode("utf-8", "replace").strip()
    return str(status.get("message", "")) if isinstance(status, dict) else str(status)
