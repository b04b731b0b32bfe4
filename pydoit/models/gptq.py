"""Rounds a weight matrix so that the errors of its columns make up for each other on calibration inputs.

GPTQ (Frantar et al., 2023, arXiv:2210.17323) with activation order and static groups, in float64 on one thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import log10
from typing import TYPE_CHECKING

import numpy as np

from pydoit.errors import UserError
from pydoit.kernels.cpu.weight_format import Array, Quantized, WeightFormat, dequantize, quantize

if TYPE_CHECKING:
    import torch

DAMPING = 0.01
"""Part of the mean diagonal that is added to the diagonal; ten times as much until the matrix is positive definite."""
BLOCK = 64
"""Columns whose updates of the later ones are applied together."""
SHRUNK = tuple(1 - 0.03 * step for step in range(11))
"""Scales that are tried, as parts of the one that reaches a group's extremes."""


@dataclass(frozen=True)
class Compensated:
    """A rounded matrix, and what is lost of its product with the calibration inputs."""

    quantized: Quantized
    error: float
    """Norm of the product's error over the norm of the product."""
    nearest_error: float
    """The same, had every value been rounded to the nearest."""


def compensate(weight_format: WeightFormat, weights: Array, hessian: torch.Tensor, *, search: bool = True) -> Compensated:
    """Round float32 weights [n, k] to int4; `hessian` is X^T X of float64 [k, k] for inputs X of any number of rows, or a
    multiple of it.

    `search` tries smaller scales too. No row's error is larger than that of rounding to the nearest. Raises UserError
    where weights or Hessian are not finite.
    """
    import torch

    if not np.isfinite(weights).all():
        raise UserError("the weights are not finite; correct the checkpoint")
    if not bool(torch.isfinite(hessian).all()):
        raise UserError("the calibration gives inputs that are NaN or infinite; look for such weights in the checkpoint")
    target = torch.from_numpy(np.asarray(weights, np.float64))
    damped = _damped(hessian)
    order = torch.argsort(damped.diagonal(), descending=True, stable=True)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(damped[order][:, order]))
    factor = torch.linalg.cholesky(inverse.contiguous()).mH
    nearest = quantize(weight_format, weights)
    chosen = _search(weight_format, weights, _importance(factor, order)) if search else nearest
    values = _compensated(weight_format, target, chosen, factor, order)
    found = Quantized(values, chosen.scale, chosen.minimum)
    better = _errors(target, found, hessian) < _errors(target, nearest, hessian)
    kept = _merged(better.numpy(), found, nearest)
    norm = float(_weighted(target, hessian).sum()) or 1.0
    losses = [float(_errors(target, item, hessian).sum().clamp(min=0)) for item in (kept, nearest)]
    return Compensated(kept, (losses[0] / norm) ** 0.5, (losses[1] / norm) ** 0.5)


def decibels(error: float) -> float | None:
    """Signal over noise of a relative error; None where there is no noise."""
    return -20 * log10(error) if error > 0 else None


def _damped(hessian: torch.Tensor) -> torch.Tensor:
    """The Hessian made positive definite; inputs that are always zero become independent ones of mean weight."""
    import torch

    damped = hessian.clone()
    diagonal = damped.diagonal()
    mean = float(diagonal.mean())
    if mean <= 0:
        return torch.eye(len(hessian), dtype=torch.float64)
    diagonal[diagonal == 0] = mean
    added = DAMPING * mean
    diagonal += added
    while int(torch.linalg.cholesky_ex(damped)[1]) != 0:
        diagonal += 9 * added
        added *= 10
    return damped


def _importance(factor: torch.Tensor, order: torch.Tensor) -> Array:
    """What a unit error of a column costs once the later ones have made up for it."""
    import torch

    found = torch.empty(len(factor), dtype=torch.float64)
    found[order] = factor.diagonal() ** -2
    return np.asarray(found.numpy())


def _compensated(
    weight_format: WeightFormat, target: torch.Tensor, chosen: Quantized, factor: torch.Tensor, order: torch.Tensor
) -> Array:
    """The values: each column is rounded in turn, and its error taken out of those that are still to come."""
    import torch

    low, high = (-8, 7) if weight_format.symmetric else (0, 15)
    scale, minimum = (_by_column(item, chosen.values.shape, order) for item in (chosen.scale, chosen.minimum))
    divisor = torch.where(scale == 0, 1, scale)
    rest = target.T[order].contiguous()
    count = len(rest)
    values = torch.zeros(rest.shape, dtype=torch.float32)
    for first in range(0, count, BLOCK):
        last = min(first + BLOCK, count)
        block, errors = rest[first:last], torch.zeros_like(rest[first:last])
        for index, column in enumerate(range(first, last)):
            # In float32, as `quantize` rounds: weights that nothing has changed become the same values.
            shifted = block[index].float() - minimum[column]
            values[column] = (shifted / divisor[column]).round().clamp(low, high)
            stored = values[column].double() * scale[column].double() + minimum[column].double()
            errors[index] = (block[index] - stored) / factor[column, column]
            block[index + 1 :] -= factor[column, column + 1 : last, None] * errors[index]
        rest[last:] -= factor[first:last, last:].T @ errors
    result = torch.empty_like(values)
    result[order] = values
    return np.ascontiguousarray(result.T.numpy()).astype(chosen.values.dtype)


def _by_column(groups: Array | None, shape: tuple[int, ...], order: torch.Tensor) -> torch.Tensor:
    """float32 [k, n] of what the groups have, zeros for None."""
    import torch

    rows, depth = shape
    if groups is None:
        return torch.zeros((depth, 1))
    whole = dequantize(Quantized(np.ones((rows, depth), np.int8), groups))
    return torch.from_numpy(whole.T)[order].contiguous()


def _search(weight_format: WeightFormat, weights: Array, importance: Array) -> Quantized:
    """Group by group the scale, of those in `SHRUNK`, whose rounding errors weigh least."""
    best: Quantized | None = None
    least = np.empty(0)
    for candidate in _candidates(weight_format, weights):
        found = _rounded_to(weight_format, weights, candidate)
        losses = (dequantize(found).astype(np.float64) - weights) ** 2 * importance
        starts = np.arange(0, weights.shape[1], weight_format.group_size or weights.shape[1])
        loss = np.add.reduceat(losses, starts, axis=1)
        if best is None:
            best, least = found, loss
            continue
        better = loss < least
        least = np.where(better, loss, least)
        best = _with_groups(better, found, best)
    assert best is not None
    return best


def _candidates(weight_format: WeightFormat, weights: Array) -> Iterable[Quantized]:
    """The rule's scales made smaller; symmetric ones with either sign, for it decides which side has the eighth step."""
    full = quantize(weight_format, weights)
    kept = full.scale.dtype
    for sign in (1, -1) if weight_format.symmetric else (1,):
        for part in SHRUNK:
            scale = (full.scale.astype(np.float32) * np.float32(sign * part)).astype(kept)
            minimum = None if full.minimum is None else (full.minimum.astype(np.float32) * np.float32(part)).astype(kept)
            yield Quantized(full.values, scale, minimum)


def _rounded_to(weight_format: WeightFormat, weights: Array, candidate: Quantized) -> Quantized:
    """The nearest values for the candidate's scales."""
    low, high = (-8, 7) if weight_format.symmetric else (0, 15)
    shape = weights.shape
    ones = np.ones(shape, np.int8)
    scale = dequantize(Quantized(ones, candidate.scale))
    shifted = weights if candidate.minimum is None else weights - dequantize(Quantized(ones, candidate.minimum))
    values = np.clip(np.rint(shifted / np.where(scale == 0, 1, scale)), low, high)
    return Quantized(values.astype(candidate.values.dtype), candidate.scale, candidate.minimum)


def _with_groups(better: Array, first: Quantized, second: Quantized) -> Quantized:
    """Groups [n, groups] of the first where `better`, else of the second."""
    minimum = None
    if first.minimum is not None and second.minimum is not None:
        minimum = np.where(better, first.minimum, second.minimum)
    whole = dequantize(Quantized(np.ones(first.values.shape, np.int8), better.astype(np.float32))) > 0
    return Quantized(np.where(whole, first.values, second.values), np.where(better, first.scale, second.scale), minimum)


def _merged(better: Array, first: Quantized, second: Quantized) -> Quantized:
    """Rows of the first where `better`, else of the second."""
    return _with_groups(np.broadcast_to(better[:, None], first.scale.shape), first, second)


def _errors(target: torch.Tensor, quantized: Quantized, hessian: torch.Tensor) -> torch.Tensor:
    """Squared error of each row's product with the inputs."""
    import torch

    return _weighted(target - torch.from_numpy(dequantize(quantized)).double(), hessian)


def _weighted(rows: torch.Tensor, hessian: torch.Tensor) -> torch.Tensor:
    return ((rows @ hessian) * rows).sum(1)
