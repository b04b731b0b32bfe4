"""Rows of a packed matrix by token id: the embedding of a model whose head is the same matrix."""

from __future__ import annotations

from typing import Any

from pydoit.kernels.cpu.emit import argument, primitive
from pydoit.kernels.cpu.weight_format import K_IN_WORD, WeightFormat, packed_tensors
from pydoit.target import CPU_LANES, ResolvedTarget
from pydoit.tvm_compat import script, tirx


def embed(weight_format: WeightFormat, rows: Any, n: int, k: int, target: ResolvedTarget) -> Any:
    """Return the TIR function of out[r] = w[tokens[r]], in float32.

    Arguments of the function: the tensors of `packed_tensors(weight_format, n, k, lanes)` in their order, tokens int32
    [rows] within 0..n - 1, out float32 [rows, k]. `rows` is a number or a tirx.Var.
    """
    lanes = CPU_LANES[target.arch]

    def emit() -> None:
        wanted = packed_tensors(weight_format, n, k, lanes)
        tensors = {name: argument(name, shape, dtype) for name, (shape, dtype) in wanted.items()}
        tokens = argument("tokens", (rows,), "int32")
        out = argument("out", (rows, k))
        loop = script.serial(0, 1) if isinstance(rows, int) and rows == 1 else script.parallel(0, rows)
        with loop as row:
            token = script.bind(tokens[row])
            with script.serial(0, k) as column:
                script.buffer_store(out, _element(weight_format, tensors, token // lanes, column, token % lanes), [row, column])

    return primitive("embed", emit)


def _element(weight_format: WeightFormat, tensors: dict[str, Any], panel: Any, column: Any, lane: Any) -> Any:
    """w[panel * lanes + lane, column] in float32."""
    in_word = K_IN_WORD[weight_format.dtype]
    across = lane * 2 + column % 2 if weight_format.dtype == "int8" else lane
    stored = tensors["weight"][panel, column // in_word, across]
    if weight_format.dtype == "float32":
        return stored
    if weight_format.dtype == "bfloat16":
        bits = tirx.if_then_else(column % 2 == 0, stored << tirx.const(16, "uint32"), stored & tirx.const(0xFFFF0000, "uint32"))
        return tirx.reinterpret("float32", bits)
    value = stored
    if weight_format.dtype == "int4":
        shift = tirx.Cast("uint32", column % 2 * 16 + column % 8 // 2 * 4)
        nibble = tirx.reinterpret("int32", (stored >> shift) & tirx.const(15, "uint32"))
        value = nibble - tirx.const(8 if weight_format.symmetric else 0, "int32")
    group = column // weight_format.group_size if weight_format.group_size else tirx.const(0, "int32")
    scaled = tirx.Cast("float32", value) * tirx.Cast("float32", tensors["scale"][panel, group, lane])
    if "minimum" in tensors:
        scaled = scaled + tirx.Cast("float32", tensors["minimum"][panel, group, lane])
    return scaled
