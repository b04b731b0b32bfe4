"""Passes: what a recipe may name, what is declared of each, presets, the check of an order. Needs TVM only to make one."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pydoit.errors import UserError
from pydoit.passes.info import IMPORTED, PROPERTIES, Entry, PassInfo
from pydoit.passes.order import Fault, Setting, check_order, check_use, is_legal, name_of, repeat_of, split_use
from pydoit.passes.presets import LANGUAGE_PRESETS, PRESETS
from pydoit.passes.registry import PASSES, all_passes, find_pass
from pydoit.passes.repair import Repair, repair_order

if TYPE_CHECKING:
    from pydoit.recipe import Recipe

__all__ = [
    "IMPORTED",
    "LANGUAGE_PRESETS",
    "PASSES",
    "PRESETS",
    "PROPERTIES",
    "Entry",
    "Fault",
    "PassInfo",
    "Repair",
    "Setting",
    "all_passes",
    "check_order",
    "check_use",
    "declared",
    "find_pass",
    "is_legal",
    "make_pass",
    "name_of",
    "order_of",
    "repair_order",
    "repeat_of",
    "split_use",
]


def order_of(recipe: Recipe) -> list[Entry]:
    """The passes of a recipe, a preset written out."""
    if recipe.passes.order is not None:
        return [use.entry for use in recipe.passes.order]
    preset = recipe.passes.preset or "O2"
    return list(LANGUAGE_PRESETS[recipe.target.kind][preset] if recipe.model.is_language else PRESETS[preset])


def declared(order: Sequence[Entry]) -> dict[str, PassInfo]:
    """What the user's own passes of an order (`module:Class`) declare of themselves as their attribute `info`.

    Imports their modules; raises UserError for one that cannot be loaded or declares anything but a PassInfo.
    """
    found: dict[str, PassInfo] = {}
    for name in dict.fromkeys(name_of(use) for use in order if ":" in name_of(use)):
        info = getattr(_load(name), "info", None)
        if isinstance(info, PassInfo):
            found[name] = info
        elif info is not None:
            raise UserError(f'pass "{name}": its attribute info is {type(info).__name__}, not pydoit.passes.PassInfo; mend it')
    return found


def make_pass(use: Entry) -> Callable[[Any], Any]:
    """Return the pass that an entry names: a callable from module to module. Imports TVM.

    Raises UserError when the name, an option or the user's class is wrong.
    """
    check_use(use)
    name, options = split_use(use)
    factory = _load(name)
    try:
        made = factory(**options)
    except TypeError as error:
        raise UserError(f'pass "{name}" cannot be made: {error}; correct its name or options') from error
    if not callable(made):
        raise UserError(f'pass "{name}" is no pass: it must make a callable from module to module')
    return made  # type: ignore[no-any-return]


def _load(name: str) -> Any:
    """What makes the pass from its options."""
    info = None if ":" in name else find_pass(name)
    module_name, _, attribute = (info.factory if info is not None else name).partition(":")
    try:
        importlib.import_module("pydoit.tvm_compat")
        return getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise UserError(f'pass "{name}" cannot be made: {error}; correct its name or options') from error
