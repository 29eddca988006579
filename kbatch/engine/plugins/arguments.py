"""The arguments of the plugins that are one module each: pydantic's models, apart from what is compiled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from kbatch.engine.plugins.left_over import extended, named
from kbatch.resources import CPU, MEMORY

_BINPACK = "binpack.resources."
_LOST_OPPORTUNITY = "lostopportunity.resources."
_MOST = 1_000_000


class BinpackArguments(BaseModel):
    """Weights, whole numbers from 0: of the plugin beside others, and of each resource within it."""

    model_config = ConfigDict(extra="allow", frozen=True)
    extra_prefixes: ClassVar[tuple[str, ...]] = (_BINPACK,)
    __pydantic_extra__: dict[str, Annotated[int, Field(ge=0, le=_MOST)]]

    weight: int = Field(default=1, ge=0, le=_MOST, alias="binpack.weight", description="of the whole score")
    cpu: int = Field(default=1, ge=0, le=_MOST, alias="binpack.cpu", description="of cpu")
    memory: int = Field(default=1, ge=0, le=_MOST, alias="binpack.memory", description="of memory")
    resources: str = Field(
        default="",
        alias="binpack.resources",
        description="resources, divided by commas, that count with weight 1 although they are not extended ones",
    )

    def by_resource(self, known: tuple[str, ...]) -> dict[str, int]:
        """The weight of each resource that counts: of those that are named, and of the extended ones among `known`."""
        weights = {CPU: self.cpu, MEMORY: self.memory}
        weights.update((name, 1) for name in known if extended(name))
        weights.update((name.strip(), 1) for name in self.resources.split(",") if name.strip())
        weights.update(named(self, _BINPACK))
        return {name: weight for name, weight in weights.items() if weight}


class LostOpportunityArguments(BaseModel):
    """Whole numbers from 0: the plugin's weight beside others, and the worth of each resource."""

    model_config = ConfigDict(extra="allow", frozen=True)
    extra_prefixes: ClassVar[tuple[str, ...]] = (_LOST_OPPORTUNITY,)
    __pydantic_extra__: dict[str, Annotated[int, Field(ge=0, le=_MOST)]]

    weight: int = Field(default=1, ge=0, le=_MOST, alias="lostopportunity.weight", description="of the whole score")
    cpu: int | None = Field(default=None, ge=0, le=_MOST, alias="lostopportunity.cpu", description="of a core")
    memory: int | None = Field(default=None, ge=0, le=_MOST, alias="lostopportunity.memory", description="of a GiB")

    def given(self) -> Mapping[str, int]:
        """The weights that the configuration names."""
        found = {CPU: self.cpu, MEMORY: self.memory, **named(self, _LOST_OPPORTUNITY)}
        return {name: weight for name, weight in found.items() if weight is not None}


class NodeOrderArguments(BaseModel):
    """Weights of the parts, whole numbers from 0; 0 leaves a part out. The first five are kube-batch's."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    least_requested: int = Field(
        default=1, ge=0, le=_MOST, alias="leastrequested.weight", description="free part of cpu and memory"
    )
    most_requested: int = Field(
        default=0, ge=0, le=_MOST, alias="mostrequested.weight", description="used part of cpu and memory"
    )
    balanced_resource: int = Field(
        default=1, ge=0, le=_MOST, alias="balancedresource.weight", description="cpu and memory used alike"
    )
    node_affinity: int = Field(
        default=1, ge=0, le=_MOST, alias="nodeaffinity.weight", description="the pod's preferred node affinity"
    )
    pod_affinity: int = Field(
        default=1, ge=0, le=_MOST, alias="podaffinity.weight", description="preferred inter-pod (anti-)affinity"
    )
    taint_toleration: int = Field(
        default=1, ge=0, le=_MOST, alias="tainttoleration.weight", description="few PreferNoSchedule taints"
    )
    image_locality: int = Field(
        default=1, ge=0, le=_MOST, alias="imagelocality.weight", description="the pod's images are there already"
    )
    topology_spread: int = Field(
        default=2, ge=0, le=_MOST, alias="podtopologyspread.weight", description="spread with ScheduleAnyway"
    )


class PredicatesArguments(BaseModel):
    """kube-batch's names; what is not set is off, as it is there."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    memory_pressure: bool = Field(
        default=False,
        alias="predicate.MemoryPressureEnable",
        description="pods that request neither cpu nor memory stay off nodes that report MemoryPressure",
    )
    disk_pressure: bool = Field(
        default=False,
        alias="predicate.DiskPressureEnable",
        description="no pod goes to nodes that report DiskPressure",
    )
    pid_pressure: bool = Field(
        default=False,
        alias="predicate.PIDPressureEnable",
        description="no pod goes to nodes that report PIDPressure",
    )
