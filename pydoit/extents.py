"""Symbolic extents of TVM's IR as numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from pydoit.tvm_compat import tirx

_OPERATIONS: Mapping[str, Callable[[int, int], int]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Min": min,
    "Max": max,
    "FloorDiv": lambda first, second: first // second if second else 1,
    "FloorMod": lambda first, second: first % second if second else 0,
}


def evaluated(size: Any, extents: Mapping[str, int]) -> int:
    """The value of an integer expression of symbols; a symbol without a bound counts as 1."""
    if isinstance(size, int | tirx.IntImm):
        return int(size)
    if isinstance(size, tirx.Var):
        return extents.get(str(size.name), 1)
    apply = _OPERATIONS.get(type(size).__name__)
    if apply is None:
        return evaluated(size.value, extents) if hasattr(size, "value") else 1
    return max(0, apply(evaluated(size.a, extents), evaluated(size.b, extents)))
