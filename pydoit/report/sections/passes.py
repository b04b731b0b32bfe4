"""Passes: what each changed in the module, and what it cost to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydoit.report.blocks import Block, Cell, Column, Figure, Reason, Section, Table
from pydoit.report.numbers import milliseconds, scaled, seconds, shortened, significant, size
from pydoit.report.plots import passes as plot
from pydoit.report.reading import number, part, parts
from pydoit.report.status import status_text

LEGEND = [("kernels-sample", "kernels"), ("moved-sample", "bytes moved"), ("live-memory-sample", "live memory")]
CHANGES = (
    ("kernels", "kernels", "count"),
    ("moved_bytes", "moved", "B"),
    ("live_bytes", "live", "B"),
    ("flops", "operations", ""),
)


def passes(report: Mapping[str, Any]) -> Section:
    """Plot and table of the pass log."""
    optimize = part(report, "measurements", "optimize")
    log = parts(optimize.get("passes"))
    if not log:
        reason = "passes.instrument is off" if optimize else status_text(report, "optimize")
        return Section("passes", "Passes", [Reason(f"No pass log in this report: {reason}.")])
    times = optimize.get("pass_seconds")
    measured = [number(value) for value in times] if isinstance(times, list) and len(times) == len(log) else [None] * len(log)
    longest = max((time or 0.0 for time in measured), default=0.0) or 1.0
    columns = [Column("pass"), Column("no.", is_number=True), Column("changed"), Column("what it changed"),
               Column("cost", is_number=True), Column("kernels", is_number=True), Column("moved", is_number=True)]  # fmt: skip
    rows = [_row(number_, item, before, time, longest) for number_, (item, before, time) in enumerate(
        zip(log, [None, *log], measured, strict=False), start=1)]  # fmt: skip
    blocks: list[Block] = []
    drawn = plot.draw(log)
    if drawn is not None:
        caption = "Kernels, bytes that they move and live memory after each pass, beside what the first pass left."
        blocks.append(Figure("Module after each pass", drawn, caption, LEGEND))
    total = sum(time or 0.0 for time in measured)
    caption = f"The passes in their order, what each changed and what it cost ({seconds(total)} in all)"
    return Section("passes", "Passes", [*blocks, Table(caption, columns, rows)])


def _row(
    place: int, item: Mapping[str, Any], before: Mapping[str, Any] | None, time: float | None, longest: float
) -> list[Cell]:
    figures = part(item, "figures")
    changed = item.get("changed") is True
    what = _changes(part(before, "figures"), figures) if changed else []
    told = ", ".join(what) or ("other than in these figures" if changed else "")
    repeats = item.get("iterations")
    often = f" ({repeats} times)" if isinstance(repeats, int) and repeats > 1 else ""
    options = ", ".join(f"{name} = {value}" for name, value in part(item, "options").items())
    name = f"{item.get('name')}{f' ({options})' if options else ''}"
    verdict = Cell(f"● yes{often}") if changed else Cell("○ no", "quiet")
    return [
        Cell(shortened(name), "code"), Cell(str(place)), verdict, Cell(told),
        Cell(milliseconds(None if time is None else time * 1000), share=(time or 0.0) / longest),
        Cell(significant(figures.get("kernels"))), Cell(size(figures.get("moved_bytes"))),
    ]  # fmt: skip


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Sequence[str]:
    found = []
    for key, label, unit in CHANGES:
        old, new = number(before.get(key)), number(after.get(key))
        if old is not None and new is not None and old != new:
            shown = [f"{value:,.0f}" if unit == "count" else scaled(value, unit) for value in (old, new)]
            if shown[0] != shown[1]:
                found.append(f"{label} {shown[0]} → {shown[1]}")
    return found
