"""`module:name` in a recipe -> the object, and the nearest known name for one that is unknown."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

from pydoit.errors import UserError


def load_object(reference_text: str, key: str) -> Any:
    """The object that `module:name` names; `key` is the recipe's key, for messages."""
    module_name, separator, name = reference_text.partition(":")
    if not (separator and module_name and name):
        raise UserError(f"{key}: {reference_text!r} is not of the form module:name")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise UserError(f"{key}: cannot import {module_name!r} ({error}); paths start at the workspace") from error
    if not hasattr(module, name):
        raise UserError(f"{key}: module {module_name!r} has no {name!r}{did_you_mean(name, dir(module))}")
    return getattr(module, name)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` or the known names, for the end of a message."""
    import difflib

    choices = [choice for choice in known if not choice.startswith("__")]
    nearest = difflib.get_close_matches(name, choices, n=1)
    return f"; did you mean {nearest[0]!r}?" if nearest else f"; known: {', '.join(sorted(choices))}"
