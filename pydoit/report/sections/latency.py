"""Latency: the spread of the timed calls, other extents, and for language models prompts, contexts and batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydoit.report.blocks import Block, Cell, Column, Facts, Figure, Reason, Section, Table
from pydoit.report.numbers import counted, milliseconds, percent, shortened, significant, size
from pydoit.report.plots import latency as plot
from pydoit.report.reading import amount, number, part, parts
from pydoit.report.status import status_text

CAPTION = "Dot: median; line: from the least to the 95th percentile."


def latency(report: Mapping[str, Any]) -> Section:
    """Facts, and a plot with a table for each set of cases."""
    profile = part(report, "profile")
    if not part(profile, "latency_ms"):
        return Section("latency", "Latency", [Reason(f"Nothing was measured: {status_text(report, 'profile')}.")])
    blocks: list[Block] = [Facts(_facts(profile))]
    prefill, decode, sweep = parts(profile.get("prefill")), parts(profile.get("decode")), parts(profile.get("sweep"))
    if prefill:
        blocks += _cases("Prefill", "tokens of the prompt", [(str(item.get("prompt")), item) for item in prefill])
    if decode:
        named = [(f"{item.get('sequences')} × {item.get('context')}", item) for item in decode]
        blocks += _cases("Decode", "sequences × tokens of context", named)
        blocks += _occupancy(named)
    together = [(str(item.get("clients")), item) for item in parts(profile.get("concurrency"))]
    if together:
        blocks += _cases("Concurrency", "clients that call at the same time", together)
    if sweep:
        named = [(_extents(item), item) for item in sweep]
        blocks += _cases("Other extents", "extents of the inputs", named)
    elif not prefill:
        blocks.append(Reason("No other extents were measured; [profile] shapes in the recipe names them."))
    return Section("latency", "Latency", blocks)


def _facts(profile: Mapping[str, Any]) -> list[tuple[str, str]]:
    spread = part(profile, "latency_ms")
    shown = [(name, milliseconds(spread.get(key))) for name, key in (
        ("median", "median"), ("95th percentile", "p95"), ("99th percentile", "p99"), ("least", "min"), ("mean", "mean"),
        ("largest", "max")) if key != "p99" or number(spread.get(key)) is not None]  # fmt: skip
    shown.append(("timed calls (n)", significant(spread.get("n"))))
    unit = "tokens/s" if parts(profile.get("decode")) else "calls/s"
    shown.append(("throughput", f"{significant(profile.get('throughput'))} {unit}"))
    for name, key in (("first call", "first_call_ms"), ("load", "load_ms")):
        if number(profile.get(key)) is not None:
            shown.append((name, milliseconds(profile[key])))
    for name, key in (("weights", "weight_bytes"), ("KV cache", "cache_bytes"), ("peak memory", "peak_memory_bytes")):
        if number(profile.get(key)) is not None:
            shown.append((name, size(profile[key])))
    if part(profile, "extents"):
        shown.append(("extents", _extents(profile)))
    shown.append(("device", f"{profile.get('device')}, {counted(int(amount(profile.get('threads'))), 'thread')}"))
    return shown


def _extents(item: Mapping[str, Any]) -> str:
    return shortened(", ".join(f"{name} {extent}" for name, extent in part(item, "extents").items()))


def _cases(title: str, axis: str, named: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Block]:
    cases = [_case(label, item) for label, item in named if number(part(item, "latency_ms").get("median")) is not None]
    drawn = plot.draw(title, cases, axis)
    figure: list[Block] = [Figure(title, drawn, CAPTION)] if drawn is not None else []
    columns = [Column(axis), *(Column(name, is_number=True) for name in ("median", "p95", "n", "per second"))]
    rows = [_row(label, item) for label, item in named]
    return [*figure, Table(f"{title}, by {axis}", columns, rows)]


def _occupancy(named: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Block]:
    """How much of the KV cache the cases held; older reports do not say."""
    told = [(label, part(item, "kv_cache")) for label, item in named if part(item, "kv_cache")]
    columns = [Column("sequences × tokens of context"), Column("held", is_number=True), Column("of it empty", is_number=True)]
    rows = [[Cell(label), Cell(percent(held.get("utilization"))), Cell(percent(held.get("fragmentation")))]
            for label, held in told]  # fmt: skip
    return [Table("KV cache at the end of each case", columns, rows)] if rows else []


def _case(label: str, item: Mapping[str, Any]) -> plot.Case:
    spread = part(item, "latency_ms")
    median = amount(spread.get("median"))
    least, p95 = number(spread.get("min")), number(spread.get("p95"))
    return plot.Case(label, median, median if least is None else least, median if p95 is None else p95)


def _row(label: str, item: Mapping[str, Any]) -> list[Cell]:
    spread = part(item, "latency_ms")
    rate = item.get("tokens_per_second", item.get("throughput"))
    unit = " tokens" if "tokens_per_second" in item else ""
    return [Cell(label), Cell(milliseconds(spread.get("median"))), Cell(milliseconds(spread.get("p95"))),
            Cell(significant(spread.get("n"))), Cell(f"{significant(rate)}{unit}")]  # fmt: skip
