"""A path of moves taken again, told step by step; at its end the objects that a test could be made of."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kbatch.engine import Memo
from tests.explore import checks, moves
from tests.explore.moves import Move, decide
from tests.explore.search import disturbing, said_anew, start
from tests.explore.state import Objects, State
from tests.explore.world import World, draw

_FURTHER = 30
"""Quiet moves that are told after the end of the path."""


def replay(text: str, *, strict: bool = False) -> Iterator[str]:
    """The lines that tell of a path, as a violation names it: `SEED.NUMBER:MOVE,MOVE,...`."""
    name, _, path = text.partition(":")
    seed, _, number = name.partition(".")
    more = number.lstrip("0123456789")
    world = draw(int(seed), int(number.removesuffix(more)), more)
    yield from _world(world)
    objects = Objects(world)
    state = start(world, objects)
    following = checks.Following(strict)
    began = -1
    for name in [*filter(None, path.split(",")), "(objects)", *[""] * _FURTHER]:
        if name == "(objects)":
            yield "at the end of the path:"
            yield from (msgspec.json.encode(obj).decode() for obj in objects.all(state))
            yield "and if nobody disturbs it:"
            continue
        model = objects.model(state)
        before = checks.Before(model)
        lines = list(_state(state))
        yield from lines
        try:
            checks.standing(model)
            decided = said_anew(world, model, state)
            again = decide(objects.model(state), world.policy, state.now, Memo(), state.carried)
            checks.equal(decided, again, "the trial of plans")
            for one in moves.writes(decided):
                action = next((gone.action for part in decided.transactions for gone in part.evictions
                               if gone.pod.endswith(f"/{one.pod}") and one.what == "evict"), "")  # fmt: skip
                yield f"    {one.what} {one.pod} {one.node} {action} for g{decided.transactions[one.part].job}"
            for verdict in decided.verdicts:
                yield f"    {verdict.group}: {verdict.reason.message if verdict.reason else 'scheduled'}"
            before.decisions(decided)
            checks.within_quota(world, state, decided)
            next_move = moves.quiet(world, state, decided)
            if not name or (next_move is not None and name == next_move.name):
                following.step(world, state, decided)
            else:
                following = checks.Following(strict, began)
            if next_move is None and not name:
                following.rest(world, state)
                yield "at rest"
                return
        except AssertionError as error:
            yield f"  VIOLATION: {error}"
            next_move = moves.quiet(world, state, decided)
        if next_move is None and not name:
            return
        if next_move is not None and name in {"", next_move.name}:
            move = next_move
        else:
            move = _named(name, disturbing(world, state, decided))
        yield f"> {move.name}"
        state = move.state
        if move.restarts:
            began = state.now
            following = checks.Following(strict, began)


def _named(name: str, possible: Iterator[Move]) -> Move:
    names = []
    for move in possible:
        if move.name == name:
            return move
        names.append(move.name)
    raise SystemExit(f"no move {name!r} here; there are: {', '.join(names)}")


def _world(world: World) -> Iterator[str]:
    replaced = "replaced" if world.replaced else "not replaced"
    quota = f", a quota of {world.quota} cores" if world.quota else ""
    yield f"world {world.name}: nodes of {world.nodes} cores, policy {world.policy_number}{quota}"
    yield f"  pods take {world.grace} s to go, and are {replaced}"
    for place, queue in enumerate(world.queues):
        yield f"  q{place}: {queue}"
    for place, group in enumerate(world.groups):
        yield f"  g{place}: {group}"


def _state(state: State) -> Iterator[str]:
    yield f"at {state.now} s, nodes {state.nodes}"
    for place, group in enumerate(state.groups):
        if group is not None:
            words = " ".join(f"{one.type}={one.status}({one.reason})" for one in group.conditions)
            yield f"  g{place} made {group.made}, {group.attempts} attempts, was whole: {group.was_whole}; {words}"
    for name, one in state.pods:
        marks = [
            *(f"bind to {where} on its way" for pod, where in state.assumed if pod == name),
            *("eviction on its way" for pod in state.evicting if pod == name),
            *(f"not evicted until {until}" for pod, until in state.refused_evictions if pod == name),
            *(f"not on {where} until {until}" for pod, where, until in state.refused_binds if pod == name),
        ]
        told = {key: value for key, value in one._asdict().items() if value not in ("", None, False)}
        yield f"  {name} {told} {', '.join(marks)}"
    if state.carried.clocks or state.carried.binding or state.carried.gathered or state.carried.failing:
        yield f"  {state.carried}"
