"""The least that a minimum asks for, whichever of more pods than it needs make it up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from kbatch.resources import Resources, positive

Offer: TypeAlias = tuple[Resources, int]
"""Pods that are alike: what one of them asks for, and how many there are."""


def least_of(
    offers: Mapping[str, Sequence[Offer]], own: Mapping[str, int], rest: int, more: Mapping[str, int]
) -> Resources:
    """The smallest sum in each dimension over all choices of so many pods.

    Dimension by dimension the smallest pods are taken, so no choice asks for less in any of them; there need be none
    that asks for as little in all at once.

    Args:
        offers: the pods that may be taken, by role.
        own: how many of each role are to be taken at least.
        rest: how many are to be taken besides, of any role.
        more: the most that may be taken of a role besides its own; roles that are not in it have no limit.
    """
    found: Resources = {}
    for name in sorted({name for pods in offers.values() for request, _ in pods for name in request}):
        others: list[tuple[int, int]] = []
        sums = 0
        for role, pods in offers.items():
            amounts = [(request.get(name, 0), count) for request, count in pods]
            amount, left = _smallest(amounts, own.get(role, 0))
            sums += amount
            others += _first(left, more[role]) if role in more else left
        found[name] = sums + _smallest(others, rest)[0]
    return positive(found)


def _smallest(amounts: Iterable[tuple[int, int]], count: int) -> tuple[int, list[tuple[int, int]]]:
    """The sum of the smallest so many (`amounts`: of one, and how many have it), and the others in order."""
    taken = 0
    left: list[tuple[int, int]] = []
    for amount, there in sorted(amounts):
        some = min(count, there)
        taken += amount * some
        count -= some
        if there > some:
            left.append((amount, there - some))
    return taken, left


def _first(ordered: Iterable[tuple[int, int]], count: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for amount, there in ordered:
        some = max(0, min(count, there))
        found.append((amount, some))
        count -= some
    return found
