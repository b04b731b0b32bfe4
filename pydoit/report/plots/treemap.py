"""The treemap: kernels as areas that are their share of the time (squarified, Bruls, Huizing and van Wijk, 2000)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from pydoit.report.numbers import counted, milliseconds, percent, shortened
from pydoit.report.reading import amount
from pydoit.report.svg import across, element, figure, hint

WIDTH, HEIGHT = 1040.0, 380.0
"""The shape that cells are laid out for; on the page the width is what there is."""
NARROW = 320.0
MOST, LEAST_SHARE = 60, 0.002
"""Kernels with a cell of their own."""
LETTER, PADDING = 7.9, 12
KINDS = ("compute", "memory", "launch")


@dataclass(frozen=True)
class Rectangle:
    """A cell, in units of the layout."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Item:
    """What a cell stands for."""

    name: str
    ms: float
    kind: str
    text: str
    rank: str = ""
    """Its place among all kernels, which stands where its name has no room."""


def draw(kernels: Sequence[Mapping[str, Any]]) -> Markup | None:
    """The plot; None where nothing took time."""
    items = items_of(kernels)
    total = sum(item.ms for item in items)
    if not total:
        return None
    cells = squarified([item.ms for item in items], Rectangle(0.0, 0.0, WIDTH, HEIGHT))
    drawn = [piece for item, cell in zip(items, cells, strict=True) for piece in _cell(item, cell, item.ms / total)]
    text = f"{counted(len(kernels), 'kernel')}, {milliseconds(total)}; the largest: {shortened(items[0].name, 60)}."
    return figure("Time by kernel", text, int(HEIGHT), drawn)


def items_of(kernels: Sequence[Mapping[str, Any]]) -> list[Item]:
    """The slowest kernels, the rest as one, largest first."""
    timed = sorted((kernel for kernel in kernels if amount(kernel.get("ms"))), key=lambda kernel: -amount(kernel.get("ms")))
    total = sum(amount(kernel.get("ms")) for kernel in timed)
    own = [kernel for kernel in timed[:MOST] if amount(kernel.get("ms")) >= LEAST_SHARE * total]
    items = [_item(kernel, rank) for rank, kernel in enumerate(own, start=1)]
    rest = timed[len(own) :]
    if rest:
        ms = sum(amount(kernel.get("ms")) for kernel in rest)
        items.append(Item(f"{len(rest)} others" if len(rest) > 1 else "1 other", ms, "other", "kernels with small shares"))
    return sorted(items, key=lambda item: -item.ms)


def _item(kernel: Mapping[str, Any], rank: int) -> Item:
    bound, calls = str(kernel.get("bound") or ""), int(amount(kernel.get("calls")))
    limit = f", bound by {bound}" if bound else ""
    return Item(str(kernel.get("name")), amount(kernel.get("ms")), bound if bound in KINDS else "other",
                f"{counted(calls, 'call')}{limit}", str(rank))  # fmt: skip


def squarified(values: Sequence[float], room: Rectangle) -> list[Rectangle]:
    """Cells in the order of `values`, which fall and are positive; together they fill the room."""
    cells: list[Rectangle] = []
    scale = room.width * room.height / sum(values) if values else 0.0
    areas = [value * scale for value in values]
    while areas:
        side = max(min(room.width, room.height), 1e-9)
        count = 1
        while count < len(areas) and _worst(areas[: count + 1], side) <= _worst(areas[:count], side):
            count += 1
        row, areas = areas[:count], areas[count:]
        placed, room = _placed(row, room)
        cells += placed
    return cells


def _worst(row: Sequence[float], side: float) -> float:
    """The largest ratio of sides in a row along `side`."""
    total = sum(row)
    return max(side * side * max(row) / (total * total), total * total / (side * side * min(row)))


def _placed(row: Sequence[float], room: Rectangle) -> tuple[list[Rectangle], Rectangle]:
    """Cells of a row along the shorter side, and the room that is left."""
    total, cells, at = sum(row), [], 0.0
    if room.width >= room.height:
        depth = total / max(room.height, 1e-9)
        for area in row:
            cells.append(Rectangle(room.x, room.y + at, depth, area / max(depth, 1e-9)))
            at += area / max(depth, 1e-9)
        return cells, Rectangle(room.x + depth, room.y, max(room.width - depth, 0.0), room.height)
    depth = total / max(room.width, 1e-9)
    for area in row:
        cells.append(Rectangle(room.x + at, room.y, area / max(depth, 1e-9), depth))
        at += area / max(depth, 1e-9)
    return cells, Rectangle(room.x, room.y + depth, room.width, max(room.height - depth, 0.0))


def _cell(item: Item, cell: Rectangle, share: float) -> Iterator[Markup]:
    left, width = cell.x / WIDTH, min(cell.width, WIDTH - cell.x) / WIDTH
    told = hint(f"{shortened(item.name)}: {milliseconds(item.ms)}, {percent(share)}, {item.text}")
    yield element("rect", told, class_=f"cell {item.kind}", x=across(left), y=cell.y, width=across(width),
                  height=max(min(cell.height, HEIGHT - cell.y), 0.1))  # fmt: skip
    if cell.height < 20:
        return
    for pixels, kind in ((cell.width, "wide"), (width * NARROW, "narrow")):
        letters = int((pixels - PADDING) / LETTER)
        if pixels < 22:
            continue
        label = shortened(item.name, letters) if letters >= 7 else item.rank
        yield element("text", label, class_=f"cell-label {kind}", x=across(left), dx=6, y=cell.y + 16)
        if cell.height >= 38 and letters >= 6:
            yield element("text", percent(share), class_=f"cell-label quiet {kind}", x=across(left), dx=6, y=cell.y + 33)
