"""What a Deployment's pod would run, worked out for a process of this machine.

Everything here is a pure function of the Deployment and of what surrounds it, so that the chart's own commands,
arguments and environment are what runs. Only three things differ from a container, each from a fact of one machine:
ports (several servers share one address), mount paths (they share one file system) and the folder of the program.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kbatch.localcluster.errors import ChartError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

COMPONENT_LABEL = "app.kubernetes.io/component"


@dataclass(frozen=True)
class Surroundings:
    """What a pod learns from where it runs."""

    mounts: Path
    """Each volume is mirrored in the sub-folder of its name."""
    ports: Mapping[str, int]
    """The host's port for each named container port."""
    key_of: Callable[[str, str, str], str | None]
    """Value of (`ConfigMap` or `Secret`, object's name, key), None if there is none."""
    keys_of: Callable[[str, str], Mapping[str, str] | None]
    """All values of (`ConfigMap` or `Secret`, object's name), None if there is no such object."""
    program: Callable[[str], str]
    """Where on this machine a program is."""


@dataclass(frozen=True)
class Probe:
    """A probe as declared; times in seconds. Without `path` a TCP connection suffices."""

    port: int
    path: str | None
    scheme: str
    initial_delay: float
    period: float
    timeout: float
    failure_threshold: int
    success_threshold: int


@dataclass(frozen=True)
class ProcessSpec:
    """A process that stands in for the pods of a Deployment."""

    component: str
    pod_name: str
    service_account: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    ports: Mapping[str, int]
    startup: Probe | None
    readiness: Probe | None
    liveness: Probe | None
    grace: float
    """Seconds between SIGTERM and SIGKILL."""


def fingerprint(deployment: Mapping[str, Any]) -> str:
    """Return a short hash of the pod template: a new one means that the pods are replaced."""
    text = json.dumps(deployment["spec"]["template"], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def component_of(deployment: Mapping[str, Any]) -> str:
    """Return which of kbatch's processes a Deployment runs."""
    metadata = deployment["metadata"]
    component = metadata.get("labels", {}).get(COMPONENT_LABEL)
    if not component:
        raise ChartError(f"the Deployment {metadata['name']} has no label {COMPONENT_LABEL}")
    return str(component)


def container_of(deployment: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the one container of a Deployment's pods."""
    spec = deployment["spec"]["template"]["spec"]
    if len(spec["containers"]) != 1 or spec.get("initContainers"):
        raise ChartError(f"the Deployment {deployment['metadata']['name']} has more than one container")
    container: Mapping[str, Any] = spec["containers"][0]
    return container


def volumes_of(deployment: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the volumes that the container mounts."""
    mounted = {mount["name"] for mount in container_of(deployment).get("volumeMounts", [])}
    volumes = deployment["spec"]["template"]["spec"].get("volumes", [])
    return [volume for volume in volumes if volume["name"] in mounted]


def port_names(deployment: Mapping[str, Any]) -> dict[str, int]:
    """Return the container's ports by name, each of which an environment variable must carry to the program.

    The variable of the port `health` is `HEALTH_PORT`; where it is missing or differs, the program could not be told
    to listen elsewhere, and that is a fault of the chart.
    """
    container = container_of(deployment)
    values = {entry["name"]: entry.get("value") for entry in container.get("env", [])}
    ports: dict[str, int] = {}
    for port in container.get("ports", []):
        name, number = port.get("name"), port["containerPort"]
        if not name or values.get(_port_variable(name)) != str(number):
            raise ChartError(
                f"the Deployment {deployment['metadata']['name']} declares the port {name or number} = {number}, "
                f"but no environment variable {_port_variable(name or 'NAME')} with that value"
            )
        ports[name] = number
    return ports


def process_spec(deployment: Mapping[str, Any], around: Surroundings) -> ProcessSpec:
    """Work out what to run for a Deployment; ChartError if it needs what a plain process cannot have."""
    name = deployment["metadata"]["name"]
    component = component_of(deployment)
    spec = deployment["spec"]["template"]["spec"]
    container = container_of(deployment)
    pod_name = f"{name}-{fingerprint(deployment)}-host0"
    ports = {port: around.ports[port] for port in port_names(deployment)}
    variables = _environment(deployment, container, around, pod_name, ports)
    if not container.get("command"):
        raise ChartError(f"the Deployment {name} has no command, and there is no image here to ask for one")
    words = [expand(word, variables) for word in (*container["command"], *container.get("args", []))]
    rewrite = _path_rewriter(container, around.mounts)
    environment = {key: rewrite(value) for key, value in variables.items()}
    if any(mount["mountPath"] == "/tmp" for mount in container.get("volumeMounts", [])):  # noqa: S108 - the pod's own
        environment["TMPDIR"] = rewrite("/tmp")  # noqa: S108

    def probe(kind: str) -> Probe | None:
        declared = container.get(kind)
        return _probe(name, declared, ports, port_names(deployment)) if declared else None

    return ProcessSpec(
        component=component,
        pod_name=pod_name,
        service_account=spec.get("serviceAccountName", "default"),
        command=(around.program(words[0]), *(rewrite(word) for word in words[1:])),
        environment=environment,
        ports=ports,
        startup=probe("startupProbe"),
        readiness=probe("readinessProbe"),
        liveness=probe("livenessProbe"),
        grace=float(spec.get("terminationGracePeriodSeconds", 30)),
    )


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Expand `$(NAME)` as the kubelet does: an unknown name stays as it is, and `$$` is a literal `$`."""

    def replace(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return variables.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", replace, text)


def _port_variable(port: str) -> str:
    return port.upper().replace("-", "_") + "_PORT"


def _environment(
    deployment: Mapping[str, Any],
    container: Mapping[str, Any],
    around: Surroundings,
    pod_name: str,
    ports: Mapping[str, int],
) -> dict[str, str]:
    """Return the container's variables, ports mapped, paths still the container's."""
    mapped = {_port_variable(name): str(port) for name, port in ports.items()}
    variables: dict[str, str] = {}
    for source in container.get("envFrom", []):
        kind, reference = _reference(source, "configMapRef", "secretRef")
        values = around.keys_of(kind, reference["name"])
        if values is None and not reference.get("optional"):
            raise ChartError(f"the {kind} {reference['name']} of an envFrom does not exist")
        variables |= {source.get("prefix", "") + key: value for key, value in (values or {}).items()}
    for entry in container.get("env", []):
        name = entry["name"]
        if name in mapped:
            variables[name] = mapped[name]
        elif "valueFrom" not in entry:
            variables[name] = expand(entry.get("value", ""), variables)
        elif "fieldRef" in entry["valueFrom"]:
            variables[name] = _field(deployment, entry["valueFrom"]["fieldRef"]["fieldPath"], pod_name)
        else:
            kind, reference = _reference(entry["valueFrom"], "configMapKeyRef", "secretKeyRef")
            value = around.key_of(kind, reference["name"], reference["key"])
            if value is not None:
                variables[name] = value
            elif not reference.get("optional"):
                raise ChartError(
                    f"{name} wants the key {reference['key']} of the {kind} {reference['name']}: not there"
                )
    return variables


def _reference(source: Mapping[str, Any], config_map: str, secret: str) -> tuple[str, Mapping[str, Any]]:
    if config_map in source:
        return "ConfigMap", source[config_map]
    if secret in source:
        return "Secret", source[secret]
    raise ChartError(f"an environment variable comes from {sorted(source)}, which only a kubelet could provide")


def _field(deployment: Mapping[str, Any], path: str, pod_name: str) -> str:
    """Return a field of the pod that this process stands in for."""
    template = deployment["spec"]["template"]
    indexed = re.fullmatch(r"metadata\.(labels|annotations)\['([^']+)'\]", path)
    if indexed:
        return str(template["metadata"].get(indexed[1], {}).get(indexed[2], ""))
    fields = {
        "metadata.name": pod_name,
        "metadata.namespace": deployment["metadata"]["namespace"],
        "metadata.uid": str(uuid.uuid5(uuid.NAMESPACE_DNS, pod_name)),  # as no such pod exists
        "spec.serviceAccountName": template["spec"].get("serviceAccountName", "default"),
        "spec.nodeName": "localhost",
        "status.podIP": "127.0.0.1",
        "status.hostIP": "127.0.0.1",
    }
    if path not in fields:
        raise ChartError(f"an environment variable asks for {path}, which a process outside of a pod does not have")
    return str(fields[path])


def _path_rewriter(container: Mapping[str, Any], mounts: Path) -> Callable[[str], str]:
    """Return a function that replaces the mount paths in a text by their mirrors on this machine."""
    mirrors = {}
    for mount in container.get("volumeMounts", []):
        mirror = mounts / mount["name"]
        mirrors[mount["mountPath"].rstrip("/")] = str(mirror / mount["subPath"] if "subPath" in mount else mirror)
    if not mirrors:
        return lambda text: text
    # One pass, longest first: what was put in is not looked at again, even if the mirror lies below a mount path.
    longest_first = sorted(mirrors, key=len, reverse=True)
    pattern = re.compile(rf"(?<![\w./-])({'|'.join(map(re.escape, longest_first))})(?![\w.-])")
    return lambda text: pattern.sub(lambda match: mirrors[match[1]], text)


def _probe(
    deployment: str, declared: Mapping[str, Any], ports: Mapping[str, int], container_ports: Mapping[str, int]
) -> Probe:
    action = declared.get("httpGet") or declared.get("tcpSocket")
    if not action:
        raise ChartError(f"a probe of the Deployment {deployment} is neither httpGet nor tcpSocket")
    by_number = {number: ports[name] for name, number in container_ports.items()}
    port = ports.get(action["port"]) if isinstance(action["port"], str) else by_number.get(action["port"])
    if port is None:
        raise ChartError(
            f"a probe of the Deployment {deployment} asks the port {action['port']}, which it does not declare"
        )
    return Probe(
        port=port,
        path=action.get("path", "/") if "httpGet" in declared else None,
        scheme=action.get("scheme", "HTTP").lower(),
        initial_delay=float(declared.get("initialDelaySeconds", 0)),
        period=float(declared.get("periodSeconds", 10)),
        timeout=float(declared.get("timeoutSeconds", 1)),
        failure_threshold=int(declared.get("failureThreshold", 3)),
        success_threshold=int(declared.get("successThreshold", 1)),
    )
