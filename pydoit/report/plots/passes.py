"""What the passes make of the module: kernels and bytes moved after each, beside what the first one left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from pydoit.report.numbers import percent, shortened
from pydoit.report.reading import amount, part
from pydoit.report.svg import Axis, Scale, across, axis, element, frame, hint, linear

HEIGHT = 200
FIGURES = (("kernels", "kernels"), ("moved_bytes", "bytes moved"), ("live_bytes", "live memory"))
"""Figures of the log, each with a style of line of its own."""


def draw(passes: Sequence[Mapping[str, Any]]) -> Markup | None:
    """The plot; None where fewer than two passes have figures."""
    known = [item for item in passes if part(item, "figures")]
    if len(known) < 2:
        return None
    series = {name: values for name, _ in FIGURES if (values := _relative(known, name))}
    if not series:
        return None
    y = linear(max(max(values) for values in series.values()))
    drawn = [mark for name, values in series.items() for mark in _series(name, values, known, y)]
    every = -(-len(known) // 10)
    ticks = [((index + 0.5) / len(known), str(index + 1)) for index in range(0, len(known), every)]
    last = ", ".join(f"{label} {percent(series[name][-1])}" for name, label in FIGURES if name in series)
    return frame("Module after each pass", f"After the last of {len(known)} passes, beside the first: {last}.", HEIGHT,
                 Axis("pass, by its number below", ticks), axis("beside the first pass", y, lambda v: f"{100 * v:.0f} %"),
                 drawn)  # fmt: skip


def _relative(passes: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    """The figure after each pass as a part of the first; empty where that is nothing."""
    values = [amount(part(item, "figures").get(name)) for item in passes]
    return [value / values[0] for value in values] if values[0] else []


def _series(name: str, values: Sequence[float], passes: Sequence[Mapping[str, Any]], y: Scale) -> Iterator[Markup]:
    heights = [(1 - y.fraction(value)) * HEIGHT for value in values]
    count = len(values)
    path = "".join(f"{'L' if index else 'M'}{index} {height:.1f}H{index + 1}" for index, height in enumerate(heights))
    yield element("svg", element("path", d=path, class_=f"series {name.replace('_', '-')}"), x="0", y="0", width="100%",
                  height=HEIGHT, viewBox=f"0 0 {count} {HEIGHT}", preserveAspectRatio="none")  # fmt: skip
    for index, (value, item) in enumerate(zip(values, passes, strict=True)):
        if index and values[index - 1] != value:
            told = hint(f"{index + 1}. {shortened(item.get('name'))}: {name.replace('_', ' ')} {percent(value)}")
            yield element("circle", told, class_=f"turn {name.replace('_', '-')}", cx=across((index + 0.5) / count),
                          cy=heights[index], r=4)  # fmt: skip
