"""Errors of layers or outputs on a logarithmic scale, in their order, beside the bound that they must keep."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from pydoit.report.numbers import shortened, significant, trimmed
from pydoit.report.svg import Axis, Scale, across, axis, element, frame, hint

HEIGHT = 220
MOST = 500
EXACT = 1e-12
"""Errors below it, zero too, stand on the axis."""


@dataclass(frozen=True)
class Error:
    """What was measured of one layer."""

    name: str
    value: float


def draw(name: str, errors: Sequence[Error], bound: float | None, metric: str) -> Markup | None:
    """The plot; None for fewer than two."""
    if len(errors) < 2:
        return None
    shown = errors[:MOST]
    values = [max(error.value, EXACT) for error in shown]
    high = max([*values, bound or EXACT]) * 3
    low = max(min(values) / 3, EXACT, high / 1e9)
    y = Scale(10.0 ** math.floor(math.log10(low)), high, is_log=True)
    drawn = [
        *_bound(bound, y, metric),
        *(mark for index, error in enumerate(shown) for mark in _dot(error, index, len(shown), y)),
    ]
    worst = max(shown, key=lambda error: error.value)
    text = f"{len(shown)} values; the largest is {significant(worst.value)} at {shortened(worst.name, 60)}."
    every = -(-len(shown) // 10)
    ticks = [((index + 0.5) / len(shown), str(index + 1)) for index in range(0, len(shown), every)]
    return frame(name, text, HEIGHT, Axis("in their order, by the number in the table", ticks),
                 axis(f"{metric} (logarithmic)", y, lambda value: trimmed(significant(value))), drawn)  # fmt: skip


def _bound(bound: float | None, y: Scale, metric: str) -> Iterator[Markup]:
    if bound is not None and bound > 0:
        at = (1 - y.fraction(bound)) * HEIGHT
        yield element("line", class_="level planned", x1="0", x2="100%", y1=at, y2=at)
        yield element(
            "text", f"bound: {metric} {significant(bound)}", class_="roof-label", x="100%", y=at - 5, text_anchor="end"
        )


def _dot(error: Error, index: int, count: int, y: Scale) -> Iterator[Markup]:
    at, height = across((index + 0.5) / count), (1 - y.fraction(max(error.value, EXACT))) * HEIGHT
    yield element("line", class_="stem", x1=at, x2=at, y1=HEIGHT, y2=height)
    yield element("circle", hint(f"{shortened(error.name)}: {significant(error.value)}"), class_="dot", cx=at, cy=height, r=4.5)
