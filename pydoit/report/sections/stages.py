"""Stages: how long each took, what came from a cache, and why what ran had to run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydoit.report.blocks import Block, Cell, Column, Figure, Reason, Section, Table
from pydoit.report.numbers import seconds, shortened
from pydoit.report.plots import stages as plot
from pydoit.report.reading import number, parts

SIGNS = {"built": "● built", "hit": "○ hit", "restored": "○ restored", "deferred": "◐ deferred", "failed": "✗ failed",
         "skipped": "✗ skipped"}  # fmt: skip
TONES = {"failed": "bad", "skipped": "bad", "hit": "quiet", "restored": "quiet"}


def stages(report: Mapping[str, Any]) -> Section:
    """Bars, and a table with keys and reasons."""
    listed = parts(report.get("stages"))
    drawn = plot.draw(listed)
    if drawn is None:
        return Section("stages", "Stages", [Reason("No stage has run.")])
    caption = (
        "Wall time of each stage. Solid: it ran in this build; hatched: it came from a cache, with the time that it once took."
    )
    legend = [("bar built", "built"), ("bar cached", "from a cache"), ("bar failed", "failed")]
    columns = [Column("stage"), Column("status"), Column("time", is_number=True), Column("key"), Column("reason")]
    rows = [_row(stage) for stage in listed]
    blocks: list[Block] = [
        Figure("Stage times", drawn, caption, legend),
        Table("Stages of the last build, their action keys and why they ran", columns, rows),
    ]
    return Section("stages", "Stages and cache", blocks)


def _row(stage: Mapping[str, Any]) -> list[Cell]:
    status = str(stage.get("status"))
    return [
        Cell(str(stage.get("name"))),
        Cell(SIGNS.get(status, status), TONES.get(status, "")),
        Cell(seconds(stage.get("seconds")), value=number(stage.get("seconds"))),
        Cell(str(stage.get("key") or "")[:12], "code"),
        Cell(shortened(stage.get("reason") or "", 300), "quiet"),
    ]
