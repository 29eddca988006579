"""The nodes that a trace runs on: numbered from 0, with what each offers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kbatch.simulator.errors import Fault, InputError, Place
from kbatch.simulator.traces.jobs import DIMENSIONS, Job, Shape
from kbatch.simulator.traces.reading import located
from kbatch.simulator.traces.tables import parse_openb_nodes

UNLIMITED = 2**53
"""What there is no end of: memory, where nothing is said of it."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes in the order in which they are taken; `names` is empty where numbers are all that they are called."""

    offers: Sequence[Shape]
    names: Sequence[str] = ()
    _fits: dict[Shape, int] = field(default_factory=dict)

    def columns(self) -> NDArray[np.int64]:
        """What the nodes offer: a row for each dimension, a column for each node."""
        return np.array(self.offers, dtype=np.int64).T.copy()

    def total(self, dimension: int) -> int:
        """What all nodes together offer of one dimension; 0 where there is no end of it."""
        amounts = [offer[dimension] for offer in self.offers]
        return 0 if UNLIMITED in amounts else sum(amounts)

    def takes(self, job: Job) -> bool:
        """Whether the job would fit if nothing else stood there."""
        if job.shape not in self._fits:
            self._fits[job.shape] = sum(pods_on(offer, job.shape, UNLIMITED) for offer in self.offers)
        return self._fits[job.shape] >= job.tasks

    def called(self, number: int) -> str | int:
        """The name of a node, else its number."""
        return self.names[number] if self.names else number


def pods_on(offer: Shape, shape: Shape, most: int) -> int:
    """How many pods of a shape fit where there is room for this offer; `most` where they ask for nothing."""
    return min((have // want for have, want in zip(offer, shape, strict=True) if want), default=most)


def numbered(count: int, cpu: int, gpus: int) -> Cluster:
    """So many nodes that are alike: milli-cores and GPUs of each; memory without end."""
    return Cluster([Shape(cpu, UNLIMITED, gpus)] * count)


def listed(path: str) -> Cluster:
    """The nodes of an openb node list, in its order.

    Raises:
        InputError: it cannot be read or understood, names a node twice, or none at all.
    """
    offers: dict[str, Shape] = {}
    for number, (name, offer) in located(path, parse_openb_nodes):
        if name in offers:
            raise InputError([Fault(Place(path, line=number), "sn", f"there is a node {name!r} already")])
        offers[name] = offer
    if not offers:
        raise InputError([Fault(Place(path), "", "names no node")])
    return Cluster(list(offers.values()), list(offers))


def one_pod_a_node(cluster: Cluster, jobs: Sequence[Job]) -> bool:
    """Whether every node takes exactly one pod of any of the jobs, so that a node is either free or not."""
    if len(set(cluster.offers)) > 1:
        return False
    offer, shapes = cluster.offers[0], {job.shape for job in jobs}
    if any(want > have for shape in shapes for have, want in zip(offer, shape, strict=True)):
        return False
    # Two of the smallest are already too much for a node in some dimension.
    least = [min((shape[at] for shape in shapes), default=0) for at in range(len(DIMENSIONS))]
    return any(2 * want > have for have, want in zip(offer, least, strict=True))
