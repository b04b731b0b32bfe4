"""Kernels: where the time of a call goes, and how far each kernel is from what the machine allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydoit.report.blocks import Block, Cell, Column, Facts, Figure, Folded, Reason, Section, Table
from pydoit.report.numbers import counted, milliseconds, percent, scaled, shortened, significant, size
from pydoit.report.plots import roofline, timeline, treemap
from pydoit.report.reading import amount, number, part, parts
from pydoit.report.status import status_text

BOUNDS = [("compute", "bound by arithmetic"), ("memory square", "bound by memory"), ("launch diamond", "bound by its launch"),
          ("other", "not known")]  # fmt: skip
MOST_LEFT_OUT = 0.8
"""Share of the time without which a roofline says nothing of the model."""
SHOWN = 15
"""Kernels that stand on the page unfolded."""


def kernels(report: Mapping[str, Any]) -> Section:
    """Treemap, roofline, one call as a band, and the table."""
    profile = part(report, "profile")
    listed = sorted(parts(profile.get("kernels")), key=lambda kernel: -amount(kernel.get("ms")))
    if not listed:
        reason = (
            "This profile has no times of kernels." if profile else f"Nothing was measured: {status_text(report, 'profile')}."
        )
        return Section("kernels", "Kernels", [Reason(reason)])
    blocks = [*_treemap(listed), *_roofline(listed, part(profile, "ceilings")), *_timeline(profile, listed)]
    return Section("kernels", "Kernels", [*blocks, *_tables(listed)])


def _treemap(listed: Sequence[Mapping[str, Any]]) -> list[Block]:
    drawn = treemap.draw(listed)
    if drawn is None:
        return []
    caption = "Each area is a kernel's share of the kernels' time in one call."
    return [Figure("Time by kernel", drawn, caption, _legend(listed))]


def _legend(listed: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    present = {str(kernel.get("bound") or "other") for kernel in listed}
    legend = [(kind, text) for kind, text in BOUNDS if kind.split()[0] in present]
    return legend if len(present) > 1 or "other" not in present else []


def _roofline(listed: Sequence[Mapping[str, Any]], ceilings: Mapping[str, Any]) -> list[Block]:
    drawn = roofline.draw(listed, ceilings)
    if drawn is None:
        return [Reason("No roofline: the kernels' operations and bytes are not in this report.")]
    count, share = roofline.left_out(listed)
    if share > MOST_LEFT_OUT:
        return [Reason(f"No roofline: of {percent(share)} of the kernels' time no operations are counted.")]
    caption = (
        "Each mark is a kernel, its area the share of the time, numbers are ranks. Lines are what this machine can reach. "
        "The nearer a mark is to the lines above it, the less there is to gain."
    )
    if count:
        caption += (
            f" Not shown: {counted(count, 'kernel')} without counted operations or too short ({percent(share)} of the time)."
        )
    blocks: list[Block] = [Figure("Roofline", drawn, caption, _legend(listed), _short(roofline.key(listed)))]
    return [*blocks, Facts(_ceilings(ceilings))] if ceilings else [*blocks, Reason("The machine's ceilings were not measured.")]


def _short(key: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    return [(rank, shortened(name, 60)) for rank, name in key]


def _ceilings(ceilings: Mapping[str, Any]) -> list[tuple[str, str]]:
    shown = [(f"peak, {roof.label}", scaled(roof.rate, "flop/s")) for roof in roofline.compute_roofs(ceilings)]
    shown += [(f"reads, {roof.label}", scaled(roof.rate, "B/s")) for roof in roofline.memory_roofs(ceilings)]
    if number(ceilings.get("copy")) is not None:
        shown.append(("copies", scaled(ceilings["copy"], "B/s")))
    if number(ceilings.get("call_seconds")) is not None:
        shown.append(("an empty call", milliseconds(amount(ceilings["call_seconds"]) * 1000)))
    return shown


def _timeline(profile: Mapping[str, Any], listed: Sequence[Mapping[str, Any]]) -> list[Block]:
    drawn = timeline.draw(parts(profile.get("timeline")), listed)
    if drawn is None:
        return [Reason("No timeline was traced.")]
    trace = part(profile, "trace")
    caption = "Kernels of one traced call in their order; numbers are ranks. Gaps are time of the host. "
    if trace:
        caption += (
            f"Medians: {milliseconds(trace.get('plain_ms'))} untraced, {milliseconds(trace.get('traced_ms'))} traced, of which "
            f"{milliseconds(trace.get('kernels_ms'))} in kernels and {milliseconds(trace.get('gaps_ms'))} between them. "
        )
    return [Figure("One call of the model", drawn, f"{caption}`doit report --format trace` writes it for Perfetto.")]


def _tables(listed: Sequence[Mapping[str, Any]]) -> list[Block]:
    columns = [Column("kernel"), *(Column(title, is_number=True) for title in (
        "rank", "time", "share", "calls", "reached", "flop/B", "moved", "could save", "speed-up"))]  # fmt: skip
    columns.insert(4, Column("bound by"))
    largest = amount(listed[0].get("share")) or 1.0
    rows = [_row(rank, kernel, largest) for rank, kernel in enumerate(listed, start=1)]
    note = "Kernels by time; `could save` is the time beyond the bound, `speed-up` that of all threads over one"
    first = Table(note, columns, rows[:SHOWN])
    if len(rows) <= SHOWN:
        return [first]
    return [
        first,
        Folded(f"All {counted(len(rows), 'kernel')}", [Table("All kernels of one call", columns, rows, is_long=True)]),
    ]


def _row(rank: int, kernel: Mapping[str, Any], largest: float) -> list[Cell]:
    ms, flops, share = number(kernel.get("ms")), number(kernel.get("flops")), number(kernel.get("share"))
    rate = flops / ms * 1e3 if flops and ms else None
    saved, calls = number(kernel.get("headroom_ms")), number(kernel.get("calls"))
    intensity, moved, speedup = (number(kernel.get(key)) for key in ("intensity", "bytes", "speedup"))
    return [
        Cell(shortened(kernel.get("name")), "code"), Cell(str(rank), value=rank), Cell(milliseconds(ms), value=ms),
        Cell(percent(share), value=share, share=min(amount(share) / largest, 1.0)), Cell(str(kernel.get("bound") or "–")),
        Cell(significant(calls), value=calls), Cell(scaled(rate, "flop/s"), value=rate),
        Cell(significant(intensity or None), value=intensity), Cell(size(moved), value=moved),
        Cell(milliseconds(saved), value=saved),
        Cell(f"{significant(speedup)}×" if speedup is not None else "–", value=speedup),
    ]  # fmt: skip
