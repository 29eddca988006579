"""Where the API server is, and what proves who we are.

Looked for in this order: the argument, `KUBECONFIG`, the pod's own service account, `~/.kube/config`. What a kubeconfig
says plainly (server, certificates, token, token file, name and password) is read here; exec plugins and auth providers
are left to the official client, which is imported only then: its import alone takes a second and 60 MB.

Tokens in files are read again when they change; the official client reads a `tokenFile` once and never again, and
then fails when a rotated token expires.
"""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import yaml

from kbatch.kube.errors import CredentialsError

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
REREAD_SECONDS: Final = 10.0
"""How long a token read from a file is used before the file is looked at again."""


class Token(Protocol):
    """Something that gives the value of the Authorization header."""

    def current(self) -> str | None:
        """The value, if it is at hand and still good; None where `refresh` must be awaited first."""

    async def refresh(self) -> str | None:
        """Fetch the value anew; None where this way of proving oneself needs no header."""

    def invalidate(self) -> None:
        """The server refused the value (401): do not use it again without fetching it anew."""


class FixedToken:
    """A value that never changes; the empty text means that no header is sent (client certificates)."""

    def __init__(self, value: str = "") -> None:
        self._value = value

    def current(self) -> str | None:
        """The value."""
        return self._value

    async def refresh(self) -> str | None:
        """The value."""
        return self._value

    def invalidate(self) -> None:
        """Nothing else can be tried."""


class FileToken:
    """A bearer token in a file that somebody renews (a projected service account token, a kubeconfig's tokenFile)."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._value: str | None = None
        self._good_until = 0.0

    def current(self) -> str | None:
        """The value, for some seconds after it was read."""
        return self._value if self._clock() < self._good_until else None

    async def refresh(self) -> str | None:
        """Read the file. While it cannot be read (it is being replaced), the value read before stays in use.

        Raises:
            CredentialsError: it was never readable.
        """
        try:
            text = (await asyncio.to_thread(self._path.read_text)).strip()
        except OSError as error:
            if self._value is None:
                raise CredentialsError(f"token file {self._path}: {error.strerror}") from error
            text = ""
        if text:
            self._value = f"Bearer {text}"
        self._good_until = self._clock() + REREAD_SECONDS
        return self._value

    def invalidate(self) -> None:
        """Read the file again before the next request."""
        self._good_until = 0.0


class OfficialToken:
    """A value from an exec plugin or an auth provider, run by the official client in a thread."""

    def __init__(self, merged: dict[str, Any], context: str, folder: str) -> None:
        self._merged = merged
        self._context = context
        self._folder = folder
        self._value: str | None = None
        self._good_until = 0.0
        self.certificate: tuple[str, str] | None = None

    def current(self) -> str | None:
        """The value until it expires."""
        return self._value if time.time() < self._good_until else None

    async def refresh(self) -> str | None:
        """Run the plugin."""
        return await asyncio.to_thread(self.load)

    def load(self) -> str | None:
        """Run the plugin and wait for it.

        Raises:
            CredentialsError: it failed, or gave neither token nor certificate.
        """
        from kubernetes.config.config_exception import ConfigException
        from kubernetes.config.kube_config import KubeConfigLoader

        load: Any = KubeConfigLoader  # untyped upstream
        loader = load(config_dict=self._merged, active_context=self._context, config_base_path=self._folder)
        try:
            loader._load_authentication()  # noqa: SLF001  (the public way also reads certificates that we read better)
        except (ConfigException, OSError, KeyError, ValueError) as error:
            raise CredentialsError(f"the kubeconfig's plugin: {error}") from error
        value: str | None = getattr(loader, "token", None)
        certificate = getattr(loader, "cert_file", None)
        if value is None and certificate is None:
            raise CredentialsError("the kubeconfig's plugin gave neither a token nor a certificate")
        if certificate is not None:
            self.certificate = (certificate, loader.key_file)
        self._value = value or ""
        expiry = getattr(loader, "expiry", None)
        # A minute early, so that it does not expire on the way; without an expiry the 401 tells.
        self._good_until = expiry.timestamp() - 60 if expiry is not None else float("inf")
        return self._value

    def invalidate(self) -> None:
        """Run the plugin again before the next request."""
        self._good_until = 0.0


@dataclass(frozen=True, slots=True)
class Credentials:
    """Everything needed to talk to one API server."""

    server: str
    """Its URL without a trailing slash, possibly with a path."""

    token: Token = field(default_factory=FixedToken)
    tls: ssl.SSLContext | None = None
    """None for plain HTTP."""

    server_name: str | None = None
    """The name that its certificate must carry, where that is not the URL's host."""

    proxy: str | None = None
    namespace: str = "default"
    """The namespace of the context, or the pod's own."""


def load_credentials(kubeconfig: str | None = None, *, context: str | None = None) -> Credentials:
    """Find and read the credentials.

    Args:
        kubeconfig: a file, or several with the path separator between; None looks in the usual places.
        context: the kubeconfig's context to use instead of its current one.

    Raises:
        CredentialsError: there are none, or they cannot be read.
    """
    text = kubeconfig or os.environ.get("KUBECONFIG")
    if text:
        return _from_kubeconfig([Path(part).expanduser() for part in text.split(os.pathsep) if part], context)
    if os.environ.get("KUBERNETES_SERVICE_HOST") and (SERVICE_ACCOUNT / "token").exists():
        return in_cluster(SERVICE_ACCOUNT, os.environ)
    home = Path("~/.kube/config").expanduser()
    if home.exists():
        return _from_kubeconfig([home], context)
    raise CredentialsError(
        "no credentials: set KUBECONFIG, or run in a pod with a service account, or make ~/.kube/config"
    )


def in_cluster(folder: Path, environment: Mapping[str, str]) -> Credentials:
    """The credentials of a pod's service account, mounted at `folder`.

    Raises:
        CredentialsError: the mount or the environment is incomplete.
    """
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    port = environment.get("KUBERNETES_SERVICE_PORT_HTTPS") or environment.get("KUBERNETES_SERVICE_PORT", "443")
    try:
        tls = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        namespace = (folder / "namespace").read_text().strip() if (folder / "namespace").exists() else "default"
    except OSError as error:
        raise CredentialsError(f"service account at {folder}: {error}") from error
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return Credentials(server=server, token=FileToken(folder / "token"), tls=tls, namespace=namespace)


# --- kubeconfig -------------------------------------------------------------------------------------------------------


def _from_kubeconfig(paths: list[Path], context: str | None) -> Credentials:
    merged = _merge(paths)
    name = context or merged.get("current-context") or ""
    chosen = _entry(merged, "contexts", name, "context")
    cluster = _entry(merged, "clusters", str(chosen.get("cluster", "")), "cluster")
    user = _entry(merged, "users", str(chosen["user"]), "user") if chosen.get("user") else {}
    server = str(cluster.get("server", "")).rstrip("/")
    if not server.startswith(("http://", "https://")):
        raise CredentialsError(f"kubeconfig: cluster of context {name!r} has no server URL")
    token, certificate = _identity(user, merged, name, str(paths[0].parent))
    return Credentials(
        server=server,
        token=token,
        tls=_tls(cluster, user, certificate) if server.startswith("https://") else None,
        server_name=cluster.get("tls-server-name"),
        proxy=cluster.get("proxy-url"),
        namespace=chosen.get("namespace") or "default",
    )


def _fault(error: Exception) -> str:
    """What is wrong and in which line, without the line: it may hold a token or a key."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"{error.problem} in line {error.problem_mark.line + 1}"
    return " ".join(str(error).split())


def _merge(paths: list[Path]) -> dict[str, Any]:
    """Several kubeconfigs as one: the first to name a thing wins; relative paths become absolute by their own file."""
    merged: dict[str, Any] = {"contexts": [], "clusters": [], "users": []}
    found = False
    for path in paths:
        try:
            content = yaml.safe_load(path.read_text("utf-8"))
        except FileNotFoundError:
            continue  # as kubectl does: of several files some may be absent
        except OSError as error:
            raise CredentialsError(f"kubeconfig {path}: cannot be read: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise CredentialsError(f"kubeconfig {path}: no UTF-8 text (byte {error.start})") from error
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise CredentialsError(f"kubeconfig {path}: not YAML: {_fault(error)}") from error
        if content is None:
            continue
        if not isinstance(content, dict):
            raise CredentialsError(f"kubeconfig {path}: not a mapping")
        found = True
        if content.get("current-context"):
            merged.setdefault("current-context", content["current-context"])
        for section, inner in (("contexts", "context"), ("clusters", "cluster"), ("users", "user")):
            known = {entry["name"] for entry in merged[section]}
            for entry in _entries(content.get(section), f"kubeconfig {path}: {section}", inner):
                if entry.get("name") not in known:
                    body = dict(entry.get(inner) or {})
                    for word in ("certificate-authority", "client-certificate", "client-key", "tokenFile"):
                        if body.get(word):
                            body[word] = str(path.parent.absolute() / body[word])
                    merged[section].append({"name": entry.get("name"), inner: body})
    if not found:
        raise CredentialsError(f"kubeconfig: no such file: {', '.join(map(str, paths))}")
    return merged


def _entries(section: Any, where: str, inner: str) -> list[dict[str, Any]]:
    """The entries of a section, each with a mapping inside."""
    entries = section or []
    if not isinstance(entries, list) or not all(
        isinstance(entry, dict) and isinstance(entry.get(inner) or {}, dict) for entry in entries
    ):
        raise CredentialsError(f"{where}: not a list of entries with a name and a {inner}")
    return entries


def _entry(merged: Mapping[str, Any], section: str, name: str, inner: str) -> dict[str, Any]:
    for entry in merged[section]:
        if entry["name"] == name:
            body: dict[str, Any] = entry[inner]
            return body
    raise CredentialsError(f"kubeconfig: no entry {name!r} among its {section}")


def _identity(
    user: Mapping[str, Any], merged: dict[str, Any], context: str, folder: str
) -> tuple[Token, tuple[str, str] | None]:
    """What goes into the Authorization header, and a client certificate where a plugin gave one."""
    if user.get("tokenFile"):
        return FileToken(Path(user["tokenFile"])), None
    if user.get("token"):
        return FixedToken(f"Bearer {user['token']}"), None
    if user.get("exec") or user.get("auth-provider"):
        official = OfficialToken(merged, context, folder)
        official.load()
        return official, official.certificate
    if user.get("username"):
        pair = base64.b64encode(f"{user['username']}:{user.get('password', '')}".encode()).decode()
        return FixedToken(f"Basic {pair}"), None
    return FixedToken(), None


def _tls(cluster: Mapping[str, Any], user: Mapping[str, Any], certificate: tuple[str, str] | None) -> ssl.SSLContext:
    try:
        if cluster.get("certificate-authority-data"):
            tls = ssl.create_default_context(cadata=_decoded(cluster["certificate-authority-data"]).decode())
        else:
            tls = ssl.create_default_context(cafile=cluster.get("certificate-authority"))
        if cluster.get("insecure-skip-tls-verify"):
            tls.check_hostname = False
            tls.verify_mode = ssl.CERT_NONE
        if certificate is not None:
            tls.load_cert_chain(*certificate)
        elif user.get("client-certificate-data") or user.get("client-certificate"):
            _load_client_certificate(tls, user)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError, a bad base64 a ValueError
        raise CredentialsError(f"kubeconfig: certificates: {error}") from error
    return tls


def _load_client_certificate(tls: ssl.SSLContext, user: Mapping[str, Any]) -> None:
    """Python's ssl reads key pairs from files only: data goes through a private folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="kbatch-") as folder:
        paths = []
        for word in ("client-certificate", "client-key"):
            if user.get(f"{word}-data"):
                path = Path(folder) / word
                path.touch(mode=0o600)
                path.write_bytes(_decoded(user[f"{word}-data"]))
                paths.append(str(path))
            else:
                paths.append(user[word])
        tls.load_cert_chain(*paths)


def _decoded(data: str) -> bytes:
    return base64.b64decode(data)
