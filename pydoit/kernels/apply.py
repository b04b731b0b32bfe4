"""Schedules every TIR function of a module, by tuning records where there are some and by defaults otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydoit.kernels.machine import Machine
from pydoit.kernels.scheduling import plan_function, schedule_function
from pydoit.kernels.tasks import function_key
from pydoit.kernels.tile import Tile, tile_fits
from pydoit.tvm_compat import tirx


def schedule_module(
    module: Any, target: Any, decisions: Mapping[str, Mapping[str, Any]]
) -> tuple[Any, dict[str, int]]:
    """Return the module with scheduled functions, and how many there are and how many took tuned decisions.

    `decisions`: key of a function -> parameters of its schedule; those that do not fit the function are ignored.
    """
    machine = Machine.of(target)
    functions = tuned = 0
    for variable, function in list(module.functions_items()):
        if not isinstance(function, tirx.PrimFunc):
            continue
        tile = tuned_tile(function, decisions)
        module.update_func(variable, schedule_function(function, machine, tile))
        functions += 1
        tuned += tile is not None
    return module, {"functions": functions, "tuned": tuned}


def tuned_tile(function: Any, decisions: Mapping[str, Mapping[str, Any]]) -> Tile | None:
    """Return the recorded parameters of a function's schedule, or None."""
    if not decisions:
        return None
    recorded = decisions.get(function_key(function))
    if recorded is None:
        return None
    anchor = plan_function(function).anchor
    tile = Tile.model_validate(recorded)
    return tile if anchor is not None and tile_fits(anchor, tile) else None
