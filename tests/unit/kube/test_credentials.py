"""Where credentials come from, and that tokens are read again."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from kbatch.kube.credentials import FileToken, OfficialToken, in_cluster, load_credentials
from kbatch.kube.errors import CredentialsError


def write(path: Path, user: dict[str, Any], cluster: dict[str, Any] | None = None, name: str = "main") -> Path:
    cluster = {"server": "http://127.0.0.1:1/"} | (cluster or {})
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "space"}}],
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
    }
    path.write_text(yaml.safe_dump(content))
    return path


async def header(path: Path, **options: Any) -> str | None:
    token = load_credentials(str(path), **options).token
    return token.current() or await token.refresh()


async def test_plain_words_of_a_kubeconfig(tmp_path: Path) -> None:
    path = write(tmp_path / "config", {"token": "abc"})
    credentials = load_credentials(str(path))
    assert (credentials.server, credentials.namespace, credentials.tls) == ("http://127.0.0.1:1", "space", None)
    assert await header(path) == "Bearer abc"
    assert await header(write(tmp_path / "basic", {"username": "me", "password": "it"})) == "Basic bWU6aXQ="
    assert not await header(write(tmp_path / "nobody", {}))


async def test_a_token_file_stands_beside_its_kubeconfig_and_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one")
    path = write(tmp_path / "config", {"tokenFile": "token"})
    assert await header(path) == "Bearer one"
    now = 0.0
    token = FileToken(tmp_path / "token", clock=lambda: now)
    assert token.current() is None
    assert await token.refresh() == "Bearer one"
    (tmp_path / "token").write_text("two")
    assert token.current() == "Bearer one"
    now = 11.0
    assert token.current() is None
    assert await token.refresh() == "Bearer two"
    (tmp_path / "token").unlink()
    now = 22.0
    assert await token.refresh() == "Bearer two", "a file that is just being replaced is no reason to fail"
    with pytest.raises(CredentialsError, match="never"):
        await FileToken(tmp_path / "never").refresh()


async def test_the_first_of_several_kubeconfigs_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = write(tmp_path / "first", {"token": "first"}, name="a")
    second = write(tmp_path / "second", {"token": "second"}, name="b")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'absent'}:{first}:{second}")
    assert load_credentials().token.current() == "Bearer first"
    assert load_credentials(context="b").token.current() == "Bearer second"
    with pytest.raises(CredentialsError, match="no entry 'c'"):
        load_credentials(context="c")


@pytest.mark.parametrize("kind", ["token", "certificate"])
async def test_an_exec_plugin_runs_through_the_official_client(tmp_path: Path, kind: str) -> None:
    count = tmp_path / "count"
    count.write_text("0")
    status = {"token": "token-N"} if kind == "token" else {"clientCertificateData": "c", "clientKeyData": "k"}
    plugin = tmp_path / "plugin"
    plugin.write_text(
        f"#!{sys.executable}\n"
        f"import json, pathlib\n"
        f"path = pathlib.Path({str(count)!r}); n = int(path.read_text()) + 1; path.write_text(str(n))\n"
        f"text = json.dumps({{'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential',"
        f" 'status': {status!r} | {{'expirationTimestamp': '2099-01-01T00:00:00Z'}}}})\n"
        f"print(text.replace('token-N', f'token-{{n}}'))\n"
    )
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    exec_ = {
        "apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin), "interactiveMode": "Never",
    }  # fmt: skip
    credentials = load_credentials(str(write(tmp_path / "config", {"exec": exec_})))
    token = credentials.token
    assert isinstance(token, OfficialToken)
    if kind == "certificate":
        assert token.current() == ""
        assert token.certificate is not None
        assert [path.read_text() for path in map(Path, token.certificate)] == ["c", "k"]
        return
    assert token.current() == "Bearer token-1"
    token.invalidate()
    assert token.current() is None
    assert await token.refresh() == "Bearer token-2"
    assert count.read_text() == "2"


async def test_a_plugin_that_fails_is_named(tmp_path: Path) -> None:
    exec_ = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/false", "interactiveMode": "Never"}
    with pytest.raises(CredentialsError, match="plugin"):
        load_credentials(str(write(tmp_path / "config", {"exec": exec_})))


def test_a_kubeconfig_that_is_no_yaml_is_not_quoted(tmp_path: Path) -> None:
    """The line that is wrong may well be that of a token, and the sentence goes to logs and terminals."""
    path = tmp_path / "config"
    path.write_text('users:\n- name: x\n  user:\n    token: "hunter22hunter22\n')
    with pytest.raises(CredentialsError, match=r"not YAML: found unexpected end of stream in line \d") as found:
        load_credentials(str(path))
    assert "hunter22" not in str(found.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "config"),
        ("[]", "not a mapping"),
        ("a: b: c", r"not YAML: mapping values are not allowed here in"),
        ("at: 2026-13-01", "not YAML: month must be"),
        ("contexts: 3", "contexts: not a list of entries"),
        ("users: [{name: u, user: text}]", "users: not a list of entries with a name and a user"),
        ("{}", "no entry ''"),
        (json.dumps({"current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "y"}}]}), "'y'"),
        (
            json.dumps(
                {
                    "current-context": "x",
                    "contexts": [{"name": "x", "context": {"cluster": "y"}}],
                    "clusters": [{"name": "y", "cluster": {"server": "https://h", "certificate-authority": "/no"}}],
                }
            ),
            "certificates",
        ),
    ],
)
def test_what_is_wrong_with_a_kubeconfig_is_said(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(CredentialsError, match=message):
        load_credentials(str(path))


def test_no_credentials_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(CredentialsError, match="KUBECONFIG"):
        load_credentials()
    with pytest.raises(CredentialsError, match="no such file"):
        load_credentials(str(tmp_path / "absent"))


def test_an_incomplete_service_account_is_said(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match="service account"):
        in_cluster(tmp_path, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})


def test_a_kubeconfig_that_is_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_bytes(b"a: \xff\xfe")
    with pytest.raises(CredentialsError, match=r"config: no UTF-8 text \(byte 3\)"):
        load_credentials(str(path))
    with pytest.raises(CredentialsError, match="cannot be read: Is a directory"):
        load_credentials(str(tmp_path))
