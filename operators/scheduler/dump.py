"""What a dump says of the scheduler's picture of the cluster: what is assumed, reserved, planned, and left alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from kbatch.engine import CycleState
from operators.scheduler.cache import Cache


def parts_of(cache: Cache, state: Callable[[], CycleState]) -> Mapping[str, Callable[[], Iterable[str]]]:
    """By name what is listed; `state`: what the last cycle has left to the next. Instants are in microseconds."""
    return {
        "pods assumed": lambda: (f"{key}={task.node}" for key, task in cache.model.tasks.items() if task.assumed),
        "evictions": lambda: cache.evictions,
        "groups not written yet": lambda: cache.unwritten,
        "objects left out": lambda: (f"{kind.__name__} {key}" for kind, key in cache.unreadable),
        "binds refused": lambda: (
            f"{pod}={node}" for pod, nodes in cache.model.refusals.binds.items() for node in nodes
        ),
        "evictions refused": lambda: cache.model.refusals.evictions,
        "starts planned": lambda: (f"{one.job} at {one.at}: {_places(one.places)}" for one in state().planned),
        "room reserved": lambda: _gathered(state()),
        "gangs being bound": lambda: state().binding,
        "groups that fail": lambda: (
            f"{key} {one.times} times in {one.phase} of {one.error}, until {one.until}"
            for key, one in state().failing.items()
        ),
    }


def _gathered(state: CycleState) -> Iterator[str]:
    if state.gathered is not None:
        yield f"{state.gathered.job}: {_places(state.gathered.places)}"


def _places(places: Iterable[tuple[str, str]]) -> str:
    return " ".join(f"{pod}={node}" for pod, node in places)
