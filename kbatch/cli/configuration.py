"""The scheduler configuration that a command works with: a file's, or the built-in default."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbatch.api.configuration import SchedulerConfiguration
    from kbatch.engine import Policy


def load(path: Path | None, given: tuple[str, str] | None = None) -> tuple[SchedulerConfiguration, Policy]:
    """Read a configuration and make the engine's policy of it; without a path that which is given otherwise (its text,
    and what to call it), else the default.

    Raises:
        ConfigurationError: the file cannot be read, or what it says cannot work; with the line where it stands.
    """
    from kbatch.api.configuration import DEFAULT, ConfigurationError, parse
    from kbatch.engine import build_policy

    if path is None and given is not None:
        configuration = parse(*given)
        return configuration, build_policy(configuration)
    if path is None:
        return DEFAULT, build_policy(DEFAULT)
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise ConfigurationError(str(path), None, f"cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(str(path), None, f"is no UTF-8 text (byte {error.start})") from None
    configuration = parse(text, str(path))
    return configuration, build_policy(configuration)
