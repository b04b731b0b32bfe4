"""Register tiles: each candidate computes the same, whatever divides the extents, on every vector width."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pydoit.kernels import compute
from pydoit.kernels.lowering import compile_module
from pydoit.kernels.machine import Machine
from pydoit.kernels.scheduling import plan_function, schedule_function
from pydoit.kernels.tile import Tile, tile_fits
from pydoit.kernels.tile_space import default_tile, tile_choices
from pydoit.target import ResolvedTarget, make_tvm_target
from pydoit.tvm_compat import IRModule, te, tirx, tvm

TARGET = make_tvm_target(ResolvedTarget(kind="cpu", arch="x86-64-v3"))
MACHINE = Machine.of(TARGET)


def product(rows: int, depth: int, columns: int) -> Any:
    """relu(data @ weights + bias) on panels of 8 columns."""
    data = te.placeholder((rows, depth), name="data")
    weight = te.placeholder((columns // 8, depth, 8), name="weight")
    bias = te.placeholder((columns,), name="bias")
    summed = compute.packed_matmul(data, weight, columns)
    zero = tirx.const(0, "float32")
    result = te.compute((rows, columns), lambda row, column: tirx.max(summed[row, column] + bias[column], zero), name="result")
    return te.create_prim_func([data, weight, bias, result])


def run(function: Any, *arguments: np.ndarray[Any, Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    library = compile_module(IRModule({"main": function.with_attr("global_symbol", "main")}), TARGET)
    out = tvm.runtime.tensor(np.full(shape, np.nan, np.float32))
    library["main"](*[tvm.runtime.tensor(argument) for argument in arguments], out)
    return out.numpy()


def test_every_candidate_of_a_product_agrees_with_numpy() -> None:
    rows, depth, columns = 12, 20, 48
    random = np.random.default_rng(0)
    data, weight = (random.standard_normal(shape).astype("float32") for shape in ((rows, depth), (depth, columns)))
    bias = random.standard_normal(columns).astype("float32")
    panels = np.ascontiguousarray(weight.reshape(depth, columns // 8, 8).transpose(1, 0, 2))
    expected = np.maximum(data.astype(np.float64) @ weight + bias, 0)
    function = product(rows, depth, columns)
    anchor = plan_function(function).anchor
    assert anchor is not None
    tiles = tile_choices(anchor, MACHINE)
    assert tiles[0] == default_tile(anchor, MACHINE)
    assert len(tiles) == len(set(tiles))
    for tile in tiles[:: max(1, len(tiles) // 12)]:
        assert tile_fits(anchor, tile)
        found = run(schedule_function(function, MACHINE, tile), data, panels, bias, shape=(rows, columns))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5, err_msg=str(tile))


@pytest.mark.parametrize("inline", [True, False])
def test_padding_of_a_window_may_be_stored_or_computed_where_it_is_read(inline: bool) -> None:
    data = te.placeholder((1, 6, 6, 16), name="data")
    weight = te.placeholder((3, 3, 16), name="weight")
    result = compute.depthwise_conv2d(data, weight, (1, 1), (1, 1, 1, 1), (1, 1))
    function = te.create_prim_func([data, weight, result])
    tile = Tile(rows=3, vectors=1, width=8, inline=inline)
    values = np.random.default_rng(0).standard_normal((1, 6, 6, 16)).astype("float32")
    taps = np.random.default_rng(1).standard_normal((3, 3, 16)).astype("float32")
    padded = np.pad(values, ((0, 0), (1, 1), (1, 1), (0, 0)))
    expected = sum(padded[:, y : y + 6, x : x + 6] * taps[y, x] for y in range(3) for x in range(3))
    found = run(schedule_function(function, MACHINE, tile), values, taps, shape=(1, 6, 6, 16))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("lanes", "registers"), [(4, 16), (8, 16), (16, 32)])
@pytest.mark.parametrize("rows", [1, 13, 49, 128, 196])
def test_the_default_fits_registers_and_extents(rows: int, lanes: int, registers: int) -> None:
    anchor = plan_function(product(rows, 64, 192)).anchor
    assert anchor is not None
    tile = default_tile(anchor, Machine(lanes, registers))
    assert tile_fits(anchor, tile)
    assert tile.rows * tile.vectors + tile.vectors + 1 <= registers + 1
    # enough independent sums to hide the latency of a multiply-add, where the extents allow it
    assert tile.rows * tile.vectors >= 6


def test_large_weights_are_read_once() -> None:
    small, large = (plan_function(product(14, depth, 256)).anchor for depth in (64, 4608))
    assert small is not None
    assert large is not None
    assert not default_tile(small, MACHINE).columns_outer
    assert default_tile(large, MACHINE).columns_outer


@pytest.mark.parametrize(
    ("left", "right"),
    [((3, 13, 7), (3, 7, 5)), ((13, 7), (7, 17)), ((3, 13, 7), (7, 17)), ((2, 1, 5, 9), (1, 3, 9, 11)), ((1, 1), (1, 1))],
)
def test_products_of_odd_extents_are_padded(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    values = [random.standard_normal(shape).astype("float32") for shape in (left, right)]
    expected = values[0].astype(np.float64) @ values[1]
    operands = [te.placeholder(array.shape, name=name) for array, name in zip(values, "ab", strict=True)]
    function = te.create_prim_func([*operands, compute.padded_matmul(*operands, MACHINE.lanes)])
    found = run(schedule_function(function, MACHINE), *values, shape=expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
