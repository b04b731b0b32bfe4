"""Products of several rows with a weight matrix on tensor cores, finished in registers: bias, residual, gated SiLU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import triton
import triton.language as tl

from pydoit.kernels.triton.launch import Launch, TritonFunction
from pydoit.kernels.triton.tile import Tile
from pydoit.kernels.triton.types import pointer


@triton.jit
def multiply(
    x, weight, bias, residual, out, rows,
    N: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
    GATED: tl.constexpr, BIAS: tl.constexpr, RESIDUAL: tl.constexpr, BAND: tl.constexpr,
):  # fmt: skip
    """out[rows, N] = x[rows, K] weight^T, or silu(x G^T) * (x U^T) where weight [2 N, K] holds G above U."""
    program = tl.program_id(0)
    row_tiles = tl.cdiv(rows, ROWS)
    column_tiles: tl.constexpr = (N + COLUMNS - 1) // COLUMNS
    # A band of row tiles goes over the columns together, so that its weights are still in the L2 cache.
    in_band = BAND * column_tiles
    first = program // in_band * BAND
    height = tl.minimum(row_tiles - first, BAND)
    row_tile = first + program % in_band % height
    column_tile = program % in_band // height
    row = row_tile * ROWS + tl.arange(0, ROWS)
    column = column_tile * COLUMNS + tl.arange(0, COLUMNS)
    deep = tl.arange(0, DEPTH)
    # Rows and columns beyond the end read the last ones; they are not stored.
    x_at = x + tl.minimum(row, rows - 1).to(tl.int64)[:, None] * K + deep[None, :]
    w_at = weight + tl.minimum(column, N - 1).to(tl.int64)[None, :] * K + deep[:, None]
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    up = tl.zeros([ROWS, COLUMNS], tl.float32)
    for step in range((K + DEPTH - 1) // DEPTH):
        if K % DEPTH == 0:
            given = tl.load(x_at)
            kept = tl.load(w_at)
        else:
            inside = step * DEPTH + deep < K
            given = tl.load(x_at, mask=inside[None, :], other=0.0)
            kept = tl.load(w_at, mask=inside[:, None], other=0.0)
        total = tl.dot(given, kept, total)
        if GATED:
            if K % DEPTH == 0:
                second = tl.load(w_at + N * K)
            else:
                second = tl.load(w_at + N * K, mask=(step * DEPTH + deep < K)[:, None], other=0.0)
            up = tl.dot(given, second, up)
        x_at += DEPTH
        w_at += DEPTH
    stored = (row < rows)[:, None] & (column < N)[None, :]
    at = row.to(tl.int64)[:, None] * N + column[None, :]
    if BIAS:
        total += tl.load(bias + column, mask=column < N, other=0.0).to(tl.float32)[None, :]
    if RESIDUAL:
        total += tl.load(residual + at, mask=stored, other=0.0).to(tl.float32)
    if GATED:
        total = total / (1.0 + tl.exp(-total)) * up
    tl.store(out + at, total.to(out.dtype.element_ty), mask=stored)


def make(
    symbol: str,
    *,
    n: int,
    k: int,
    tiles: Sequence[Mapping[str, Any]],
    dtype: str,
    out_dtype: str,
    bias: bool,
    residual: bool,
    gated: bool,
) -> TritonFunction:
    """(x [rows, k], weight, bias, residual, out [rows, n]); x stands for a bias or residual that there is not.

    `tiles`: fields of a `Tile` for each class of rows, the fewest rows first.
    """
    names = ("x", "weight", *(("bias",) if bias else ()), *(("residual",) if residual else ()), "out")
    types = {"x": pointer(dtype), "weight": pointer(dtype), "bias": pointer(dtype), "residual": pointer(dtype),
             "out": pointer(out_dtype), "rows": "i32"}  # fmt: skip
    given = ("x", "weight", "bias" if bias else "x", "residual" if residual else "x", "out")
    rows = "static_cast<int32_t>(x.shape()[0])"
    launches = []
    least = 0
    for tile in _distinct([Tile(**fields) for fields in tiles]):
        constants = {"N": n, "K": k, "ROWS": tile.rows, "COLUMNS": tile.columns, "DEPTH": tile.depth, "GATED": gated,
                     "BIAS": bias, "RESIDUAL": residual, "BAND": 8}  # fmt: skip
        blocks = f"(x.shape()[0] + {tile.rows - 1}) / {tile.rows} * {-(-n // tile.columns)}"
        most = "" if tile.most is None else f" && x.shape()[0] <= {tile.most}"
        launches.append(
            Launch(
                multiply,
                types,
                constants,
                (*given, rows),
                (blocks, "1", "1"),
                warps=tile.warps,
                stages=tile.stages,
                when=f"x.shape()[0] > {least}{most}",
            )
        )
        least = tile.most or least
    return TritonFunction(symbol, names, tuple(launches))


def _distinct(tiles: Sequence[Tile]) -> list[Tile]:
    """The tiles without those that the next class of rows is cut up by as well."""
    following = [*tiles[1:], None]
    return [
        tile for tile, after in zip(tiles, following, strict=True) if after is None or replace(tile, most=after.most) != after
    ]
