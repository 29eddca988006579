"""What can go wrong around a local cluster, each as one sentence that a newcomer can act on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class LocalClusterError(Exception):
    """Base of all expected failures here; its text is one sentence, and the command line ends with status 2."""

    exit_code = 2


class NotACheckoutError(LocalClusterError):
    """kbatch was installed without its sources, which hold the chart and the list of programs."""

    def __init__(self, missing: Path) -> None:
        super().__init__(
            f"A local cluster needs a checkout of kbatch (git clone, then make setup): {missing} does not exist."
        )
        self.missing = missing


class MissingToolError(LocalClusterError):
    """A program that must be installed by hand is not there."""

    def __init__(self, tool: str, remedy: str) -> None:
        super().__init__(f"{tool} was not found; {remedy}.")
        self.tool = tool


class DiskFullError(LocalClusterError):
    """A file system has less room than is needed; sizes in bytes."""

    def __init__(self, folder: Path, needed: int, free: int) -> None:
        super().__init__(
            f"Not enough disk space in {folder}: {_gib(needed)} are needed and {_gib(free)} are free; "
            "free some, or point XDG_CACHE_HOME, GOCACHE or GOMODCACHE elsewhere."
        )
        self.folder, self.needed, self.free = folder, needed, free


class BuildError(LocalClusterError):
    """The Go compiler, or a download for it, failed."""

    def __init__(self, program: str, reason: str, log: Path) -> None:
        super().__init__(f"Building {program} failed: {reason.rstrip('.')} (the whole output is in {log}).")
        self.program, self.reason, self.log = program, reason, log


class PortTakenError(LocalClusterError):
    """A wanted port on loopback belongs to another process."""

    def __init__(self, port: int, purpose: str) -> None:
        super().__init__(f"Port {port}, wanted for {purpose}, is taken by another process; choose another or stop it.")
        self.port, self.purpose = port, purpose


class InvalidNameError(LocalClusterError):
    """A cluster's name cannot serve as a folder and a context name."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name!r} cannot name a cluster: use up to 40 lower-case letters, digits and dashes, a letter first."
        )
        self.name = name


def listed(others: Sequence[str]) -> str:
    """A sentence, with a space before it, that names the clusters there are; empty where there are none."""
    return f" There are others: {', '.join(others)} (name one by --name)." if others else ""


class NoSuchClusterError(LocalClusterError):
    """No cluster of that name was started here; `others` are the names of those that were."""

    def __init__(self, name: str, others: Sequence[str] = ()) -> None:
        super().__init__(f"There is no local cluster named {name}; kbatch up --name {name} starts one.{listed(others)}")
        self.name = name


class StartError(LocalClusterError):
    """A part of the cluster did not come up in time, or died."""

    def __init__(self, what: str, reason: str, log: Path | None = None) -> None:
        super().__init__(what, reason, log)
        self.what, self.reason, self.log = what, reason, log

    def __str__(self) -> str:
        where = f" (see {self.log})" if self.log else ""
        return f"{self.what} did not start: {self.reason.rstrip('.')}{where}."

    def moved(self, log: Path) -> None:
        """Point at the log's new place."""
        self.log = log

    @property
    def port_taken(self) -> bool:
        """Whether somebody else listens where it wanted to: with another port it may start."""
        return "address already in use" in self.reason


class ChartError(LocalClusterError):
    """Helm refused the chart, or the chart asks for something that the host cannot imitate."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"The chart could not be installed: {reason.rstrip('.')}.")
        self.reason = reason


class ApiError(LocalClusterError):
    """The API server refused a request, or could not be reached (status 0)."""

    def __init__(self, method: str, path: str, status: int, message: str) -> None:
        super().__init__(f"{method} {path} answered {status or 'nothing'}: {message.rstrip('.')}.")
        self.method, self.path, self.status, self.message = method, path, status, message


def last_line(text: str, markers: Sequence[str] = ()) -> str:
    """Return the line of a program's output that most likely says why it failed.

    That is the first one that contains one of the markers (case ignored), else the last that is not empty.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in lines:
        if any(marker.lower() in line.lower() for marker in markers):
            return line
    return lines[-1] if lines else "it printed nothing"


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
