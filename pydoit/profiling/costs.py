"""What each kernel of a compiled model costs by its IR: costs.json, written by compile and read by profile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pydoit.figures import Meter
from pydoit.profiling.loops import loops_of
from pydoit.tvm_compat import relax, tirx

_BOUNDS = "tir_var_upper_bound"


def entry_costs(module: Any) -> dict[str, dict[str, Any]]:
    """`steps`, `tensors` and memory of each Relax function, before its kernels are scheduled, while they say what they compute.

    Symbolic extents count with the function's upper bounds, which are told as `extents`.
    """
    found = {}
    for variable, function in module.functions_items():
        if not isinstance(function, relax.Function):
            continue
        extents = bounds_of(function)
        body = Meter(extents, variable.name_hint).body(module)
        found[variable.name_hint] = {
            "extents": extents,
            "steps": [asdict(kernel) for kernel in body.kernels],
            "tensors": [asdict(tensor) for tensor in body.tensors()],
            "live_bytes": body.live_bytes(),
            "intermediate_bytes": sum(body.sizes),
        }
    return found


def document(entries: Mapping[str, Any], scheduled: Any, planned: Mapping[str, int]) -> dict[str, Any]:
    """The whole file: the entries' costs with the bytes of their planned memory, and how each scheduled function loops."""
    extents = {name: size for entry in entries.values() for name, size in entry["extents"].items()}
    functions = {
        variable.name_hint: asdict(loops_of(function, extents))
        for variable, function in scheduled.functions_items()
        if isinstance(function, tirx.PrimFunc)
    }
    whole = {name: {**entry, "planned_bytes": planned.get(name)} for name, entry in entries.items()}
    return {"schema": 1, "entries": whole, "functions": dict(sorted(functions.items()))}


def bounds_of(function: Any) -> dict[str, int]:
    """Upper bounds of a Relax function's symbolic extents by name."""
    bounds = (function.attrs or {}).get(_BOUNDS) or {}
    return {str(name): int(bound) for name, bound in bounds.items()}
