"""Volumes of pods as folders of this machine.

Files are replaced the way the kubelet does it: a new hidden folder with the whole new content, then one rename of the
symbolic link `..data`. A reader sees the old files or the new ones, never a mixture, and a program that watches for
that rename in a cluster finds it here.
"""

from __future__ import annotations

import base64
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbatch.localcluster.errors import ChartError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Lookup = Callable[[str, str], Mapping[str, bytes] | None]
    Token = Callable[[str | None, int], bytes]

_DATA = "..data"


def contents(volume: Mapping[str, Any], lookup: Lookup, token: Token) -> dict[str, bytes] | None:
    """Return a volume's files by relative path, None if it is a folder that the program itself fills.

    Args:
        volume: an element of a pod's `volumes`.
        lookup: values by key of (`ConfigMap` or `Secret`, object's name), None if there is no such object.
        token: a ServiceAccount token for (audience or None, lifetime in seconds).

    Raises:
        ChartError: something that is not optional does not exist, or only a kubelet can provide this kind of volume.
    """
    if "emptyDir" in volume:
        return None
    if "projected" in volume:
        files: dict[str, bytes] = {}
        for source in volume["projected"].get("sources", []):
            files |= _source(volume["name"], source, lookup, token)
        return files
    return _source(volume["name"], volume, lookup, token)


def values(document: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the values by key of a ConfigMap or Secret, as the API server shows it."""
    secret = document.get("kind") == "Secret" or "type" in document
    plain = {
        key: base64.b64decode(text) if secret else text.encode() for key, text in (document.get("data") or {}).items()
    }
    return plain | {key: base64.b64decode(text) for key, text in (document.get("binaryData") or {}).items()}


def write(folder: Path, files: Mapping[str, bytes]) -> bool:
    """Make a folder show exactly these files; False if it does already."""
    folder.mkdir(parents=True, exist_ok=True)
    if _read(folder) == dict(files):
        return False
    fresh = Path(tempfile.mkdtemp(prefix="..", dir=folder))
    for name, content in files.items():
        target = fresh / name
        target.parent.mkdir(parents=True, exist_ok=True)
        # Keys and tokens are among them: for this user's eyes only.
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    previous = (folder / _DATA).resolve() if (folder / _DATA).is_symlink() else None
    _link(folder / _DATA, fresh.name)
    tops = {Path(name).parts[0] for name in files}
    for top in tops:
        _link(folder / top, f"{_DATA}/{top}")
    for entry in folder.iterdir():
        if entry.is_symlink() and entry.name != _DATA and entry.name not in tops:
            entry.unlink()
    if previous is not None:
        shutil.rmtree(previous, ignore_errors=True)
    return True


def _source(name: str, source: Mapping[str, Any], lookup: Lookup, token: Token) -> dict[str, bytes]:
    if "serviceAccountToken" in source:
        wanted = source["serviceAccountToken"]
        return {wanted["path"]: token(wanted.get("audience"), int(wanted.get("expirationSeconds", 3600)))}
    for field, kind in (("configMap", "ConfigMap"), ("secret", "Secret")):
        if field in source:
            reference = source[field]
            # A volume calls its Secret `secretName`, a projection calls it `name`.
            found = lookup(kind, reference.get("name") or reference.get("secretName"))
            return _selected(name, kind, reference, found)
    raise ChartError(f"the volume {name} is of a kind that only a kubelet can provide ({', '.join(sorted(source))})")


def _selected(
    volume: str, kind: str, reference: Mapping[str, Any], found: Mapping[str, bytes] | None
) -> dict[str, bytes]:
    optional = bool(reference.get("optional"))
    if found is None:
        if optional:
            return {}
        missing = reference.get("name") or reference.get("secretName")
        raise ChartError(f"the volume {volume} wants the {kind} {missing}, which does not exist")
    if "items" not in reference:
        return dict(found)
    files = {}
    for item in reference["items"]:
        if item["key"] in found:
            files[item["path"]] = found[item["key"]]
        elif not optional:
            raise ChartError(f"the volume {volume} wants the key {item['key']} of a {kind} that lacks it")
    return files


def _read(folder: Path) -> dict[str, bytes] | None:
    """Return the files that a folder shows, None if it was never written."""
    data = folder / _DATA
    if not data.exists():
        return None
    return {str(path.relative_to(data)): path.read_bytes() for path in data.rglob("*") if path.is_file()}


def _link(path: Path, target: str) -> None:
    """Point a symbolic link somewhere, without a moment in which it is missing."""
    if path.is_symlink() and path.readlink() == Path(target):
        return
    temporary = path.with_name(f"..link-{os.getpid()}")
    temporary.symlink_to(target)
    temporary.rename(path)
