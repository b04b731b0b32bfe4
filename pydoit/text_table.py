"""Plain tables on a terminal."""

from __future__ import annotations

from collections.abc import Sequence


def text_table(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their longest entry."""
    widths = [max(len(line[index]) for line in (columns, *lines)) for index in range(len(columns))]
    rows = [
        "  ".join(item.ljust(width) for item, width in zip(line, widths, strict=True)).rstrip() for line in (columns, *lines)
    ]
    return "\n".join(rows) + "\n"
