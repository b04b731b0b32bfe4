"""Values between bfloat16 operators stay in bfloat16: casts to float32 and back cancel, also around movements of data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydoit.passes.matching import is_call
from pydoit.tvm_compat import relax

MOVEMENTS = frozenset(("relax.reshape", "relax.permute_dims", "relax.nn.max_pool2d", "relax.nn.relu"))
"""Operators that hand on values of their first argument as they are, so that the cast may as well come after them."""


def narrow_source(value: Any, lookup: Callable[[Any], Any]) -> Any:
    """The bfloat16 value that a float32 one is a cast of, or None."""
    bound = lookup(value) if isinstance(value, relax.Var) else value
    if is_call(bound, "astype") and bound.args[0].ty.dtype == "bfloat16":
        return bound.args[0]
    return None


class NarrowCasts:
    """Casts of one function that is being rewritten; each value is narrowed once."""

    def __init__(self, builder: Any, lookup: Callable[[Any], Any]) -> None:
        self._builder = builder
        self._lookup = lookup
        self._known: dict[Any, Any] = {}

    def narrowed(self, value: Any) -> Any:
        """The value in bfloat16."""
        source = narrow_source(value, self._lookup)
        if source is not None:
            return source
        if value not in self._known:
            self._known[value] = self._builder.emit(relax.op.astype(value, "bfloat16"))
        return self._known[value]

    def moved(self, value: Any) -> Any:
        """A movement of a widened value as the widened movement, None for any other call."""
        if not isinstance(value, relax.Call) or getattr(value.op, "name", "") not in MOVEMENTS:
            return None
        source = narrow_source(value.args[0], self._lookup)
        if source is None:
            return None
        attrs = value.attrs
        call = relax.Call(value.op, [source, *value.args[1:]], attrs)
        return relax.op.astype(self._builder.emit(call), "float32")
