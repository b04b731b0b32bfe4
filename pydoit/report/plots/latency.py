"""Latencies of several cases side by side: the median as a dot, from the least to the 95th percentile as a line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from pydoit.report.numbers import milliseconds, shortened, trimmed
from pydoit.report.svg import Axis, Scale, across, axis, element, frame, hint, linear

HEIGHT = 220
MOST = 24
"""Cases that are drawn."""


@dataclass(frozen=True)
class Case:
    """What was measured at one combination of extents."""

    label: str
    median: float
    least: float
    p95: float


def draw(name: str, cases: Sequence[Case], title: str) -> Markup | None:
    """The plot; None for fewer than two cases, which a table says better. `title` is that of the x axis."""
    if len(cases) < 2:
        return None
    shown = cases[:MOST]
    y = linear(max(max(case.p95, case.median) for case in shown))
    places = [(index + 0.5) / len(shown) for index in range(len(shown))]
    drawn = [*_line(shown, places, y), *(mark for case, at in zip(shown, places, strict=True) for mark in _case(case, at, y))]
    every = -(-len(shown) // 8)
    ticks = [
        (at, shortened(case.label, 18)) for index, (case, at) in enumerate(zip(shown, places, strict=True)) if not index % every
    ]
    text = "; ".join(f"{shortened(case.label, 40)}: {milliseconds(case.median)}" for case in shown)
    return frame(name, text, HEIGHT, Axis(title, ticks), axis("latency of one call", y, _tick), drawn)


def _tick(value: float) -> str:
    return trimmed(milliseconds(value)) if value else "0"


def _line(cases: Sequence[Case], places: Sequence[float], y: Scale) -> Iterator[Markup]:
    for index in range(len(cases) - 1):
        yield element(
            "line", class_="trend", x1=across(places[index]), x2=across(places[index + 1]),
            y1=_down(y, cases[index].median), y2=_down(y, cases[index + 1].median),
        )  # fmt: skip


def _case(case: Case, at: float, y: Scale) -> Iterator[Markup]:
    yield element("line", class_="whisker", x1=across(at), x2=across(at), y1=_down(y, case.least), y2=_down(y, case.p95))
    told = hint(f"{case.label}: median {milliseconds(case.median)}, p95 {milliseconds(case.p95)}")
    yield element("circle", told, class_="dot", cx=across(at), cy=_down(y, case.median), r=5)


def _down(y: Scale, value: float) -> float:
    return (1 - y.fraction(value)) * HEIGHT
