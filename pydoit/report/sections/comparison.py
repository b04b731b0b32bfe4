"""Comparison: this build beside the previous one, the locked artifact, and other engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydoit.report.blocks import Block, Cell, Column, Figure, Reason, Section, Table
from pydoit.report.figures import FIGURES, figures_of
from pydoit.report.numbers import NONE, milliseconds, relative, shortened, signed, significant
from pydoit.report.plots import ratios
from pydoit.report.reading import number, part, parts

NO_PEERS = (
    'No measurements of other engines: name a file of them in modelbuild.toml, [report] peers = "FILE.json"; '
    "benchmarks/cpu.py --json writes such rows."
)

BESIDE = "This build beside earlier ones. Times were taken at different moments; `doit bench` measures two builds in turn."
RATIO = "Our latency divided by theirs, measured in turn in one run, with its 95 % interval. Left of 1 we are faster."


def comparison(report: Mapping[str, Any]) -> Section:
    """Tables beside the builds before, and a plot of the ratios to peers."""
    return Section("comparison", "Comparison", [*_builds(report), *_peers(report)])


def _builds(report: Mapping[str, Any]) -> list[Block]:
    now, previous, locked = figures_of(report), part(report, "previous"), part(report, "locked")
    others: list[tuple[str, Mapping[str, Any]]] = []
    if previous:
        others.append((f"previous ({str(previous.get('time') or '')[:16].replace('T', ' ')})", part(previous, "figures")))
    if locked and locked.get("is_current") is not True:
        others.append(("locked", part(locked, "figures")))
    blocks: list[Block] = []
    if others:
        columns = [Column("figure"), Column("this build", is_number=True)]
        columns += [Column(title, is_number=True) for name, _ in others for title in (name, "change")]
        rows = [row for name in FIGURES if (row := _row(name, now, [figures for _, figures in others])) is not None]
        blocks.append(Table(BESIDE, columns, rows))
    else:
        blocks.append(Reason("No earlier measurement of this recipe in this workspace."))
    if previous.get("changed"):
        blocks.append(Reason(f"The previous measurement was made because of: {shortened(previous['changed'], 300)}"))
    if locked.get("is_current") is True:
        blocks.append(Reason("This artifact is the one in modelbuild.lock."))
    elif not locked:
        blocks.append(
            Reason("No artifact of this recipe is locked; `doit lock` locks this one as the release to compare with.")
        )
    return blocks


def _row(name: str, now: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> list[Cell] | None:
    if number(now.get(name)) is None and all(number(figures.get(name)) is None for figures in others):
        return None
    figure = FIGURES[name]
    cells = [Cell(figure.label), Cell(figure.shown(now.get(name)))]
    for figures in others:
        change = relative(now.get(name), figures.get(name))
        tone = (
            "" if change is None or abs(change) <= figure.margin else "bad" if (change > 0) == figure.small_is_good else "good"
        )
        arrow = "" if change is None or not change else " ▲" if change > 0 else " ▼"
        cells += [Cell(figure.shown(figures.get(name))), Cell(f"{signed(change)}{arrow}" if change is not None else NONE, tone)]
    return cells


def _peers(report: Mapping[str, Any]) -> list[Block]:
    peers = [peer for peer in parts(report.get("peers")) if number(peer.get("ratio")) is not None]
    if not peers:
        return [Reason(NO_PEERS)]
    drawn = ratios.draw("Ratio to other engines", [_ratio(peer) for peer in peers])
    plot: list[Block] = []
    if drawn is not None:
        plot.append(Figure("Ratio to other engines", drawn, RATIO))
    numbers = [Column(title, is_number=True) for title in ("ours", "theirs", "ratio", "95 % interval")]
    columns = [Column("engine"), *numbers, Column("where and when")]
    return [*plot, Table("Other engines on the same model, inputs and threads", columns, [_peer(peer) for peer in peers])]


def _interval(peer: Mapping[str, Any]) -> tuple[float, float]:
    ends = peer.get("ci95")
    known = [number(end) for end in ends] if isinstance(ends, list) and len(ends) == 2 else []
    value = number(peer.get("ratio")) or 1.0
    low, high = known or (value, value)
    return (value if low is None else low), (value if high is None else high)


def _ratio(peer: Mapping[str, Any]) -> ratios.Ratio:
    low, high = _interval(peer)
    return ratios.Ratio(_engine(peer), number(peer["ratio"]) or 1.0, low, high)


def _engine(peer: Mapping[str, Any]) -> str:
    return shortened(" ".join(str(peer[key]) for key in ("peer", "version") if peer.get(key)), 60)


def _peer(peer: Mapping[str, Any]) -> list[Cell]:
    low, high = _interval(peer)
    style = "good" if high < 1 else "bad" if low > 1 else ""
    threads = f"{peer['threads']} threads" if peer.get("threads") else ""
    where = ", ".join(str(text) for text in (peer.get("device"), threads, peer.get("precision"), peer.get("date")) if text)
    return [
        Cell(_engine(peer)), Cell(milliseconds(peer.get("ours_ms"))), Cell(milliseconds(peer.get("peer_ms"))),
        Cell(significant(peer["ratio"]), style), Cell(f"{significant(low)} to {significant(high)}"), Cell(where, "quiet"),
    ]  # fmt: skip
