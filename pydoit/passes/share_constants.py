"""ShareConstants: equal constants of a function become one binding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydoit.digest import hash_bytes
from pydoit.tvm_compat import PyExprMutator, ir, mutator, relax

MAX_COMPARED_BYTES = 4096
"""Constants beyond this size are compared by the SHA-256 of their bytes."""

Key = tuple[str, tuple[int, ...], bytes | str]


@dataclass(frozen=True)
class ShareConstants:
    """Bind constants that are equal in dtype, shape and bytes once, where the first of them is read.

    Importers write a mask or a table anew for each layer; as one value it is stored once, and what is computed of it is
    one common subexpression. Scalars stay in place, because lowering writes them into the code; so do constants that
    occur once, and those in the branches of an `if`.
    """

    def __call__(self, module: Any) -> Any:
        """Return the module with equal constants bound once in each function."""
        for name, function in module.functions_items():
            if isinstance(function, relax.Function):
                blocks = _blocks_by_constant(function)
                if any(len(places) > 1 for places in blocks.values()):
                    module.update_func(name, _Sharer(module, function, blocks).visit_expr(function))
        return module


def _blocks_by_constant(function: Any) -> dict[Key, list[int]]:
    """For each constant the numbers of the blocks of its occurrences."""
    found: dict[Key, list[int]] = {}
    for number, block in enumerate(function.body.blocks):
        for binding in block.bindings:
            for constant in _constants(binding.value) if isinstance(binding, relax.VarBinding) else ():
                found.setdefault(_key(constant), []).append(number)
    return found


def _constants(value: Any) -> Iterator[Any]:
    """The tensors with axes among a value's operands, or the value itself."""
    if isinstance(value, ir.GenericConst) and len(value.ty.shape):
        yield value
    for operand in value.args if isinstance(value, relax.Call) else value.fields if isinstance(value, relax.Tuple) else ():
        yield from _constants(operand)


def _key(constant: Any) -> Key:
    data = constant.value.numpy()
    stored = data.tobytes()
    content = stored if len(stored) <= MAX_COMPARED_BYTES else hash_bytes(stored)
    return str(constant.ty.dtype), data.shape, content


@mutator
class _Sharer(PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: Any, function: Any, blocks: dict[Key, list[int]]) -> None:
        super().__init__(module)
        self._blocks = blocks
        self._own = {binding.var for block in function.body.blocks for binding in block.bindings}
        self._variables: dict[Key, Any] = {}
        self._shares = False

    def visit_var_binding_(self, binding: Any) -> None:
        """Share what a binding of the function itself reads, not what functions and branches in it do."""
        outer = self._shares
        nested = isinstance(binding.value, relax.Function | relax.If | relax.SeqExpr)
        self._shares = binding.var in self._own and not nested
        super().visit_var_binding_(binding)
        self._shares = outer

    def visit_generic_const_(self, constant: Any) -> Any:
        """Return the variable of a constant that occurs several times."""
        if not self._shares or not len(constant.ty.shape):
            return constant
        key = _key(constant)
        places = self._blocks.get(key, [])
        if len(places) < 2:
            return constant
        if key not in self._variables:
            several = len(set(places)) > 1 and self.builder_.current_block_is_dataflow()
            self._variables[key] = self.builder_.emit_output(constant) if several else self.builder_.emit(constant)
        return self._variables[key]
