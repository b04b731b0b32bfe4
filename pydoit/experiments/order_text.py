"""Orders of passes as TOML: for `--set`, for what is shown to the user, for what is written into a recipe."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydoit.passes.info import Entry

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def inline(value: Any) -> str:
    """A value as TOML on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {inline(item)}" for key, item in value.items()) + " }" if value else "{}"
    return f"[{', '.join(inline(item) for item in value)}]"


def order_lines(order: Sequence[Entry]) -> str:
    """`[passes]` with the order, a pass a line, to be put into a recipe."""
    return "[passes]\norder = [\n" + "".join(f"  {inline(use)},\n" for use in order) + "]\n"


def assign_order(order: Sequence[Entry]) -> str:
    """The assignment for `--set`."""
    return f"passes.order={inline(list(order))}"


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else inline(key)
