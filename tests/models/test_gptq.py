"""GPTQ: what it never does worse than rounding to the nearest, where both are the same, and inputs that break it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pydoit.errors import UserError
from pydoit.kernels.cpu.weight_format import Array, Quantized, WeightFormat, dequantize, pack, quantize
from pydoit.models.gptq import compensate, decibels

FORMATS = [WeightFormat("int4", size, symmetric=symmetric) for size in (32, 128) for symmetric in (True, False)]


def inputs(depth: int, rows: int = 300, seed: int = 0) -> torch.Tensor:
    """Correlated inputs of very different sizes, as those of a decoder's layers are."""
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(depth, depth, generator=generator, dtype=torch.float64)
    sizes = torch.exp(torch.randn(depth, generator=generator, dtype=torch.float64))
    return torch.randn(rows, depth, generator=generator, dtype=torch.float64) @ (mixing / depth**0.5 + torch.eye(depth)) * sizes


def hessian(values: torch.Tensor) -> torch.Tensor:
    return 2 * values.T @ values


def matrix(rows: int, depth: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=(rows, depth)).astype(np.float32)


def losses(weights: Array, quantized: Quantized, matrix: torch.Tensor) -> Array:
    difference = torch.from_numpy(weights - dequantize(quantized)).double()
    return np.asarray(((difference @ matrix) * difference).sum(1).numpy())


def same(one: Quantized, other: Quantized) -> bool:
    pairs = ((one.values, other.values), (one.scale, other.scale), (one.minimum, other.minimum))
    return all(first is second is None or np.array_equal(first, second) for first, second in pairs)  # type: ignore[arg-type]


@pytest.mark.parametrize("chosen", FORMATS, ids=str)
@pytest.mark.parametrize(("rows", "depth"), [(7, 130), (16, 256), (1, 33), (3, 20)])
def test_no_row_is_worse_than_rounding_to_the_nearest(chosen: WeightFormat, rows: int, depth: int) -> None:
    """Groups that do not divide the depth and odd numbers of channels are among them."""
    for seed in range(3):
        weights, weighting = matrix(rows, depth, seed), hessian(inputs(depth, seed=seed))
        for search in (False, True):
            found = compensate(chosen, weights, weighting, search=search)
            assert np.all(losses(weights, found.quantized, weighting) <= losses(weights, quantize(chosen, weights), weighting))
            assert found.error <= found.nearest_error
            pack(chosen, found.quantized, 16)  # which checks ranges and shapes


@pytest.mark.parametrize("chosen", FORMATS, ids=str)
def test_correlated_inputs_gain(chosen: WeightFormat) -> None:
    found = compensate(chosen, matrix(64, 256), hessian(inputs(256)))
    assert found.error < 0.8 * found.nearest_error


@pytest.mark.parametrize("chosen", FORMATS, ids=str)
@pytest.mark.parametrize("scale", [1.0, 37.5])
def test_independent_inputs_are_rounded_to_the_nearest(chosen: WeightFormat, scale: float) -> None:
    weights = matrix(9, 200)
    found = compensate(chosen, weights, scale * torch.eye(200, dtype=torch.float64), search=False)
    assert same(found.quantized, quantize(chosen, weights))


def test_the_bytes_do_not_depend_on_threads() -> None:
    weights, weighting = matrix(64, 256), hessian(inputs(256))
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 1, 2):
            torch.set_num_threads(threads)
            found.append(compensate(FORMATS[0], weights, weighting).quantized)
    finally:
        torch.set_num_threads(before)
    assert same(found[0], found[1])
    assert same(found[0], found[2])


@pytest.mark.parametrize("chosen", FORMATS, ids=str)
def test_channels_without_a_spread(chosen: WeightFormat) -> None:
    """All-zero and constant channels, and a group of zeros within a channel."""
    weights = matrix(5, 256)
    weights[0] = 0
    weights[1] = 0.75
    weights[2] = -0.75
    weights[3, :128] = 0
    weighting = hessian(inputs(256))
    found = compensate(chosen, weights, weighting).quantized
    values = dequantize(found)
    assert np.isfinite(values).all()
    assert not values[0].any()
    assert np.abs(values[1:3] - weights[1:3]).max() < 1e-3
    assert np.all(losses(weights, found, weighting) <= losses(weights, quantize(chosen, weights), weighting))


def test_inputs_that_are_never_active() -> None:
    """Their weights are rounded to the nearest, and the others as if they were not there."""
    chosen, weights, given = FORMATS[0], matrix(8, 96), inputs(96)
    dead = torch.zeros(96, dtype=torch.bool)
    dead[[0, 31, 50, 95]] = True
    given[:, dead] = 0
    found = compensate(chosen, weights, hessian(given), search=False).quantized
    assert np.array_equal(found.values[:, dead.numpy()], quantize(chosen, weights).values[:, dead.numpy()])
    assert same(
        compensate(chosen, weights, torch.zeros(96, 96, dtype=torch.float64), search=False).quantized, quantize(chosen, weights)
    )


@pytest.mark.parametrize("rows", [1, 5])
def test_fewer_inputs_than_channels(rows: int) -> None:
    """The Hessian is singular; damping makes it a positive definite one."""
    weights, weighting = matrix(8, 96), hessian(inputs(96, rows=rows))
    found = compensate(FORMATS[0], weights, weighting)
    assert found.error < 0.5 * found.nearest_error


def test_a_hessian_that_rounding_made_indefinite() -> None:
    weighting = torch.eye(32, dtype=torch.float64)
    weighting[0, 1] = weighting[1, 0] = 1.5
    found = compensate(FORMATS[0], matrix(4, 32), weighting)
    assert np.isfinite(dequantize(found.quantized)).all()


@pytest.mark.parametrize("factor", [1e3, 1e-3])
@pytest.mark.parametrize("kind", ["output", "input", "weights of an input", "weight"])
def test_outlier_channels(kind: str, factor: float) -> None:
    """A thousand times as large as the others, or as small."""
    chosen, weights, given = FORMATS[1], matrix(8, 256), inputs(256)
    place = {"output": np.s_[2], "weights of an input": np.s_[:, 7], "weight": np.s_[5, 5]}.get(kind)
    if place is None:
        given[:, 11] *= factor
    else:
        weights[place] *= factor
    weighting = hessian(given)
    found = compensate(chosen, weights, weighting).quantized
    assert np.all(losses(weights, found, weighting) <= losses(weights, quantize(chosen, weights), weighting))


def test_scales_below_float16() -> None:
    """Weights of 1e-9 have scales that float16 rounds to zero: they become zeros and nothing is divided by zero."""
    weights = matrix(4, 64)
    weights[1] *= 1e-9
    weights[2, :32] *= 1e-9
    weights[3] *= 1e-6
    found = compensate(FORMATS[0], weights, hessian(inputs(64))).quantized
    assert np.isfinite(dequantize(found)).all()
    assert not dequantize(found)[1].any()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_inputs_that_are_not_finite(value: float) -> None:
    weighting = torch.eye(32, dtype=torch.float64)
    weighting[3, 4] = value
    with pytest.raises(UserError, match="NaN or infinite"):
        compensate(FORMATS[0], matrix(4, 32), weighting)


def test_decibels() -> None:
    assert decibels(0.1) == pytest.approx(20)
    assert decibels(0.0) is None
