"""Schedules every TIR function of a module, by tuning records where there are some and by defaults otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from pydoit.errors import UserError
from pydoit.kernels.machine import Machine
from pydoit.kernels.scheduling import plan_function, schedule_function
from pydoit.kernels.tasks import function_key
from pydoit.kernels.tile import Tile, tile_fits
from pydoit.tvm_compat import ScheduleError, tirx


def schedule_module(module: Any, target: Any, decisions: Mapping[str, Mapping[str, Any]]) -> tuple[Any, dict[str, int]]:
    """Return the module with scheduled functions, and how many there are and how many took tuned decisions.

    `decisions`: key of a function -> parameters of its schedule; those that do not fit the function are ignored.
    """
    machine = Machine.of(target)
    functions = tuned = 0
    for variable, function in list(module.functions_items()):
        if not isinstance(function, tirx.PrimFunc):
            continue
        scheduled = _schedule_tuned(function, machine, decisions)
        functions += 1
        tuned += scheduled is not None
        module.update_func(variable, scheduled or schedule_function(function, machine))
    return module, {"functions": functions, "tuned": tuned}


def _schedule_tuned(function: Any, machine: Machine, decisions: Mapping[str, Mapping[str, Any]]) -> Any:
    """Return the function scheduled by its record, None without one that fits."""
    tile = tuned_tile(function, decisions)
    if tile is None:
        return None
    try:
        return schedule_function(function, machine, tile)
    except ScheduleError:
        return None


def tuned_tile(function: Any, decisions: Mapping[str, Mapping[str, Any]]) -> Tile | None:
    """Return the recorded parameters of a function's schedule, or None."""
    if not decisions:
        return None
    recorded = decisions.get(function_key(function))
    if recorded is None:
        return None
    anchor = plan_function(function).anchor
    try:
        tile = Tile.model_validate(recorded)
    except ValidationError as error:
        reason = str(error.errors()[0]["msg"])
        raise UserError(f"a tuning record has decisions that this version does not know ({reason}); tune again") from None
    return tile if anchor is not None and tile_fits(anchor, tile) else None
