"""A picture of a run as SVG: utilisation, the lengths of the queues, and what each queue held, over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from xml.sax.saxutils import escape

from kbatch.simulator.traces.jobs import DIMENSIONS
from kbatch.simulator.traces.result import TraceResult
from kbatch.times import SECOND

MOST_QUEUES: Final = 8
"""Queues with a line of their own, those that held the most; the others are drawn as one."""
_COLOURS: Final = (
    "#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#17becf", "#7f7f7f",
)  # fmt: skip
_WIDTH, _HEIGHT = 960, 180
_LEFT, _TOP, _GAP, _RIGHT = 64, 28, 46, 16
_UNITS: Final = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def draw(result: TraceResult) -> str:
    """The picture as text. The run must have kept its slices of time."""
    slices = result.usage.slices
    rows = slices.means(result.last) if slices is not None else []
    begin = slices.begin if slices is not None else 0
    names = list(result.usage.names)
    capacity = result.usage.capacity or 1
    used = [value / capacity for value in rows[0]] if rows else []
    held = [[value / capacity for value in row] for row in rows[1 : 1 + len(names)]]
    lines = _few(names, held, [sum(row) for row in held])
    waiting = _few(names, rows[1 + len(names) :], [sum(row) for row in held])
    step = slices.length if slices is not None else 1
    resource = DIMENSIONS[result.usage.dimension]
    panels = (
        _panel(0, f"utilisation ({resource})", [("all", used)], 1.0, (begin, step, result.last)),
        _panel(1, "jobs that wait", waiting, None, (begin, step, result.last)),
        _panel(2, f"part of the cluster held ({resource})", lines, 1.0, (begin, step, result.last)),
    )
    width = _LEFT + _WIDTH + _RIGHT
    height = 3 * (_TOP + _HEIGHT + _GAP)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        ' font-family="sans-serif" font-size="12" fill="#222">'
    )
    return "\n".join(
        (
            head,
            f'<rect width="{width}" height="{height}" fill="#fff"/>',
            *panels,
            "</svg>\n",
        )
    )


def _few(names: Sequence[str], rows: Sequence[list[float]], sizes: Sequence[float]) -> list[tuple[str, list[float]]]:
    """A row for each of the largest queues, the others added up."""
    ranked = sorted(range(len(rows)), key=lambda at: (-sizes[at], names[at]))
    found = [(names[at], rows[at]) for at in sorted(ranked[:MOST_QUEUES])]
    if others := ranked[MOST_QUEUES:]:
        found.append(
            (f"{len(others)} others", [sum(values) for values in zip(*(rows[at] for at in others), strict=True)])
        )
    return found


def _panel(
    place: int, title: str, lines: Sequence[tuple[str, list[float]]], top: float | None, time: tuple[int, int, int]
) -> str:
    """One diagram: lines of values by slice of time, from 0 to `top` (None: the largest value)."""
    begin, step, last = time
    y = place * (_TOP + _HEIGHT + _GAP) + _TOP
    highest = top or max((value for _, row in lines for value in row), default=0) or 1
    span = max(last - begin, 1)
    size, unit = next(((size, unit) for size, unit in _UNITS if span >= 4 * size * SECOND), _UNITS[-1])
    parts = [f'<text x="{_LEFT}" y="{y - 10}" font-weight="bold">{escape(title)}</text>']
    for quarter in range(5):
        at = y + _HEIGHT * (1 - quarter / 4)
        parts.append(f'<path d="M{_LEFT} {at:g}h{_WIDTH}" stroke="#ddd"/>')
        label = f"{quarter * 25} %" if top else f"{highest * quarter / 4:.3g}"
        parts.append(f'<text x="{_LEFT - 6}" y="{at + 4:g}" text-anchor="end">{label}</text>')
    for quarter in range(5):
        when = (begin + span * quarter / 4) / SECOND / size
        x = _LEFT + _WIDTH * quarter / 4
        parts.append(f'<text x="{x:g}" y="{y + _HEIGHT + 16}" text-anchor="middle">{when:.3g} {unit}</text>')
    legend = _LEFT + _WIDTH
    for (name, row), colour in reversed(list(zip(lines, _COLOURS, strict=False))):
        path = _path(row, y, highest, step, span)
        parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.3"/>')
        if len(lines) > 1:
            parts.append(f'<text x="{legend}" y="{y - 10}" text-anchor="end" fill="{colour}">{escape(name)}</text>')
            legend -= 14 + 7 * len(name)
    return "\n".join(parts)


def _path(row: Sequence[float], y: int, highest: float, step: int, span: int) -> str:
    """A line of steps."""
    parts: list[str] = []
    for at, value in enumerate(row):
        begin, end = (_LEFT + _WIDTH * min(edge * step, span) / span for edge in (at, at + 1))
        height = y + _HEIGHT * (1 - min(value / highest, 1))
        parts.append(f"{'L' if parts else 'M'}{begin:.1f} {height:.1f}H{end:.1f}")
    return "".join(parts)
