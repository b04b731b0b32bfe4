"""Ratios with their intervals, each on a line of its own, beside the line at 1 (a forest plot)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from pydoit.report.numbers import shortened, significant
from pydoit.report.svg import Scale, across, element, figure, hint

ROW, TOP = 34, 20
LABELS = 0.34
"""Part of the width that names take."""


@dataclass(frozen=True)
class Ratio:
    """One comparison; below 1 ours is faster."""

    label: str
    value: float
    low: float
    high: float


def draw(name: str, ratios: Sequence[Ratio]) -> Markup | None:
    """The plot; None where there is nothing to compare."""
    if not ratios:
        return None
    low, high = min(1.0, *(ratio.low for ratio in ratios)), max(1.0, *(ratio.high for ratio in ratios))
    x = Scale(low / 1.3, high * 1.3, is_log=True)
    height = TOP + ROW * len(ratios) + 30
    one = across(_at(x, 1.0))
    drawn = [
        element("line", class_="one", x1=one, x2=one, y1=TOP - 4, y2=height - 26),
        element("text", "ours is faster", class_="tick", x=one, dx=-8, y=height - 8, text_anchor="end"),
        element("text", "slower", class_="tick", x=one, dx=8, y=height - 8),
        *(mark for row, ratio in enumerate(ratios) for mark in _ratio(ratio, row, x)),
    ]
    text = "; ".join(f"{shortened(ratio.label, 40)}: {significant(ratio.value)}" for ratio in ratios)
    return figure(name, text, height, drawn)


def _ratio(ratio: Ratio, row: int, x: Scale) -> Iterator[Markup]:
    y = TOP + ROW * row + ROW / 2
    kind = "good" if ratio.high < 1 else "bad" if ratio.low > 1 else "even"
    told = f"{ratio.label}: {significant(ratio.value)} ({significant(ratio.low)} to {significant(ratio.high)})"
    yield element("text", shortened(ratio.label, 40), class_="bar-label wide", x="0", y=y + 5)
    yield element("text", shortened(ratio.label, 15), class_="bar-label narrow", x="0", y=y + 5)
    yield element("line", class_=f"interval {kind}", x1=across(_at(x, ratio.low)), x2=across(_at(x, ratio.high)), y1=y, y2=y)
    yield element("circle", hint(told), class_=f"point {kind}", cx=across(_at(x, ratio.value)), cy=y, r=6)
    yield element("text", significant(ratio.value), class_="bar-label", x=across(_at(x, ratio.value)), y=y - 11,
                  text_anchor="middle")  # fmt: skip


def _at(x: Scale, value: float) -> float:
    return LABELS + (1 - LABELS) * x.fraction(value)
