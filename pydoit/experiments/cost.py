"""A static cost of a module, to leave out orders that cannot be good before they are compiled and measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Of one core of a current server CPU; only ratios of costs are used, so that the machine's own figures are not needed.
FLOPS_PER_SECOND = 50e9
BYTES_PER_SECOND = 10e9
CALL_SECONDS = 2e-6


def static_seconds(figures: Mapping[str, Any]) -> float:
    """Time of arithmetic or of memory, whichever is longer, and of calling each kernel."""
    arithmetic = float(figures["flops"]) / FLOPS_PER_SECOND
    memory = float(figures["moved_bytes"]) / BYTES_PER_SECOND
    return max(arithmetic, memory) + min(arithmetic, memory) / 2 + float(figures["kernels"]) * CALL_SECONDS
