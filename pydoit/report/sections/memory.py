"""Memory: intermediate results over a call, what the plan gives them, and the least that they could need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydoit.report.blocks import Block, Cell, Column, Facts, Figure, Folded, Reason, Section, Table
from pydoit.report.numbers import counted, percent, relative, shortened, signed, size
from pydoit.report.plots import memory as plot
from pydoit.report.reading import amount, number, part

SHOWN = 12


def memory(report: Mapping[str, Any]) -> Section:
    """Facts, the plot, the largest tensors."""
    found = _figures(report)
    blocks: list[Block] = [Facts(facts)] if (facts := _facts(found, report)) else []
    drawn = plot.draw(found)
    if drawn is None:
        return Section("memory", "Memory", [*blocks, Reason("No timeline: the lives of the tensors are not in this report.")])
    caption = (
        "Rectangles are intermediate results: as long as they live, as high as they are large, packed from below. "
        "The thick line is what is alive at each step. Dashed: what is planned; dotted: the least possible."
    )
    legend = [("tensor", "a tensor"), ("live-sample", "alive"), ("planned-sample", "planned"), ("least-sample", "lower bound")]
    tensors = sorted(plot.tensors_of(found), key=lambda tensor: -tensor.bytes)
    columns = [Column("tensor"), Column("size", is_number=True), Column("born at step", is_number=True),
               Column("last read at", is_number=True)]  # fmt: skip
    rows = [
        [Cell(shortened(tensor.name), "code"), Cell(size(tensor.bytes), value=tensor.bytes),
         Cell(str(tensor.born), value=tensor.born), Cell(str(tensor.dies), value=tensor.dies)]
        for tensor in tensors[:SHOWN]
    ]  # fmt: skip
    largest = Folded(
        f"The largest of {counted(len(tensors), 'tensor')}", [Table("Largest intermediate results", columns, rows)]
    )
    return Section("memory", "Memory", [*blocks, Figure("Memory of a call", drawn, caption, legend), largest])


def _figures(report: Mapping[str, Any]) -> Mapping[str, Any]:
    """Those of the profile, else what the compile stage planned."""
    profiled = part(report, "profile", "memory")
    if profiled:
        return profiled
    compiled = part(report, "measurements", "compile")
    return {name: part(compiled, name).get("main") for name in ("planned_bytes", "live_bytes")}


def _facts(found: Mapping[str, Any], report: Mapping[str, Any]) -> list[tuple[str, str]]:
    planned, least, plain = (number(found.get(key)) for key in ("planned_bytes", "live_bytes", "intermediate_bytes"))
    shown = []
    if planned is not None:
        above = relative(planned, least) or 0.0
        shown.append(("planned for intermediates", size(planned) + (f" ({signed(above)} to the bound)" if above > 0 else "")))
    if least is not None:
        shown.append(("lower bound", size(least)))
    if plain is not None:
        saved = f" (reuse saves {percent(1 - amount(planned) / plain)})" if plain and planned is not None else ""
        shown.append(("without reuse", f"{size(plain)}{saved}"))
    peak = number(part(report, "profile").get("peak_memory_bytes"))
    if peak is not None:
        shown.append(("peak of the process", size(peak)))
    return shown
