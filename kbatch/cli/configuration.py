"""The scheduler configuration that a command works with: a file's, the installed one, or the built-in default."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kbatch.cli.permitted import if_readable

if TYPE_CHECKING:
    from kbatch.api.configuration import SchedulerConfiguration
    from kbatch.engine import Policy
    from kbatch.kube.client import Api

SCHEDULER_LABELS: Final = "app.kubernetes.io/part-of=kbatch,app.kubernetes.io/component=scheduler"
"""The labels that the chart gives to all that belongs to the scheduler of a release."""

_USUAL_NAMESPACE: Final = "kbatch-system"
"""Where the documentation installs the chart: looked at where not all namespaces may be."""

KEY: Final = "scheduler.yaml"
"""The key in the chart's ConfigMap, and the name of the file that the scheduler reads."""


@dataclass(frozen=True, slots=True)
class Installed:
    """How the scheduler of a cluster is installed.

    Attributes:
        text: its configuration. place: what to call that.
        scheduler_name: of the pods that it schedules. default_queue: of those that name none. None: its ConfigMap does
            not say so.
        namespaces: those that it looks after; none: all.
    """

    text: str
    place: str
    scheduler_name: str | None = None
    default_queue: str | None = None
    namespaces: tuple[str, ...] = ()

    def leaves_alone(self, namespaces: Iterable[str]) -> str:
        """Which of these kbatch does not look after, as one clause; empty where it looks after all of them."""
        others = sorted(set(namespaces) - set(self.namespaces)) if self.namespaces else []
        if not others:
            return ""
        return f"kbatch is installed for namespaces {', '.join(self.namespaces)}; it leaves alone {', '.join(others)}"

    @property
    def given(self) -> tuple[str, str]:
        """The configuration, as `load` takes it."""
        return self.text, self.place


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


def half_life_of(policy: Policy) -> int | None:
    """After which past usage counts half, in microseconds; None where the plugin flow is not configured."""
    for part in policy.plugins:
        if part.plugin.name == "flow":
            half_life: int = getattr(part.arguments, "half_time")  # noqa: B009 -- the plugin is not imported for this
            return half_life
    return None


async def installed(api: Api) -> Installed | str:
    """The installed scheduler, as its ConfigMap says. Else, as one clause, why it is not known.

    Raises:
        KubeError: the cluster does not answer, or refuses for another reason than a missing permission.
    """
    from kbatch.api.names import DEFAULT_QUEUE_ANNOTATION, NAMESPACES_ANNOTATION, SCHEDULER_NAME_ANNOTATION
    from kbatch.kube.errors import ApiError
    from kbatch.kube.kinds import Kind
    from kbatch.kube.lists import list_all

    config_maps = Kind(dict[str, Any], "ConfigMap", "", "v1", "configmaps", namespaced=True)
    found: list[dict[str, Any]] | None = None
    for namespace in (None, _USUAL_NAMESPACE):
        try:
            found = await list_all(api, config_maps, namespace=namespace, label_selector=SCHEDULER_LABELS)
        except ApiError as error:
            if error.status != 403:
                raise
        else:
            break
    if found is None:
        return "you may not read the installed scheduler's ConfigMap"
    ours = [each for each in found if KEY in (each.get("data") or {})]
    places = [f"ConfigMap {each['metadata']['namespace']}/{each['metadata']['name']}" for each in ours]
    if not ours:
        return "no ConfigMap of an installed scheduler was found"
    if len(ours) > 1:
        return f"there are several schedulers' configurations ({', '.join(sorted(places))})"
    says = ours[0]["metadata"].get("annotations") or {}
    return Installed(
        ours[0]["data"][KEY],
        places[0],
        says.get(SCHEDULER_NAME_ANNOTATION),
        says.get(DEFAULT_QUEUE_ANNOTATION),
        tuple(name for name in (says.get(NAMESPACES_ANNOTATION) or "").split(",") if name),
    )


async def known(api: Api) -> Installed | None:
    """The installed scheduler; None where it is not known, or may not be read.

    Raises:
        KubeError: the cluster does not answer.
    """
    found = await if_readable(installed(api))
    return found if isinstance(found, Installed) else None


async def left_alone(api: Api, namespaces: Iterable[str]) -> str:
    """Which of these namespaces the installed scheduler does not look after, as one clause; empty for none, and where
    it is not known how it is installed.

    Raises:
        KubeError: the cluster does not answer.
    """
    found = await known(api)
    return found.leaves_alone(namespaces) if found is not None else ""
