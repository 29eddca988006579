"""A result as people like to read it: what ran, who holds what, who was evicted for whom, and who waits for what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kbatch.api import conditions
from kbatch.resources import CPU, Resources, format_quantity, parse_quantity
from kbatch.simulator.result import GroupResult, Result
from kbatch.times import SECOND

_MOST_ROWS: Final = 25
_COLUMNS: Final = 50
_BARS: Final = " ▁▂▃▄▅▆▇█"
_OVER: Final = frozenset({"Completed", "Failed"})


def print_report(result: Result, console: Console) -> None:
    """Print the report."""
    _headline(result, console)
    _queues(result, console)
    _timeline(result, console)
    _groups(result.groups, console)
    _stands(result.groups, console)
    _evictions(result, console)
    _waiting(result.groups, console)
    _check(result, console)


def _headline(result: Result, console: Console) -> None:
    phases = Counter(pod.phase for pod in result.pods.values())
    pods = ", ".join(f"{count} {phase}" for phase, count in sorted(phases.items())) or "none"
    groups = Counter(group.phase for group in result.groups.values() if not group.shadow)
    binds = sum(len(cycle.binds) for cycle in result.cycles)
    evictions = sum(len(cycle.evictions) for cycle in result.cycles)
    console.print(Text.assemble(("Pods", "bold"), f"        {pods}"))
    if groups:
        named = ", ".join(f"{count} {phase}" for phase, count in sorted(groups.items()))
        console.print(Text.assemble(("PodGroups", "bold"), f"   {named}"))
    console.print(
        Text.assemble(
            ("Decisions", "bold"),
            f"   {_count(binds, 'bind')}, {_count(evictions, 'eviction')} in {_count(result.cycle_count, 'cycle')}",
        )
    )
    console.print(
        Text.assemble(
            ("Time", "bold"),
            f"        last event at {_seconds(result.makespan)}, pods waited {_seconds(result.mean_wait)} on average",
        )
    )
    console.print(Text.assemble(("Nodes", "bold"), f"       {_packing(result)}"))
    if result.limited:
        console.print(Text("The run was cut off by the limit on cycles; this is how far it came.", style="bold red"))


def _packing(result: Result) -> str:
    """How many nodes were in use, and what of the idle room those that waited could not use."""
    parts = [f"{part:.0%} of idle {name}" for name, part in result.fragmentation.items()]
    told = f"; unusable for waiting pods: {', '.join(parts)}" if parts else ""
    return f"{result.nodes_opened} in use at some time{told}"


def _queues(result: Result, console: Console) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold", title_justify="left")
    left = {"Queue", "On average", "Deserved at the end", "Allocated"}
    for name in ("Queue", "Weight", "On average", "Deserved at the end", "Allocated", "Bound", "Mean wait", "Longest"):
        table.add_column(name, justify="left" if name in left else "right")
    for name, queue in result.queues.items():
        waits = queue.waits
        if queue.assumed and not waits and not any(queue.deserved.values()) and not any(queue.mean.values()):
            continue
        table.add_row(
            name,
            str(queue.weight),
            _amounts(queue.mean),
            _amounts(queue.deserved),
            _amounts(queue.allocated),
            str(len(waits)),
            _seconds(sum(waits) / len(waits)) if waits else "-",
            _seconds(max(waits)) if waits else "-",
        )
    if not table.row_count:
        return
    console.print()
    console.print(table)


def _timeline(result: Result, console: Console) -> None:
    """One line of bars for each resource: how much of the capacity was in use, from the start to the last event."""
    if not result.utilisation:
        return
    console.print()
    span = f"0 s to {_seconds(result.makespan)}" if result.makespan else "at 0 s"
    console.print(Text(f"Utilisation, {span}", style="bold"))
    width = max(len(name) for name in result.utilisation)
    for name, mean in result.utilisation.items():
        bars = "".join(_BARS[_level(share)] for share in _shares(result, name))
        # Without styles and markup: the bars are text like any other.
        console.print(f"  {name:<{width}}  |{bars}|  {mean:.0%}", markup=False, highlight=False)


def _shares(result: Result, resource: str) -> Iterable[float]:
    """Mean use of each column's stretch of time."""
    end, steps = result.makespan, result.uses
    if not end:
        use = steps[-1]
        yield use.allocated.get(resource, 0) / max(1, use.capacity.get(resource, 0))
        return
    edges = [end * column / _COLUMNS for column in range(_COLUMNS + 1)]
    index = 0
    for begin, until in pairwise(edges):
        held = 0.0
        while index + 1 < len(steps) and steps[index + 1].time <= begin:
            index += 1
        at = index
        while at < len(steps) and steps[at].time < until:
            stop = min(until, steps[at + 1].time if at + 1 < len(steps) else until)
            share = steps[at].allocated.get(resource, 0) / max(1, steps[at].capacity.get(resource, 0))
            held += share * (stop - max(begin, steps[at].time))
            at += 1
        yield held / (until - begin)


def _level(share: float) -> int:
    top = len(_BARS) - 1
    return 0 if share <= 0 else max(1, min(top, round(share * top)))


def _groups(groups: Mapping[str, GroupResult], console: Console) -> None:
    """When each PodGroup came, and when it started."""
    rows = [(name, group) for name, group in groups.items() if not group.shadow]
    if not rows:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("PodGroup", "Queue", "Phase"):
        table.add_column(name)
    for name in ("Came at", "Started at", "Waited"):
        table.add_column(name, justify="right")
    for name, group in rows[:_MOST_ROWS]:
        came, started = group.arrival or 0, group.started
        times = ("-", "-") if started is None else (_seconds(started), _seconds(started - came))
        table.add_row(name, group.queue, group.phase, _seconds(came), *times)
    console.print()
    console.print(table)
    _more(len(rows), console)


def _stands(groups: Mapping[str, GroupResult], console: Console) -> None:
    """Where the groups that ask to stand together stand, and their roles."""
    rows = [(name, stand) for name, group in groups.items() for stand in group.stands]
    if not rows:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("PodGroup", "Role", "Stands in"):
        table.add_column(name)
    for name in ("Hops", "Pods"):
        table.add_column(name, justify="right")
    for name, stand in rows[:_MOST_ROWS]:
        where = stand.domain if stand.level == stand.domain else f"{stand.level} {stand.domain}"
        table.add_row(name, stand.role or "(all)", where, str(stand.hops), str(stand.pods))
    console.print()
    console.print(table)
    _more(len(rows), console)


def _evictions(result: Result, console: Console) -> None:
    rows = [(cycle.time, eviction) for cycle in result.cycles for eviction in cycle.evictions]
    if not rows:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Evicted at", justify="right")
    for name in ("Pod", "By", "For"):
        table.add_column(name)
    for time, eviction in rows[:_MOST_ROWS]:
        table.add_row(_seconds(time), eviction.pod, eviction.action, eviction.beneficiary or "-")
    console.print()
    console.print(table)
    _more(len(rows), console)


def _waiting(groups: Mapping[str, GroupResult], console: Console) -> None:
    """Every group that waits, with its one reason."""
    rows = [
        (name, group, condition)
        for name, group in groups.items()
        if group.phase not in _OVER
        and (condition := conditions.find(group.conditions, conditions.SCHEDULED)) is not None
        and condition.status != conditions.TRUE
    ]
    if not rows:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("Waiting", "Queue", "Phase", "Reason", "Message"):
        table.add_column(name, overflow="fold")
    for name, group, condition in rows[:_MOST_ROWS]:
        table.add_row(name, group.queue, group.phase, condition.reason, condition.message)
    console.print()
    console.print(table)
    _more(len(rows), console)


def _check(result: Result, console: Console) -> None:
    """What came of the check of backfilled jobs, if it was made."""
    check = result.check
    if check is None:
        return
    console.print()
    text = f"Planned starts: {check.planned}; others were backfilled beside {check.beside} of them"
    console.print(f"{text}, and delayed {len(check.delays) or 'none'}.", highlight=False)
    for delay in check.delays[:_MOST_ROWS]:
        console.print(f"  {delay.text}", highlight=False)
    _more(len(check.delays), console)


def _more(rows: int, console: Console) -> None:
    if rows > _MOST_ROWS:
        console.print(f"... and {rows - _MOST_ROWS} more; all of them with -o json", highlight=False)


def _amounts(amounts: Resources) -> str:
    """Amounts for people: to three digits where they are not round, and nothing of what there is nothing of."""
    return ", ".join(f"{name} {_amount(name, amount)}" for name, amount in sorted(amounts.items()) if amount) or "-"


def _amount(resource: str, amount: int) -> str:
    exact = format_quantity(resource, amount)
    if len(exact) <= 5:
        return exact
    if resource == CPU:
        return f"{amount / 1000:.3g}"
    for unit in ("Ti", "Gi", "Mi", "Ki"):
        size = parse_quantity(resource, f"1{unit}")
        if amount >= size:
            return f"{amount / size:.3g}{unit}"
    return exact


def _seconds(microseconds: float) -> str:
    text = f"{microseconds / SECOND:.1f}"
    return f"{text.removesuffix('.0')} s"


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
