"""One traced call of the model as a band: its kernels in their order, the gaps between them time of the host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from pydoit.report.numbers import counted, milliseconds, shortened, trimmed
from pydoit.report.reading import amount
from pydoit.report.svg import across, element, figure, hint, linear

HEIGHT = 44
LEAST = 1 / 1500
"""Calls that are shorter, as a part of the whole, are drawn with their neighbours."""
LABELLED = 5


@dataclass(frozen=True)
class Piece:
    """One call, or several short ones."""

    start: float
    end: float
    kernel: str
    calls: int


def draw(timeline: Sequence[Mapping[str, Any]], kernels: Sequence[Mapping[str, Any]]) -> Markup | None:
    """The plot; None without calls that took time."""
    pieces = pieces_of(timeline)
    if not pieces:
        return None
    end = max(piece.end for piece in pieces)
    bounds = {kernel.get("name"): str(kernel.get("bound") or "other") for kernel in kernels}
    ranks = {kernel.get("name"): str(rank) for rank, kernel in enumerate(kernels[:LABELLED], start=1)}
    drawn = [mark for piece in pieces for mark in _piece(piece, end, bounds.get(piece.kernel, "other"), ranks)]
    ticks = [
        element("text", trimmed(milliseconds(at)) if at else "0", class_="tick", x=across(at / end), y=HEIGHT + 18,
                text_anchor="start" if at == 0 else "end" if at > 0.97 * end else "middle")
        for at in linear(end / 1.05).ticks()
    ]  # fmt: skip
    text = f"{counted(len(timeline), 'call')} of kernels in {milliseconds(end)}."
    return figure("One call of the model", text, HEIGHT + 26, [*drawn, *ticks])


def pieces_of(timeline: Sequence[Mapping[str, Any]]) -> list[Piece]:
    """Calls in their order, short ones joined with short ones beside them."""
    calls = [(amount(item.get("start_ms")), amount(item.get("ms")), str(item.get("kernel"))) for item in timeline]
    end = max((start + ms for start, ms, _ in calls), default=0.0)
    least = end * LEAST
    pieces: list[Piece] = []
    for start, ms, kernel in sorted(calls) if end else ():
        last = pieces[-1] if pieces else None
        is_short = last is not None and last.end - last.start < least and ms < least
        if last is not None and is_short and start - last.end < least:
            pieces[-1] = Piece(last.start, max(last.end, start + ms), "", last.calls + 1)
        else:
            pieces.append(Piece(start, start + ms, kernel, 1))
    return pieces


def _piece(piece: Piece, end: float, bound: str, ranks: Mapping[Any, str]) -> Iterator[Markup]:
    length = piece.end - piece.start
    name = shortened(piece.kernel) if piece.calls == 1 else f"{piece.calls} short calls"
    told = hint(f"{name}: {milliseconds(length)}, begins at {milliseconds(piece.start)}")
    kind = bound if bound in ("compute", "memory", "launch") else "other"
    width = min(max(length, end * LEAST / 2), end - piece.start)
    yield element(
        "rect", told, class_=f"cell {kind}", x=across(piece.start / end), y=0, width=across(width / end), height=HEIGHT
    )
    if piece.kernel in ranks and piece.calls == 1 and length / end > 0.03:
        yield element("text", ranks[piece.kernel], class_="cell-label", x=across((piece.start + length / 2) / end),
                      y=HEIGHT / 2 + 5, text_anchor="middle")  # fmt: skip
