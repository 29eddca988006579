"""Where things live: the checkout, the cache of built programs, the state of running clusters."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import kbatch
from kbatch.localcluster.errors import DiskFullError, NotACheckoutError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def checkout() -> Path:
    """Return the root of the checkout that this code runs from; NotACheckoutError if it is an installed wheel.

    What is compiled stands in a folder of the checkout (`make compiled`).
    """
    root, above = Path(kbatch.__file__).resolve().parents[1:3]
    for each in (root, above):
        if (each / "localcluster" / "go.mod").is_file():
            return each
    raise NotACheckoutError(root / "localcluster" / "go.mod")


def cache_root() -> Path:
    """Return the folder for what can be made again: $XDG_CACHE_HOME/kbatch, else ~/.cache/kbatch."""
    return _xdg("XDG_CACHE_HOME", ".cache")


def state_root() -> Path:
    """Return the folder for what belongs to running clusters: $XDG_STATE_HOME/kbatch, else ~/.local/state/kbatch."""
    return _xdg("XDG_STATE_HOME", ".local/state")


def require_free(folder: Path, needed: int) -> None:
    """Raise DiskFullError if the file system that holds (or will hold) this folder has less than `needed` bytes."""
    existing = folder
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    if free < needed:
        raise DiskFullError(folder, needed, free)


@contextlib.contextmanager
def exclusive(path: Path, *, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold a lock shared by all processes of this user; `waiting` is called once if another one has it.

    The kernel drops the lock when its holder dies, so a crash never leaves it closed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if waiting:
                    waiting()
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if not _is_still(path, descriptor):
                continue  # its holder removed the file while we waited for it
            try:
                yield
            finally:
                path.unlink()
        finally:
            os.close(descriptor)
        return


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return path.stat().st_ino == os.fstat(descriptor).st_ino
    except FileNotFoundError:
        return False


def _xdg(variable: str, fallback: str) -> Path:
    # The XDG specification: a relative path there is to be ignored.
    value = os.environ.get(variable, "")
    base = Path(value) if value.startswith("/") else Path.home() / fallback
    return base / "kbatch"
