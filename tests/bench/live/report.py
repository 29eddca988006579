"""Figures for people: lines of a table, a page of Markdown, a picture."""

from __future__ import annotations

import datetime as dt
import json

from tests.bench.live.limits import Check
from tests.bench.live.plane import ROOT
from tests.bench.live.rows import EFFICIENT_MODES, Figure

KEPT = ROOT / "docs" / "benchmarks"


def number(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def cells(figure: Figure) -> list[str]:
    return [
        str(figure.nodes), figure.scheduler, figure.shape, figure.mode, str(figure.bound),
        number(figure.binds_per_second, 0), number(figure.efficiency), number(figure.wait_p50), number(figure.wait_p99),
        number(figure.first_bind), number(figure.cpu_per_1000), number(figure.cpu_servers), number(figure.resident, 0),
        number(figure.load, 1),
    ]  # fmt: skip


HEAD = ["nodes", "scheduler", "load", "mode", "bound", "binds/s", "efficiency", "p50 s", "p99 s", "first bind s",
        "CPU s / 1,000", "servers' CPU s / 1,000", "MiB", "machine's load"]  # fmt: skip


def table_row(figure: Figure) -> str:
    widths = [5, 21, 12, 9, 6, 6, 6, 7, 7, 7, 6, 6, 6, 5]
    text = " ".join(cell.rjust(width) for cell, width in zip(cells(figure), widths, strict=True))
    return f"{text}  {remark(figure)}"


def remark(figure: Figure) -> str:
    """What else is to be said of a row, in a few words."""
    beside = f"beside it {figure.cpu_beside:.2f} CPU s / 1,000" if figure.cpu_beside is not None else ""
    failed = f"FAILED: {figure.failed.splitlines()[0][:200]}" if figure.failed else ""
    return "; ".join(part for part in (figure.note, beside, failed) if part)


def keep(figures: list[Figure], checks: list[Check]) -> None:
    """Write live.jsonl, live.md and live.svg into docs/benchmarks."""
    from tests.bench.__main__ import machine

    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / "live.jsonl").write_text("".join(json.dumps(figure.json()) + "\n" for figure in figures), "utf-8")
    day = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC")
    lines = ["# Binds on a real API server", "", f"{day}, {machine()}. The method: [benchmarks](../benchmarks.md).", ""]
    lines += ["| " + " | ".join(HEAD) + " | note |", "|" + "---|" * (len(HEAD) + 1)]
    lines += ["| " + " | ".join(cells(figure)) + f" | {remark(figure)} |" for figure in figures]
    lines += ["", "## Limits", "", *(f"- {check.line}" for check in checks), ""]
    lines += ["## Requests to the API server, by everybody, during a row", ""]
    for figure in figures:
        busy = sorted(figure.requests.items(), key=lambda item: -item[1])[:10]
        what = ", ".join(f"{name} {count}" for name, count in busy)
        lines.append(f"- {figure.nodes} nodes, {figure.scheduler}, {figure.shape}, {figure.mode}: {what}")
    lines += ["", "![Binds per second of each row against the bare loops, and waits](live.svg)", ""]
    (KEPT / "live.md").write_text("\n".join(lines), "utf-8")
    draw(figures)


def draw(figures: list[Figure]) -> None:
    """Above, bars of binds per second with the bare loops as lines; below, how long pods waited in the live rows."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "kbatch"
    from matplotlib import pyplot as plt

    sizes = sorted({figure.nodes for figure in figures})
    drawing, panels = plt.subplots(
        2, len(sizes), figsize=(6.5 * len(sizes), 8.5), sharex="row", squeeze=False, height_ratios=[3, 2]
    )
    for (rates, waits), nodes in zip(zip(*panels, strict=True), sizes, strict=True):
        of_size = [figure for figure in figures if figure.nodes == nodes and figure.scheduler != "bare loop"]
        bars = [figure for figure in of_size if figure.mode in EFFICIENT_MODES and figure.binds_per_second]
        rates.barh(names(bars), [figure.binds_per_second or 0.0 for figure in bars], color=colours(bars))
        for figure in figures:
            if figure.scheduler == "bare loop" and figure.nodes == nodes and figure.binds_per_second:
                rates.axvline(figure.binds_per_second, color="tab:orange", linestyle="--", linewidth=0.8)
        rates.set_title(f"{nodes} nodes (dashed: the bare loops)", fontsize=10)
        rates.set_xlabel("binds/s")
        waited = [figure for figure in of_size if figure.wait_p99 is not None]
        waits.barh(names(waited), [figure.wait_p99 or 0.0 for figure in waited], color="lightgray")
        waits.barh(names(waited), [figure.wait_p50 or 0.0 for figure in waited], color=colours(waited), height=0.5)
        waits.set_xlabel("seconds from a pod's creation to its bind: half of the pods (dark), 99 of 100 (light)")
        for panel in (rates, waits):
            panel.invert_yaxis()
            panel.tick_params(labelsize=7)
    drawing.tight_layout()
    drawing.savefig(KEPT / "live.svg", metadata={"Date": None})
    plt.close(drawing)


def names(figures: list[Figure]) -> list[str]:
    """The rows' names as labels."""
    return [f"{figure.scheduler}\n{figure.shape}, {figure.mode}" for figure in figures]


def colours(figures: list[Figure]) -> list[str]:
    """One colour for kbatch, one for the others."""
    return ["tab:blue" if figure.scheduler.startswith("kbatch") else "tab:gray" for figure in figures]
