"""Settings of a process: a frozen dataclass, read from flags, then from the environment, then from defaults.

Each field of the dataclass becomes one flag: `lease_name` is `--lease-name`, or `KBATCH_LEASE_NAME` in the environment.
The flags are the contract with the chart, so an unknown one is an error that names the nearest known flag, never
ignored: a typo in a template must not start a process that does something else.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import os
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar, get_type_hints

ENVIRONMENT_PREFIX: Final = "KBATCH_"
USAGE_ERROR: Final = 2
"""Exit status of a process whose flags or environment cannot be understood."""

_DURATION: Final = re.compile(r"(?P<amount>[0-9]+(?:\.[0-9]+)?)(?P<unit>ms|s|m|h)", re.ASCII)
_SECONDS: Final = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600)}
_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"0", "false", "no", "off"})
_NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("json", "text")

SettingsT = TypeVar("SettingsT", bound="ProcessSettings")


class SettingsError(ValueError):
    """A flag or a variable that cannot be understood; the message is one sentence for a person."""


def parse_duration(text: str) -> float:
    """The seconds that `50ms`, `1s`, `5m` or `1h` mean.

    Raises:
        ValueError: no number with one of the units ms, s, m, h.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration such as 50ms, 1s or 5m")
    return float(Decimal(match["amount"]) * _SECONDS[match["unit"]])


def flag(default: Any, text: str, *, choices: Sequence[str] = ()) -> Any:
    """A field of a settings class: its default, what `--help` says of it, and the values allowed (all, if empty).

    A field of type `float` is a duration: seconds here, `50ms` or `5m` on the command line.
    """
    return dataclasses.field(default=default, metadata={"help": text, "choices": tuple(choices)})


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProcessSettings:
    """What every process understands. A port of 0 means any free one."""

    bind_address: str = flag("127.0.0.1", "address on which the health and metrics endpoints listen")
    health_port: int = flag(8080, "port of /healthz and /readyz; 0 for a free one")
    metrics_port: int = flag(9090, "port of /metrics; 0 for a free one")
    metrics_certificates: str = flag("", "folder with tls.crt and tls.key for the port of /metrics; if empty: http")
    metrics_authorization: bool = flag(
        default=False, text="show /metrics only to accounts of the cluster that may get this path"
    )
    log_level: str = flag("info", "lowest level of the log lines that are written", choices=LEVELS)
    log_format: str = flag(
        "json", "format of log lines: one JSON object a line, or text for a terminal", choices=FORMATS
    )
    scheduler_name: str = flag("kube-batch", "spec.schedulerName of the pods that kbatch schedules")
    namespaces: str = flag("", "namespaces whose groups, Jobs and pods are managed, with commas; empty: all")
    kubeconfig: str = flag("", "kubeconfig file; if empty: KUBECONFIG, the pod's ServiceAccount, or ~/.kube/config")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LeaderSettings(ProcessSettings):
    """What a process understands of which at most one is active."""

    leader_elect: bool = flag(default=True, text="act only while holding the Lease")
    lease_namespace: str = flag("", "namespace of the Lease; if empty: the pod's own, or kbatch-system")
    lease_name: str = flag("", "name of the Lease; if empty: kbatch- and the process's name")
    identity: str = flag("", "name of this holder of the Lease; if empty: the host's name and the process id")
    lease_duration: float = flag(12.0, "how long a Lease is valid without renewal")
    renew_deadline: float = flag(8.0, "how long a leader tries to renew the Lease before it gives up leadership")
    retry_period: float = flag(2.0, "time between two attempts to get or renew the Lease")

    def resolved_lease_namespace(self) -> str:
        """The namespace of the Lease: as set, else the pod's own, else `kbatch-system`."""
        if self.lease_namespace:
            return self.lease_namespace
        if _NAMESPACE_FILE.exists():
            return _NAMESPACE_FILE.read_text(encoding="ascii").strip()
        return "kbatch-system"

    def resolved_identity(self) -> str:
        """Who holds the Lease: as set, else host and process id (two processes of one host differ)."""
        return self.identity or f"{socket.gethostname()}-{os.getpid()}"


class _Parser(argparse.ArgumentParser):
    """argparse, but errors are exceptions with one sentence."""

    def error(self, message: str) -> NoReturn:
        raise SettingsError(message)


def parse(settings: type[SettingsT], *, prog: str, argv: Sequence[str], environ: Mapping[str, str]) -> SettingsT:
    """The settings that the flags, then the environment, then the defaults give.

    Raises:
        SettingsError: an unknown flag, a value that cannot be read, or one that is not allowed.
        SystemExit: `--help` was asked for and printed.
    """
    types = get_type_hints(settings)
    fields = {field.name: field for field in dataclasses.fields(settings)}
    parser = _Parser(
        prog=prog, description=_first_line(settings.__doc__), allow_abbrev=False, argument_default=argparse.SUPPRESS
    )
    for name, field in fields.items():
        _add_flag(parser, name, types[name], field)
    known, unknown = parser.parse_known_args(list(argv))
    if unknown:
        raise SettingsError(_unknown(unknown[0], fields))
    values: dict[str, Any] = {}
    for name, field in fields.items():
        choices: tuple[str, ...] = field.metadata["choices"]
        if hasattr(known, name):
            raw: Any = getattr(known, name)
            origin = "--" + name.replace("_", "-")
        elif ENVIRONMENT_PREFIX + name.upper() in environ:
            origin = ENVIRONMENT_PREFIX + name.upper()
            raw = environ[origin]
        else:
            continue
        values[name] = _convert(raw, types[name], choices, origin)
    return settings(**values)


def parse_or_exit(settings: type[SettingsT], *, prog: str, argv: Sequence[str] | None = None) -> SettingsT:
    """As `parse`, from the command line; on an error one line on stderr and exit status 2."""
    try:
        return parse(settings, prog=prog, argv=sys.argv[1:] if argv is None else argv, environ=os.environ)
    except SettingsError as error:
        sys.stderr.write(f"{prog}: {error}\n")
        raise SystemExit(USAGE_ERROR) from None


def _add_flag(parser: argparse.ArgumentParser, name: str, kind: type, field: dataclasses.Field[Any]) -> None:
    spelled = "--" + name.replace("_", "-")
    text = f"{field.metadata['help']} (default: {default_text(field.default)}; {ENVIRONMENT_PREFIX}{name.upper()})"
    if kind is bool:
        parser.add_argument(spelled, dest=name, action=argparse.BooleanOptionalAction, help=text.replace("%", "%%"))
        return
    choices = field.metadata["choices"]
    metavar = "|".join(choices) if choices else "DURATION" if kind is float else kind.__name__.upper()
    parser.add_argument(spelled, dest=name, metavar=metavar, help=text.replace("%", "%%"))


def _convert(raw: Any, kind: type, choices: tuple[str, ...], origin: str) -> Any:
    if not isinstance(raw, str):
        return raw
    if choices and raw not in choices:
        raise SettingsError(f"{origin}: {raw!r} is none of {', '.join(choices)}")
    try:
        if kind is bool:
            return _boolean(raw)
        if kind is float:
            return parse_duration(raw)
        value = kind(raw)
    except ValueError as error:
        what = str(error) if kind in {bool, float} else f"{raw!r} is not a whole number"
        raise SettingsError(f"{origin}: {what}") from None
    if kind is int and value < 0:
        raise SettingsError(f"{origin}: {value} is negative")
    if origin.lower().endswith(("-port", "_port")) and value > 65535:
        raise SettingsError(f"{origin}: {value} is not a port (0 to 65535)")
    return value


def _boolean(raw: str) -> bool:
    word = raw.lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError(f"{raw!r} is neither true nor false")


def _unknown(argument: str, fields: Mapping[str, dataclasses.Field[Any]]) -> str:
    given = argument.partition("=")[0]
    if not given.startswith("-"):
        return f"unexpected argument {given!r}; there are only flags (see --help)"
    spelled = ["--" + name.replace("_", "-") for name in fields]
    near = difflib.get_close_matches(given, spelled, n=1)
    return f"unknown flag {given}" + (f"; the nearest known one is {near[0]}" if near else " (see --help)")


def default_text(default: Any) -> str:
    """A flag's default as `--help` shows it: durations in seconds, booleans in lower case."""
    if isinstance(default, float):
        return f"{default:g}s"
    return str(default).lower() if isinstance(default, bool) else repr(default) if default == "" else str(default)


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]
