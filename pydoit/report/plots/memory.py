"""Memory over the steps of a call: tensors as rectangles, the bytes that are alive, what is planned and the least possible."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from pydoit.report.numbers import counted, shortened, size, trimmed
from pydoit.report.reading import amount
from pydoit.report.svg import Axis, Scale, across, axis, element, frame, hint, linear

HEIGHT = 300
MOST = 800
"""Tensors that are drawn: the largest."""
POINTS = 600
"""Steps of the curve; of more, each point is the largest of several."""


@dataclass(frozen=True)
class Tensor:
    """An intermediate result and its life."""

    name: str
    bytes: float
    born: int
    dies: int
    """The last step that reads it."""


def draw(memory: Mapping[str, Any]) -> Markup | None:
    """The plot; None without tensors."""
    tensors = tensors_of(memory)
    if not tensors:
        return None
    steps = max(tensor.dies for tensor in tensors) + 1
    largest = sorted(tensors, key=lambda tensor: -tensor.bytes)[:MOST]
    places = stacked(largest)
    live = live_bytes(tensors, steps)
    planned, least = amount(memory.get("planned_bytes")), amount(memory.get("live_bytes"))
    highest = max([*live, planned, least, *(place + tensor.bytes for tensor, place in places)])
    y = linear(highest)
    x = Scale(0, steps)
    drawn = [_rectangle(tensor, place, steps, y) for tensor, place in places]
    drawn += [_curve(live, y), *_lines(planned, least, y)]
    text = f"{counted(len(tensors), 'tensor')} over {counted(steps, 'step')}; at most {size(max(live))} are alive at once."
    return frame("Memory of a call", text, HEIGHT, Axis("kernel calls of the model, in order", _whole_ticks(x)),
                 axis("bytes of intermediate results", y, lambda value: trimmed(size(value))), drawn)  # fmt: skip


def tensors_of(memory: Mapping[str, Any]) -> list[Tensor]:
    """Tensors with a size and a life."""
    found = []
    listed = memory.get("tensors")
    for item in listed if isinstance(listed, list) else []:
        if isinstance(item, Mapping) and amount(item.get("bytes")):
            born = int(amount(item.get("born")))
            dies = max(int(amount(item.get("dies"))), born)
            found.append(Tensor(str(item.get("name")), amount(item.get("bytes")), born, dies))
    return found


def stacked(tensors: Sequence[Tensor]) -> list[tuple[Tensor, float]]:
    """Each tensor with the lowest place at which it touches none that lives at the same time, the largest placed first."""
    placed: list[tuple[Tensor, float]] = []
    for tensor in tensors:
        near = sorted((at, at + other.bytes) for other, at in placed if other.born <= tensor.dies and tensor.born <= other.dies)
        place = 0.0
        for low, high in near:
            if place + tensor.bytes <= low:
                break
            place = max(place, high)
        placed.append((tensor, place))
    return placed


def live_bytes(tensors: Sequence[Tensor], steps: int) -> list[float]:
    """Bytes that are alive at each step."""
    changes = [0.0] * (steps + 1)
    for tensor in tensors:
        changes[tensor.born] += tensor.bytes
        changes[tensor.dies + 1] -= tensor.bytes
    live, now = [], 0.0
    for change in changes[:steps]:
        now += change
        live.append(now)
    return live


def _rectangle(tensor: Tensor, place: float, steps: int, y: Scale) -> Markup:
    top, bottom = (1 - y.fraction(place + tensor.bytes)) * HEIGHT, (1 - y.fraction(place)) * HEIGHT
    told = hint(f"{shortened(tensor.name)}: {size(tensor.bytes)}, steps {tensor.born} to {tensor.dies}")
    return element("rect", told, class_="tensor", x=across(tensor.born / steps), y=top, height=max(bottom - top, 0.1),
                   width=across((tensor.dies + 1 - tensor.born) / steps))  # fmt: skip


def _curve(live: Sequence[float], y: Scale) -> Markup:
    """The steps of the curve in a box of its own that is stretched to the width."""
    group = -(-len(live) // POINTS)
    points = [max(live[at : at + group]) for at in range(0, len(live), group)]
    path: list[str] = []
    for index, value in enumerate(points):
        height = (1 - y.fraction(value)) * HEIGHT
        path.append(f"{'L' if path else 'M'}{index} {height:.1f}H{index + 1}")
    return element("svg", element("path", d="".join(path), class_="live"), x="0", y="0", width="100%", height=HEIGHT,
                   viewBox=f"0 0 {len(points)} {HEIGHT}", preserveAspectRatio="none")  # fmt: skip


def _lines(planned: float, least: float, y: Scale) -> Iterator[Markup]:
    for label, value, kind in (("planned", planned, "planned"), ("lower bound", least, "least")):
        if value:
            at = (1 - y.fraction(value)) * HEIGHT
            yield element("line", hint(f"{label}: {size(value)}"), class_=f"level {kind}", x1="0", x2="100%", y1=at, y2=at)
    if planned:
        at = (1 - y.fraction(planned)) * HEIGHT
        yield element("text", f"planned {size(planned)}", class_="roof-label", x="100%", y=at - 5, text_anchor="end")
    if least and abs(planned - least) > 0.06 * y.high:
        at = (1 - y.fraction(least)) * HEIGHT
        yield element("text", f"lower bound {size(least)}", class_="roof-label", x="100%", y=at - 5, text_anchor="end")


def _whole_ticks(scale: Scale) -> list[tuple[float, str]]:
    return [(scale.fraction(value), f"{value:,.0f}") for value in scale.ticks() if value == int(value)]
