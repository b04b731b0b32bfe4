"""SVG that fits any width without scaling its letters: places along x are percentages, heights are pixels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

LEFT, RIGHT = 62, 12
"""Pixels beside the area in which marks stand."""
TOP, BOTTOM = 30, 46
EMPTY: Markup = Markup()


def element(name: str, *children: str, **attributes: object) -> Markup:
    """An element; text and attributes are escaped, `class_` is class, an underscore a hyphen, None no attribute."""
    written = [
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), _value(value))
        for key, value in attributes.items()
        if value is not None
    ]
    opening = Markup("<{}{}").format(name, EMPTY.join(written))
    inside = join(children)
    return opening + (Markup(">{}</{}>").format(inside, name) if inside else Markup("/>"))


def join(pieces: Iterable[str]) -> Markup:
    """Pieces one after the other; what is no markup yet is escaped."""
    return EMPTY.join(escape(piece) for piece in pieces)


def across(fraction: float) -> str:
    """A place or an extent along x, as a part of the width."""
    return f"{100 * fraction:.3f}".rstrip("0").rstrip(".") + "%"


def _value(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Scale:
    """Values -> 0 at the low end to 1 at the high end."""

    low: float
    high: float
    is_log: bool = False

    def fraction(self, value: float) -> float:
        """Where a value stands; what lies outside stands at the end."""
        low, high, at = self.low, self.high, value
        if self.is_log:
            low, high, at = math.log10(low), math.log10(high), math.log10(max(value, self.low))
        return min(max((at - low) / (high - low), 0.0), 1.0) if high > low else 0.0

    def ticks(self) -> list[float]:
        """Round values, at most nine."""
        if self.is_log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            step = max(1, math.ceil((last - first) / 8))
            return [10.0**power for power in range(first, last + 1, step)]
        width = _round_step((self.high - self.low) / 5)
        first, last = math.ceil(self.low / width - 1e-9), math.floor(self.high / width + 1e-9)
        return [number * width for number in range(first, last + 1)]


def linear(high: float, low: float = 0.0) -> Scale:
    """From `low` to a little above `high`."""
    return Scale(low, high * 1.05 if high > low else low + 1.0)


def _round_step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= least * (1 - 1e-9))


@dataclass(frozen=True)
class Axis:
    """One direction of a plot."""

    title: str
    """What it shows, with the unit."""
    ticks: Sequence[tuple[float, str]]
    """Fraction of the axis and label."""


def axis(title: str, scale: Scale, label: object) -> Axis:
    """An axis with round ticks; `label` makes a tick's text."""
    assert callable(label)
    return Axis(title, [(scale.fraction(value), label(value)) for value in scale.ticks()])


def frame(name: str, text: str, height: int, x: Axis, y: Axis, marks: Iterable[Markup]) -> Markup:
    """A plot with two axes. `marks` stand in an area of `height` pixels; `text` says what is to be seen."""
    grid = [element("line", class_="grid", x1="0", x2="100%", y1=_down(at, height), y2=_down(at, height)) for at, _ in y.ticks]
    labels = [element("text", label, class_="tick", x=-8, y=4 + _down(at, height), text_anchor="end") for at, label in y.ticks]
    return figure(
        name,
        text,
        TOP + height + BOTTOM,
        [
            element("text", y.title, class_="axis", x=-LEFT, y=13),
            moved(TOP, [*grid, *labels, _base(height), *marks]),
            moved(TOP + height, _below(x)),
        ],
        LEFT,
    )


def _base(height: int) -> Markup:
    return element("line", class_="base", x1="0", x2="100%", y1=height, y2=height)


def _below(x: Axis) -> list[Markup]:
    def anchor(at: float) -> str:
        return "start" if at < 0.03 else "end" if at > 0.97 else "middle"

    labels = [element("text", label, class_="tick", x=across(at), y=17, text_anchor=anchor(at)) for at, label in x.ticks]
    return [*labels, element("text", x.title, class_="axis", x="100%", y=38, text_anchor="end")]


def _down(fraction: float, height: int) -> float:
    return (1 - fraction) * height


def moved(down: int, children: Iterable[Markup]) -> Markup:
    """The children, some pixels further down."""
    return element("g", *children, transform=f"translate(0 {down})")


def figure(name: str, text: str, height: int, children: Iterable[Markup], left: int = 0) -> Markup:
    """The outer element, with its name and a text for who cannot see it. `name` is unique on the page.

    Percentages are of the width that is right of `left` pixels, which stand at negative places.
    """
    identity = "plot-" + "".join(letter if letter.isalnum() else "-" for letter in name.lower())
    title = element("title", name, id=f"{identity}-title")
    description = element("desc", text, id=f"{identity}-text")
    padding = f"padding-left:{left}px;padding-right:{RIGHT}px" if left else None
    return element("svg", title, description, *children, class_="plot", role="img", width="100%", height=height,
                   style=padding, aria_labelledby=f"{identity}-title {identity}-text")  # fmt: skip


def hint(text: str) -> Markup:
    """What is shown beside a mark that is pointed at."""
    return element("title", text)
