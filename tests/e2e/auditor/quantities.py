"""What pods ask for and nodes have, read by the auditor itself: it must not share a mistake with what it audits."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

Amounts = dict[str, Fraction]

_SUFFIXES = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1),
    "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12), "P": Fraction(10**15),
    "E": Fraction(10**18), "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30), "Ti": Fraction(2**40),
    "Pi": Fraction(2**50), "Ei": Fraction(2**60),
}  # fmt: skip


def quantity(text: object) -> Fraction:
    """The number that a Kubernetes quantity stands for. ValueError where it is none."""
    word = str(text)
    number = word.rstrip("numkKMGTPEi") if not word[-1:].isdigit() else word
    suffix = word[len(number) :]
    if suffix not in _SUFFIXES:
        raise ValueError(f"{word!r} is not a quantity")
    return Fraction(number) * _SUFFIXES[suffix]


def amounts(table: dict[str, Any] | None) -> Amounts:
    """A resource list as numbers."""
    return {name: quantity(value) for name, value in (table or {}).items()}


def add(total: Amounts, more: Amounts, sign: int = 1) -> None:
    """Add `more` to `total`, in place."""
    for name, amount in more.items():
        total[name] = total.get(name, Fraction(0)) + sign * amount


def request_of(spec: dict[str, Any]) -> Amounts:
    """What a pod holds on its node: its containers and sidecars, or its largest step of initialisation, and one pod."""
    running: Amounts = {}
    highest: Amounts = {}
    for container in spec.get("initContainers") or ():
        own = _of_container(container)
        if container.get("restartPolicy") == "Always":
            add(running, own)
            own = {}
        step = dict(running)
        add(step, own)
        for name, amount in step.items():
            highest[name] = max(amount, highest.get(name, Fraction(0)))
    for container in spec.get("containers") or ():
        add(running, _of_container(container))
    total = {name: max(running.get(name, Fraction(0)), highest.get(name, Fraction(0))) for name in running | highest}
    add(total, amounts(spec.get("overhead")))
    total["pods"] = Fraction(1)
    return total


def _of_container(container: dict[str, Any]) -> Amounts:
    resources = container.get("resources") or {}
    return amounts(resources.get("limits")) | amounts(resources.get("requests"))
