"""What may happen in a state: its cycle's decisions carried out, in part or whole, and what others do meanwhile.

Each move has a name, by which a path of them can be taken again. The *quiet* move is the one in which nothing goes
wrong and nobody does anything: decisions are carried out, what is on its way arrives, time goes to the next instant at
which anything happens.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from kbatch.api.conditions import merge
from kbatch.engine import (
    CycleState,
    Memo,
    NullObserver,
    Outcome,
    Policy,
    Transaction,
    Verdict,
    cycle,
    take_snapshot,
    verdict_conditions,
)
from kbatch.model.cluster import ClusterModel
from kbatch.times import SECOND
from tests.explore.state import GroupState, PodState, State, enqueued, used
from tests.explore.world import World, slot
from tests.unit.engine.worlds import EPOCH, stamp

REFUSED_SECONDS: Final = 10
"""For how long what the API server refused is not tried again."""
_AGAIN: Final = 1_000
"""More pods than are made for one place at one instant: the names of later ones begin behind those."""
END: Final = 80_000
"""No world is followed for longer: a day has as many seconds."""


class Decided(NamedTuple):
    """What one cycle said."""

    transactions: tuple[Transaction, ...]
    verdicts: tuple[Verdict, ...]
    outcome: Outcome


class Write(NamedTuple):
    """One write to the API server: `nominate`, `evict` or `bind` a pod; `part` is the place of its transaction."""

    part: int
    what: str
    pod: str
    node: str


class Move(NamedTuple):
    """A move's name and where it leads. `restarts`: a new process begins there."""

    name: str
    state: State
    restarts: bool = False


def decide(model: ClusterModel, policy: Policy, now: int, memo: Memo, carried: CycleState) -> Decided:
    """One cycle of the engine; `now` in seconds since the start."""
    transactions: list[Transaction] = []
    verdicts: list[Verdict] = []
    steps = cycle(take_snapshot(model, EPOCH + now * SECOND, carried), policy, memo, NullObserver())
    while True:
        try:
            step = next(steps)
        except StopIteration as end:
            return Decided(tuple(transactions), tuple(verdicts), end.value)
        if isinstance(step, Transaction):
            transactions.append(step)
        elif isinstance(step, Verdict):
            verdicts.append(step)


def writes(decided: Decided) -> list[Write]:
    """What a process does to carry its decisions out, in order: it nominates, then evicts, then binds."""
    found: list[Write] = []
    for part, transaction in enumerate(decided.transactions):
        found += [Write(part, "nominate", name_of(one.pod), one.node or "") for one in transaction.nominations]
        found += [Write(part, "evict", name_of(one.pod), "") for one in transaction.evictions]
        found += [Write(part, "bind", name_of(one.pod), one.node) for one in transaction.binds]
    return found


def name_of(key: str) -> str:
    """The pod's name without its namespace."""
    return key.partition("/")[2]


# --- what is carried out ----------------------------------------------------------------------------------------------


def quiet(world: World, state: State, decided: Decided) -> Move | None:
    """The quiet move; None where nothing is left to happen."""
    after = carry_out(world, state, decided)
    if decided.transactions or after != state:
        return Move("all", after)
    if state.assumed or state.evicting:
        return Move("arrive-all", _arrive(world, state))
    made = make(world, state)
    if made != state:
        return Move("make", made)
    leaving = [one.leaves for _, one in state.pods if one.leaves is not None]
    leaving += [end for name, one in state.pods if (end := _end(world, name, one)) is not None]
    wake = decided.outcome.next_wake
    instants = [*leaving, *([] if wake is None else [-(-(wake - EPOCH) // SECOND)])]
    if not instants or min(instants) > END:
        return None
    now = max(state.now + 1, min(instants))
    left = {name: one for name, one in state.pods if one.leaves is None or one.leaves > now}
    for name, one in left.items():
        end = _end(world, name, one)
        if end is not None and end <= now:
            left[name] = one._replace(ended=True, nominated="")
    return Move("time", noted(world, lapsed(state._replace(now=now).with_pods(left))))


def _end(world: World, name: str, one: PodState) -> int | None:
    """When a pod ends by itself; None: never, or it has, or goes before."""
    seconds = world.groups[slot(name)[0]].seconds
    if not seconds or one.started is None or one.ended or one.leaves is not None:
        return None
    return one.started + seconds


def lapsed(state: State) -> State:
    """The state without the refusals that have ended."""
    return state._replace(
        refused_evictions=tuple(one for one in state.refused_evictions if one[1] > state.now),
        refused_binds=tuple(one for one in state.refused_binds if one[2] > state.now),
    )


def outcomes(world: World, state: State, decided: Decided) -> Iterator[Move]:
    """The ways in which carrying the decisions out may go wrong.

    The process ends before a write; a write is on its way while the next cycle runs (its answer is lost, or late), or
    all of them are; a bind is refused; a plan is given up since one of its victims cannot be evicted.
    """
    todo = writes(decided)
    for number in range(len(todo) + 1):
        yield Move(
            f"crash-{number}", carry_out(world, state, decided, only=todo[:number], says=False).forgotten(), True
        )
    slow = [number for number, one in enumerate(todo) if one.what != "nominate"]
    for number in slow:
        yield Move(f"late-{number}", carry_out(world, state, decided, late=[todo[number]]))
    if len(slow) > 1:
        yield Move("late-all", carry_out(world, state, decided, late=[todo[number] for number in slow]))
    until = state.now + REFUSED_SECONDS
    for number in slow:
        one = todo[number]
        if one.what == "bind":
            after = carry_out(world, state, decided, only=[other for other in todo if other is not one])
            refused = (*after.refused_binds, (one.pod, one.node, until))
            yield Move(f"refuse-{number}", after._replace(refused_binds=tuple(sorted(refused))))
        else:
            after = carry_out(world, state, decided, only=[other for other in todo if other.part != one.part])
            victims = (*after.refused_evictions, (one.pod, until))
            yield Move(f"refuse-{number}", after._replace(refused_evictions=tuple(sorted(victims))))


def carry_out(
    world: World,
    state: State,
    decided: Decided,
    *,
    only: list[Write] | None = None,
    late: list[Write] | None = None,
    says: bool = True,
) -> State:
    """The state after a cycle's writes.

    Args:
        only: the writes that are made; None: all.
        late: those of them that are on their way still.
        says: whether verdicts become conditions, and the process remembers what the cycle left it.
    """
    pods = dict(state.pods)
    assumed, evicting = list(state.assumed), list(state.evicting)
    todo = writes(decided)
    made = todo if only is None else only
    for one in made:
        before = pods[one.pod]
        if one.what == "nominate":
            pods[one.pod] = before._replace(nominated=one.node)
        elif one.what == "evict":
            if late and one in late:
                evicting.append(one.pod)
            else:
                _leave(world, pods, one.pod, state.now)
        elif late and one in late:
            assumed.append((one.pod, one.node))
        else:
            pods[one.pod] = _bound(before, one.node, state.now)
    undone = [one for one in todo if one.what == "bind" and (one not in made or one in (late or ()))]
    unconfirmed = {slot(one.pod)[0] for one in undone} | {slot(name)[0] for name, _ in assumed}
    groups = _said(state, decided, unconfirmed) if says else state.groups
    after = state._replace(groups=groups, assumed=tuple(sorted(assumed)), evicting=tuple(sorted(evicting)))
    if says:
        after = after._replace(carried=decided.outcome.state)
    return noted(world, after.with_pods(pods))


def _bound(one: PodState, where: str, now: int) -> PodState:
    return one._replace(node=where, started=now, nominated="")


def _said(state: State, decided: Decided, unconfirmed: set[int]) -> tuple[GroupState | None, ...]:
    """The groups with what verdicts say of them. That one is scheduled is written when its binds are confirmed."""
    found = list(state.groups)
    for verdict in decided.verdicts:
        place = int(verdict.group.partition("/g")[2]) if not verdict.shadow else -1
        one = found[place] if place >= 0 else None
        if one is not None:
            wanted = verdict_conditions(verdict, 1)
            later = verdict.scheduled and place in unconfirmed
            standing = one.unwritten if later and one.unwritten else one.conditions
            known = {each.type: each for each in standing}
            # What differs only in its text is no other state.
            same = all(
                known.get(each.type) is not None
                and (known[each.type].status, known[each.type].reason) == (each.status, each.reason)
                for each in wanted
            )
            said = standing if same else merge(one.conditions, wanted, stamp(state.now))
            if later:
                found[place] = one._replace(unwritten=said, attempts=verdict.attempts)
            else:
                found[place] = one._replace(conditions=said, unwritten=(), attempts=verdict.attempts)
    return tuple(found)


def noted(world: World, state: State) -> State:
    """The state with what the checks keep of groups up to date."""
    counts = [[0, 0, 0] for _ in world.groups]
    assumed = {name for name, _ in state.assumed}
    for name, one in state.pods:
        place, index = slot(name)
        if one.ended or (one.node and one.leaves is None):
            counts[place][0] += 1
            counts[place][1] += world.groups[place].role(index) == "m"
        counts[place][2] += (bool(one.node) and one.leaves is None and not one.ended) or name in assumed
    groups = list(state.groups)
    for place, group in enumerate(groups):
        spec, (count, masters, standing) = world.groups[place], counts[place]
        if group is not None:
            whole = count >= spec.minimum and (not spec.roles or masters >= 1)
            was = whole or (group.was_whole and standing > 0)
            if was != group.was_whole:
                groups[place] = group._replace(was_whole=was)
    return state._replace(groups=tuple(groups))


def _leave(world: World, pods: dict[str, PodState], name: str, now: int) -> None:
    """A pod is deleted: it terminates if it has a node, and is replaced if there is who does so."""
    one = pods[name]
    if one.leaves is not None:
        return
    if one.node and not one.ended:
        pods[name] = one._replace(leaves=now + world.grace)
    else:
        del pods[name]
    if not one.ended:
        _replace(world, pods, name, now)


def _replace(world: World, pods: dict[str, PodState], name: str, now: int) -> None:
    if world.replaced and _within_quota(world, pods, slot(name)[0]):
        of = name.partition("r")[0]
        number = 1 + max(int(other.partition("r")[2] or 0) for other in [*pods, name] if other.partition("r")[0] == of)
        pods[f"{of}r{number}"] = PodState(now)


def make(world: World, state: State) -> State:
    """In a world with a quota: the pods that groups in queue lack are made, as far as the API server takes them."""
    if not world.quota:
        return state
    pods = dict(state.pods)
    there = {slot(name) for name, one in pods.items() if one.leaves is None}
    for place, group in enumerate(state.groups):
        if group is None or not enqueued(group):
            continue
        for index in range(world.groups[place].pods):
            if (place, index) not in there and _within_quota(world, pods, place):
                pods[f"g{place}-{index}r{_AGAIN * (state.now + 1)}"] = PodState(state.now)
    return state.with_pods(pods)


def _within_quota(world: World, pods: dict[str, PodState], place: int) -> bool:
    """Whether the API server takes one more pod of the group."""
    now = used(world, State(0, (), (), pods=tuple(pods.items())))
    return not world.quota or now + world.groups[place].cpu <= world.quota


def _arrive(world: World, state: State) -> State:
    """What was on its way has arrived."""
    pods = dict(state.pods)
    for name in state.evicting:
        _leave(world, pods, name, state.now)
    for name, where in state.assumed:
        pods[name] = _bound(pods[name], where, state.now)
    groups = tuple(
        one and one._replace(conditions=one.unwritten or one.conditions, unwritten=()) for one in state.groups
    )
    return noted(world, state._replace(groups=groups, assumed=(), evicting=()).with_pods(pods))


# --- what others do ---------------------------------------------------------------------------------------------------


def disturbances(world: World, state: State) -> Iterator[Move]:
    """What may happen besides, whatever was decided."""
    yield from _arrivals(world, state)
    for place, one in enumerate(state.groups):
        if one is not None:
            yield Move(f"delete-g{place}", _without_group(world, state, place))
    for name, pod in state.pods:
        if pod.leaves is None and not pod.ended:
            pods = dict(state.pods)
            _leave(world, pods, name, state.now)
            yield Move(f"delete-{name}", noted(world, state.with_pods(pods)))
            if pod.node:
                pods = {**dict(state.pods), name: pod._replace(ended=True, nominated="")}
                yield Move(f"end-{name}", noted(world, state.with_pods(pods)))
    for place in range(len(world.nodes)):
        if place in state.nodes:
            yield Move(f"lose-n{place}", _without_node(world, state, place))
        else:
            yield Move(f"return-n{place}", state._replace(nodes=tuple(sorted((*state.nodes, place)))))
    until = state.now + REFUSED_SECONDS
    for name, where in state.assumed:
        after = state._replace(assumed=tuple(one for one in state.assumed if one[0] != name))
        yield Move(
            f"fail-{name}", after._replace(refused_binds=tuple(sorted((*state.refused_binds, (name, where, until)))))
        )
    for name in state.evicting:
        after = state._replace(evicting=tuple(one for one in state.evicting if one != name))
        yield Move(
            f"fail-{name}", after._replace(refused_evictions=tuple(sorted((*state.refused_evictions, (name, until)))))
        )
    if state.assumed or state.evicting:
        yield Move("arrive-all", _arrive(world, state))
        made = make(world, state)
        if made != state:
            yield Move("make", made)
    if state.forgotten() != state:
        yield Move("restart", state.forgotten(), True)


def arrive(world: World, state: State, place: int) -> State:
    """A group comes, with its pods, at an instant at which no other did."""
    now = state.now + any(one is not None and one.made == state.now for one in state.groups)
    groups = list(state.groups)
    groups[place] = GroupState(now)
    pods = dict(state.pods)
    if not world.quota:
        pods |= {f"g{place}-{index}": PodState(now) for index in range(world.groups[place].pods)}
    return lapsed(state._replace(now=now, groups=tuple(groups)).with_pods(pods))


def _arrivals(world: World, state: State) -> Iterator[Move]:
    seen = set()
    for place, one in enumerate(state.groups):
        if one is None and place not in state.gone and world.groups[place] not in seen:
            seen.add(world.groups[place])
            yield Move(f"arrive-g{place}", arrive(world, state, place))


def _without_group(world: World, state: State, place: int) -> State:
    pods = dict(state.pods)
    for name, one in state.pods:
        if slot(name)[0] == place:
            if one.node and not one.ended:
                pods[name] = one._replace(leaves=one.leaves or state.now + world.grace)
            else:
                del pods[name]
    groups = tuple(None if number == place else one for number, one in enumerate(state.groups))
    return state._replace(groups=groups, gone=tuple(sorted((*state.gone, place)))).with_pods(pods)


def _without_node(world: World, state: State, place: int) -> State:
    pods = dict(state.pods)
    lost = f"n{place}"
    for name, one in state.pods:
        if one.node == lost and not one.ended:
            del pods[name]
            if one.leaves is None:
                _replace(world, pods, name, state.now)
    for name, where in state.assumed:
        if where == lost and name in pods:  # the server may take the bind, and the pod is gone with the node
            del pods[name]
            _replace(world, pods, name, state.now)
    nodes = tuple(one for one in state.nodes if one != place)
    return noted(world, state._replace(nodes=nodes).with_pods(pods))
