"""The remedy for an unknown name: the nearest known one, then what is known."""

from __future__ import annotations

from collections.abc import Sequence

MAX_LISTED = 40


def nearest(word: str, known: Sequence[str]) -> str:
    """`did you mean 'x'? known: x, y`, for the end of a message."""
    import difflib

    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    more = f", and {len(known) - MAX_LISTED} more" if len(known) > MAX_LISTED else ""
    listing = ", ".join(known[:MAX_LISTED]) + more if known else "none"
    return f"did you mean {close[0]!r}? known: {listing}" if close else f"known: {listing}"
