"""The roofline: what each kernel would take at the machine's ceilings, and how far above that it is (pure).

Source: Williams, Waterman, Patterson 2009, "Roofline: an insightful visual performance model", with one bandwidth for each
size of the working set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_SAME = {"float16": "bfloat16", "uint8": "int8"}
"""Element types that the same units compute."""


def annotate(profile: Mapping[str, Any], ceilings: Mapping[str, Any] | None) -> dict[str, Any]:
    """The profile with `bound`, `bound_ms` and `headroom_ms` of each kernel, `roofline` of the model, and the ceilings."""
    kernels = profile.get("kernels")
    if not ceilings or not kernels:
        return dict(profile)
    planned = (profile.get("memory") or {}).get("planned_bytes") or 0
    footprint = planned + sum(kernel.get("weight_bytes", 0) for kernel in kernels)
    placed = [{**kernel, **_bound(kernel, ceilings, footprint)} for kernel in kernels]
    bound_ms = sum(kernel["bound_ms"] or 0.0 for kernel in placed)
    return {
        **profile,
        "kernels": placed,
        "ceilings": dict(ceilings),
        "roofline": {
            "bound_ms": bound_ms,
            "shares": {
                name: sum(kernel["share"] for kernel in placed if kernel["bound"] == name)
                for name in ("compute", "memory", "launch")
            },
        },
    }


def bandwidth(ceilings: Mapping[str, Any], working_set: float) -> float:
    """Bytes a second for reading a working set of that size: the best that was measured at that size or a larger one."""
    levels: Sequence[Mapping[str, float]] = ceilings["bandwidth"]
    fitting = [level["read"] for level in levels if level["bytes"] >= working_set]
    return max(fitting, default=levels[-1]["read"])


def peak(ceilings: Mapping[str, Any], dtype: str) -> float:
    """Operations a second with operands of that type; those of float32 for one that was not measured."""
    flops: Mapping[str, float] = ceilings["flops"]
    return flops.get(dtype) or flops.get(_SAME.get(dtype, "")) or flops["float32"]


def _bound(kernel: Mapping[str, Any], ceilings: Mapping[str, Any], footprint: float) -> dict[str, Any]:
    """The longest of three times: its arithmetic, its bytes, its calls.

    Weights are read again in each run and come from where the whole model fits; other tensors may still lie in the cache
    that holds the kernel's own.
    """
    if "flops" not in kernel:
        return {"bound": None, "bound_ms": None, "headroom_ms": None}
    passing = kernel["bytes"] - kernel["weight_bytes"]
    times = {
        "compute": kernel["flops"] / peak(ceilings, kernel["dtype"]),
        "memory": kernel["weight_bytes"] / bandwidth(ceilings, footprint)
        + passing / bandwidth(ceilings, passing / max(1, kernel["calls"])),
        "launch": kernel["calls"] * ceilings["call_seconds"],
    }
    name = max(times, key=lambda which: times[which])
    bound_ms = min(times[name] * 1000.0, kernel["ms"])
    return {"bound": name, "bound_ms": bound_ms, "headroom_ms": kernel["ms"] - bound_ms}
