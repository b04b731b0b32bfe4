"""Linear layers over packed weights: matrix-vector for one row, tiled matrix products for several."""

from __future__ import annotations

from typing import Any, Literal

from pydoit.errors import UserError
from pydoit.kernels.cpu.amx import emit_tile_gemm, with_tiles
from pydoit.kernels.cpu.emit import argument, primitive
from pydoit.kernels.cpu.epilogue import Epilogue
from pydoit.kernels.cpu.gemm import emit_gemm
from pydoit.kernels.cpu.gemv import emit_gemv
from pydoit.kernels.cpu.integer_gemm import emit_integer_gemm
from pydoit.kernels.cpu.integer_gemv import emit_integer_gemv
from pydoit.kernels.cpu.unpack import PackedWeights
from pydoit.kernels.cpu.weight_format import WeightFormat
from pydoit.target import CPU_LANES, ResolvedTarget

LinearEpilogue = Literal["residual", "silu_gate"]


def linear(
    weight_format: WeightFormat,
    rows: Any,
    n: int,
    k: int,
    target: ResolvedTarget,
    *,
    bias: bool = False,
    epilogue: LinearEpilogue | None = None,
) -> Any:
    """Return the TIR function of out = x @ w.T (+ bias) (+ residual), float32 in and out.

    Arguments of the function: x float32 [rows, k], the tensors of `packed_tensors(weight_format, n, k, lanes)` in their
    order, bias float32 [n] if asked for, residual float32 [rows, n] if asked for, out float32 [rows, n]. `rows` is a
    number (1: a matrix-vector product) or a tirx.Var. With epilogue "silu_gate" the weights are those of `pack_gated`
    (n channels in all) and out is silu(gate) * up of shape [rows, n / 2].

    Raises UserError where gated weights have a bias or an odd number of channels.
    """
    gated = epilogue == "silu_gate"
    if gated and (bias or n % 2):
        raise UserError("a gated linear layer has an even number of channels and no bias; use two linear layers")
    lanes = CPU_LANES[target.arch]

    def emit() -> None:
        x = argument("x", (rows, k))
        weights = PackedWeights.declare(weight_format, n, k, lanes)
        added = argument("bias", (n,)) if bias else None
        residual = argument("residual", (rows, n)) if epilogue == "residual" else None
        finish = Epilogue(argument("out", (rows, n // 2 if gated else n)), lanes, added, residual, gated)
        single = isinstance(rows, int) and rows == 1
        quantized = weight_format.quantized
        if single:
            emit_integer_gemv(x, weights, finish, target.arch) if quantized else emit_gemv(x, weights, finish)
            return

        def vectors() -> None:
            emit_integer_gemm(x, rows, weights, finish, target.arch) if quantized else emit_gemm(x, rows, weights, finish)

        tiles = lambda: emit_tile_gemm(x, rows, weights, finish)  # noqa: E731
        with_tiles(target.arch, rows, weight_format.dtype, tiles, vectors)

    return primitive("linear", emit)
