"""Stage times as bars: what was run now in full, what came from a cache hatched, with the time that it once took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from pydoit.report.numbers import counted, seconds
from pydoit.report.reading import amount
from pydoit.report.svg import across, element, figure, hint

ROW, LABELS = 26, 80
LONGEST = 0.62
"""Part of the width that the longest bar takes; its label stands behind it."""
CACHED = ("hit", "restored")
TOLD = {
    "built": "built",
    "hit": "from the cache",
    "restored": "from the shared cache",
    "deferred": "deferred",
    "failed": "failed",
    "skipped": "skipped",
}


def draw(stages: Sequence[Mapping[str, Any]]) -> Markup | None:
    """The plot; None without stages."""
    if not stages:
        return None
    longest = max(amount(stage.get("seconds")) for stage in stages) or 1.0
    names = [
        element("text", str(stage.get("name")), class_="tick", x=-LABELS, y=ROW * row + 18) for row, stage in enumerate(stages)
    ]
    bars = [mark for row, stage in enumerate(stages) for mark in _bar(stage, row, longest)]
    ran = [stage for stage in stages if stage.get("status") == "built"]
    text = f"{counted(len(ran), 'stage')} built in {seconds(sum(amount(stage.get('seconds')) for stage in ran))}."
    height = ROW * len(stages) + 4
    return figure("Stage times", text, height, [_hatching(), *names, *bars], LABELS)


def _bar(stage: Mapping[str, Any], row: int, longest: float) -> Iterator[Markup]:
    status, time = str(stage.get("status")), amount(stage.get("seconds"))
    told = f"{seconds(time)}, {TOLD.get(status, status)}" if time or status == "built" else TOLD.get(status, status)
    kind = "cached" if status in CACHED else status if status in TOLD else "other"
    length = LONGEST * time / longest
    yield element("rect", hint(f"{stage.get('name')}: {told}"), class_=f"bar {kind}", x="0", y=ROW * row + 5,
                  width=across(max(length, 0.004)), height=ROW - 9)  # fmt: skip
    short = seconds(time) if time or status == "built" else told
    for text, width in ((told, "wide"), (short, "narrow")):
        yield element("text", text, class_=f"bar-label {width}", x=across(length), dx=8, y=ROW * row + 18)


def _hatching() -> Markup:
    """Lines across, so that the cache is not told by colour alone."""
    lines = element("path", d="M0 6L6 0M-1 1L1 -1M5 7L7 5", class_="hatch")
    return element("defs", element("pattern", lines, id="hatching", width=6, height=6, patternUnits="userSpaceOnUse"))
