from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest

from kbatch.localcluster import mirror
from kbatch.localcluster.errors import ChartError

if TYPE_CHECKING:
    from pathlib import Path

OBJECTS = {("ConfigMap", "settings"): {"a": b"1", "b": b"2"}, ("Secret", "keys"): {"tls.key": b"k"}}


def contents(volume: dict[str, Any]) -> dict[str, bytes] | None:
    return mirror.contents(
        {"name": "v", **volume},
        lambda kind, name: OBJECTS.get((kind, name)),
        lambda audience, lifetime: f"token for {audience} of {lifetime} s".encode(),
    )


def shown(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith("..")}


def test_a_volume_shows_the_keys_of_its_object() -> None:
    assert contents({"configMap": {"name": "settings"}}) == {"a": b"1", "b": b"2"}
    assert contents({"secret": {"secretName": "keys"}}) == {"tls.key": b"k"}
    assert contents({"configMap": {"name": "settings", "items": [{"key": "a", "path": "deep/x"}]}}) == {"deep/x": b"1"}
    assert contents({"emptyDir": {}}) is None


def test_a_projected_volume_joins_its_sources() -> None:
    sources = [
        {"serviceAccountToken": {"path": "token", "audience": "vault", "expirationSeconds": 700}},
        {"secret": {"name": "keys"}},
    ]
    assert contents({"projected": {"sources": sources}}) == {"token": b"token for vault of 700 s", "tls.key": b"k"}


def test_what_is_missing_is_a_fault_unless_optional() -> None:
    with pytest.raises(ChartError, match="ConfigMap nope"):
        contents({"configMap": {"name": "nope"}})
    assert contents({"configMap": {"name": "nope", "optional": True}}) == {}
    with pytest.raises(ChartError, match="the key z"):
        contents({"configMap": {"name": "settings", "items": [{"key": "z", "path": "z"}]}})
    with pytest.raises(ChartError, match="hostPath"):
        contents({"hostPath": {"path": "/"}})


def test_values_are_decoded() -> None:
    text = base64.b64encode(b"\xff").decode()
    assert mirror.values({"kind": "ConfigMap", "data": {"a": "x"}, "binaryData": {"b": text}}) == {
        "a": b"x",
        "b": b"\xff",
    }
    assert mirror.values({"kind": "Secret", "type": "Opaque", "data": {"c": text}}) == {"c": b"\xff"}
    assert mirror.values({"kind": "ConfigMap"}) == {}


def test_files_change_all_at_once_and_old_ones_go(tmp_path: Path) -> None:
    folder = tmp_path / "volume"
    assert mirror.write(folder, {"a": b"1", "gone": b"x", "deep/b": b"2"})
    first = (folder / "..data").resolve()
    assert (folder / "deep" / "b").read_bytes() == b"2"

    assert mirror.write(folder, {"a": b"3"})
    assert shown(folder) == {"a": b"3"}
    # Every file is reached through the one link that was renamed, and nothing of the old content is left.
    assert (folder / "a").readlink().parts[0] == "..data"
    assert (folder / "..data").resolve() != first
    assert not first.exists()


def test_equal_files_are_left_alone(tmp_path: Path) -> None:
    mirror.write(tmp_path, {"a": b"1"})
    before = (tmp_path / "..data").resolve()
    assert not mirror.write(tmp_path, {"a": b"1"})
    assert (tmp_path / "..data").resolve() == before


def test_secrets_are_for_their_owner_only(tmp_path: Path) -> None:
    mirror.write(tmp_path, {"tls.key": b"k"})
    assert (tmp_path / "tls.key").stat().st_mode & 0o077 == 0
