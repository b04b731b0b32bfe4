"""The roofline: what each kernel reaches beside what memory and arithmetic of the machine allow (Williams et al., 2009)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from pydoit.report.numbers import percent, scaled, shortened, significant, trimmed
from pydoit.report.reading import amount, number, part, parts
from pydoit.report.svg import EMPTY, Scale, across, axis, element, frame, hint

HEIGHT = 380
LABELLED = 5
MOST = 400
"""Marks that are drawn: the slowest kernels."""
LEAST_SHARE = 0.001
"""Kernels below it are left out: they would only stretch the axes."""
APART = 1.6
"""Levels of memory whose bandwidths differ by less are one line."""
SHAPES = {"compute": "circle", "memory": "square", "launch": "diamond"}


@dataclass(frozen=True)
class Mark:
    """One kernel."""

    rank: int
    name: str
    bound: str
    share: float
    intensity: float
    rate: float
    """Operations a second that it reaches."""


@dataclass(frozen=True)
class Roof:
    """One ceiling: operations a second, or bytes a second."""

    label: str
    rate: float


def draw(kernels: Sequence[Mapping[str, Any]], ceilings: Mapping[str, Any]) -> Markup | None:
    """The plot; None where no kernel has operations and bytes."""
    marks = marks_of(kernels)
    if not marks:
        return None
    flat, slanted = compute_roofs(ceilings), memory_roofs(ceilings)
    x, y = _scales(marks, flat, slanted)
    lines = [*_slanted(slanted, flat, x, y), *_flat(flat, slanted, x, y)]
    drawn = [line for line, _ in lines]
    drawn += [_mark(mark, x, y) for mark in sorted(marks, key=lambda mark: -mark.share)]
    drawn += [label for _, label in lines]
    drawn += _labels(marks[:LABELLED], x, y)
    top = marks[0]
    text = f"{len(marks)} kernels; the slowest, {shortened(top.name, 60)}, reaches {scaled(top.rate, 'flop/s')}."
    return frame(
        "Roofline", text, HEIGHT,
        axis("operations per byte moved (flop/B, log scale)", x, significant),
        axis("operations per second (flop/s, log scale)", y, lambda value: trimmed(scaled(value, ""))), drawn,
    )  # fmt: skip


def marks_of(kernels: Sequence[Mapping[str, Any]]) -> list[Mark]:
    """Kernels that have operations, bytes and a time, slowest first, ranked among all."""
    found = []
    for rank, kernel in enumerate(kernels, start=1):
        flops, ms, moved = amount(kernel.get("flops")), amount(kernel.get("ms")), amount(kernel.get("bytes"))
        intensity = amount(kernel.get("intensity")) or (flops / moved if moved else 0.0)
        if flops and ms and intensity and (kernel.get("share") is None or amount(kernel["share"]) >= LEAST_SHARE):
            bound = str(kernel.get("bound") or "")
            found.append(Mark(rank, str(kernel.get("name")), bound, amount(kernel.get("share")), intensity, flops / ms * 1e3))
    return found[:MOST]


def compute_roofs(ceilings: Mapping[str, Any]) -> list[Roof]:
    """Peaks by type, highest first."""
    peaks = [Roof(name, amount(rate)) for name, rate in part(ceilings, "flops").items()]
    return sorted((roof for roof in peaks if roof.rate), key=lambda roof: -roof.rate)


def memory_roofs(ceilings: Mapping[str, Any]) -> list[Roof]:
    """Bandwidths by working set, fastest first, nearly equal ones once; that of the largest working set is always there."""
    levels = [(amount(item.get("bytes")), amount(item.get("read"))) for item in parts(ceilings.get("bandwidth"))]
    kept: list[Roof] = []
    for size, rate in sorted(((size, rate) for size, rate in levels if size and rate), reverse=True):
        if not kept or rate > kept[-1].rate * APART:
            label = "memory" if not kept else f"{scaled(size, 'B')} in cache"
            kept.append(Roof(label, rate))
    return kept[::-1]


def _scales(marks: Sequence[Mark], flat: Sequence[Roof], slanted: Sequence[Roof]) -> tuple[Scale, Scale]:
    intensities, rates = [mark.intensity for mark in marks], [mark.rate for mark in marks]
    peaks = [roof.rate for roof in flat]
    ridges = [peak / roof.rate for peak in peaks[:1] for roof in slanted]
    low, high = min([*intensities, *ridges]) / 2, max([*intensities, *ridges]) * 3
    bottom, top = min(rates) / 2, max([*rates, *peaks]) * 2
    return _whole(max(low, high / 1e8), high), _whole(max(bottom, top / 1e7), top)


def _whole(low: float, high: float) -> Scale:
    """A logarithmic scale with at least one tick."""
    return Scale(10.0 ** math.floor(math.log10(low)), max(high, 10.0 ** (math.floor(math.log10(low)) + 1)), is_log=True)


def _slanted(slanted: Sequence[Roof], flat: Sequence[Roof], x: Scale, y: Scale) -> Iterator[tuple[Markup, Markup]]:
    """Lines and their labels."""
    peak, above = flat[0].rate if flat else y.high, -math.inf
    for roof in slanted:
        begin, end = max(x.low, y.low / roof.rate), min(x.high, peak / roof.rate)
        if begin >= end:
            continue
        line = element(
            "line", hint(f"{roof.label}: {scaled(roof.rate, 'B/s')}"), class_="roof memory-roof", x1=across(x.fraction(begin)),
            x2=across(x.fraction(end)), y1=_y(y, begin * roof.rate), y2=_y(y, end * roof.rate),
        )  # fmt: skip
        height = _y(y, begin * roof.rate) + 14
        is_free = height < HEIGHT and height - above >= 13
        text = f"{roof.label} {scaled(roof.rate, 'B/s')}"
        label = element("text", text, class_="roof-label", dx=6, x=across(x.fraction(begin)), y=height)
        yield line, label if is_free else EMPTY
        above = height if is_free else above


def _flat(flat: Sequence[Roof], slanted: Sequence[Roof], x: Scale, y: Scale) -> Iterator[tuple[Markup, Markup]]:
    """Lines and their labels."""
    fastest = max((roof.rate for roof in slanted), default=0.0)
    above = -math.inf
    for roof in flat:
        begin = max(x.low, roof.rate / fastest) if fastest else x.low
        height = _y(y, roof.rate)
        line = element("line", hint(f"{roof.label}: {scaled(roof.rate, 'flop/s')}"), class_="roof", x2="100%",
                       x1=across(x.fraction(begin)), y1=height, y2=height)  # fmt: skip
        above = max(height - 6, above + 14)
        text = f"{roof.label} {scaled(roof.rate, 'flop/s')}"
        yield line, element("text", text, class_="roof-label", x="100%", y=above, text_anchor="end")


def _mark(mark: Mark, x: Scale, y: Scale) -> Markup:
    at, height = across(x.fraction(mark.intensity)), _y(y, mark.rate)
    radius = min(4 + 22 * math.sqrt(mark.share), 22.0)
    limit = f"; bound by {mark.bound}" if mark.bound else ""
    text = hint(
        f"{mark.rank}. {shortened(mark.name)}: {percent(mark.share)} of kernel time, {scaled(mark.rate, 'flop/s')}, "
        f"{significant(mark.intensity)} flop/B{limit}"
    )
    kind = f"mark {mark.bound if mark.bound in SHAPES else 'other'}"
    shape = SHAPES.get(mark.bound, "circle")
    if shape == "circle":
        return element("circle", text, class_=kind, cx=at, cy=height, r=radius)
    side = radius * (1.77 if shape == "square" else 1.6)
    return element("rect", text, class_=f"{kind} {shape}", x=at, y=height, width=side, height=side)


def _labels(marks: Sequence[Mark], x: Scale, y: Scale) -> Iterator[Markup]:
    """Ranks on the marks, moved up where they would cover one another; `key` says the names."""
    taken: list[tuple[float, float]] = []
    for mark in marks:
        at, height = x.fraction(mark.intensity), _y(y, mark.rate)
        while any(abs(height - other) < 14 and abs(at - place) < 0.018 for place, other in taken):
            height -= 14
        taken.append((at, height))
        yield element("text", str(mark.rank), class_="rank", x=across(at), y=max(height, 8.0) + 4.5, text_anchor="middle")


def key(kernels: Sequence[Mapping[str, Any]]) -> list[tuple[int, str]]:
    """Rank and name of the marks that are labelled."""
    return [(mark.rank, mark.name) for mark in marks_of(kernels)[:LABELLED]]


def _y(scale: Scale, value: float) -> float:
    return (1 - scale.fraction(value)) * HEIGHT


def left_out(kernels: Sequence[Mapping[str, Any]]) -> tuple[int, float]:
    """How many kernels the plot does not show, because nothing is counted of them or they are short, and their share."""
    shown = {mark.rank for mark in marks_of(kernels)}
    rest = [kernel for rank, kernel in enumerate(kernels, start=1) if rank not in shown]
    return len(rest), sum(number(kernel.get("share")) or 0.0 for kernel in rest)
