"""Ceilings for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_STEPS = ("B", "KiB", "MiB", "GiB")


def lines(found: Mapping[str, Any]) -> str:
    """A line a figure."""
    threads = found["threads"]
    told = [f"{found['device']}, {threads} thread{'s' if threads > 1 else ''}"]
    told += [f"  read {_size(level['bytes']):>8}  {level['read'] / 1e9:10.1f} GB/s" for level in found["bandwidth"]]
    told += [f"  copy           {found['copy'] / 1e9:10.1f} GB/s"]
    told += [f"  {name:<14} {speed / 1e9:10.1f} GFLOP/s" for name, speed in found["flops"].items()]
    told += [f"  a call         {found['call_seconds'] * 1e6:10.2f} us"]
    return "\n".join(told) + "\n"


def _size(count: float) -> str:
    for unit in _STEPS[:-1]:
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.0f} {_STEPS[-1]}"
