"""Passes: what a recipe may name, what is declared of each, presets, the check of an order. Needs TVM only to make one."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from pydoit.errors import UserError
from pydoit.passes.info import IMPORTED, PROPERTIES, Entry, PassInfo
from pydoit.passes.order import Fault, Setting, check_order, check_use, is_legal, name_of, split_use
from pydoit.passes.presets import LANGUAGE_PRESETS, PRESETS
from pydoit.passes.registry import PASSES, all_passes, find_pass
from pydoit.passes.repair import Repair, repair_order

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
    "find_pass",
    "is_legal",
    "make_pass",
    "name_of",
    "repair_order",
    "split_use",
]


def make_pass(use: Entry) -> Callable[[Any], Any]:
    """Return the pass that an entry names: a callable from module to module. Imports TVM.

    Raises UserError when the name, an option or the user's class is wrong.
    """
    check_use(use)
    name, options = split_use(use)
    info = find_pass(name)
    module_name, _, attribute = (info.factory if info is not None else name).partition(":")
    try:
        importlib.import_module("pydoit.tvm_compat")
        made = getattr(importlib.import_module(module_name), attribute)(**options)
    except (ImportError, AttributeError, TypeError) as error:
        raise UserError(f'pass "{name}" cannot be made: {error}; correct its name or options') from error
    if not callable(made):
        raise UserError(f'pass "{name}" is no pass: {attribute} must make a callable from module to module')
    return made  # type: ignore[no-any-return]
