"""Differences between a compiled model's outputs and its reference's, accumulated over samples."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydoit.errors import GateError

Outputs = Mapping[str, NDArray[Any]]
DISTINCT = 1e-6
"""Two reference outputs are distinct when they differ by more than this fraction of the larger magnitude."""


@dataclass
class Errors:
    """Worst differences of one output over all samples so far."""

    max_abs: float = 0.0
    max_rel: float = 0.0
    cosine: float = 1.0
    worst_sample: int = 0
    """The sample with the largest absolute difference."""
    sum_abs: float = 0.0
    elements: int = 0
    not_finite: int = 0
    """Elements that are NaN or infinite in the compiled model but not in the reference."""

    def add(self, sample: int, actual: NDArray[Any], expected: NDArray[Any]) -> None:
        """Take one sample's output in."""
        found, wanted = actual.astype(np.float64).ravel(), expected.astype(np.float64).ravel()
        same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
        self.not_finite += int((~np.isfinite(found) & ~same).sum())
        with np.errstate(invalid="ignore"):
            difference = np.where(same, 0.0, np.abs(found - wanted))
        difference = np.where(np.isfinite(difference), difference, math.inf)
        largest = float(difference.max(initial=0.0))
        if largest > self.max_abs:
            self.max_abs, self.worst_sample = largest, sample
        scale = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0))
        self.max_rel = max(self.max_rel, largest / scale if scale else (math.inf if largest else 0.0))
        self.cosine = min(self.cosine, _cosine(found, wanted))
        self.sum_abs += float(difference.sum())
        self.elements += difference.size

    def summary(self) -> dict[str, Any]:
        """The metrics as JSON values; `max_rel` is relative to the largest magnitude of the sample's reference."""
        return {
            "max_abs": _number(self.max_abs),
            "max_rel": _number(self.max_rel),
            "mean_abs": _number(self.sum_abs / max(self.elements, 1)),
            "cosine": _number(self.cosine),
            "worst_sample": self.worst_sample,
            "not_finite": self.not_finite,
        }


@dataclass
class Comparison:
    """All outputs of a model over all samples."""

    outputs: dict[str, Errors] = field(default_factory=dict)
    samples: int = 0
    references: list[dict[str, NDArray[Any]]] = field(default_factory=list)
    """Distinct outputs of the reference."""

    def add(self, actual: Outputs, expected: Outputs) -> None:
        """Take one sample in."""
        for name, wanted in expected.items():
            found = actual[name]
            if found.shape != wanted.shape or found.dtype.kind != wanted.dtype.kind:
                text = f"verify: output {name!r} is {found.dtype} {list(found.shape)}, the reference's"
                raise GateError(f"{text} {wanted.dtype} {list(wanted.shape)}; the import is wrong", {"samples": self.samples})
            self.outputs.setdefault(name, Errors()).add(self.samples, actual[name], wanted)
        if all(_differ(expected, known) for known in self.references):
            self.references.append({name: np.array(array) for name, array in expected.items()})
        self.samples += 1

    def summary(self) -> dict[str, Any]:
        """Worst metrics over the outputs, and each output's own under `outputs`."""
        each = {name: errors.summary() for name, errors in self.outputs.items()}
        worst = max(each, key=lambda name: self.outputs[name].max_abs)
        total = sum(errors.elements for errors in self.outputs.values())
        return {
            "samples": self.samples,
            "distinct_outputs": len(self.references),
            "max_abs": each[worst]["max_abs"],
            "max_rel": _number(max(errors.max_rel for errors in self.outputs.values())),
            "mean_abs": _number(sum(errors.sum_abs for errors in self.outputs.values()) / max(total, 1)),
            "cosine": _number(min(errors.cosine for errors in self.outputs.values())),
            "not_finite": sum(errors.not_finite for errors in self.outputs.values()),
            "worst_output": worst,
            "worst_sample": self.outputs[worst].worst_sample,
            "outputs": each,
        }


def _cosine(found: NDArray[np.float64], wanted: NDArray[np.float64]) -> float:
    if np.array_equal(found, wanted, equal_nan=True):
        return 1.0
    norms = float(np.linalg.norm(found)) * float(np.linalg.norm(wanted))
    return float(found @ wanted) / norms if norms and math.isfinite(norms) else 0.0


def _differ(one: Outputs, other: Outputs) -> bool:
    """Outputs of different shapes are compared where both have elements, so that the shape alone makes no difference."""
    for name, array in one.items():
        common = tuple(slice(min(sizes)) for sizes in zip(array.shape, other[name].shape, strict=True))
        mine, theirs = array[common].astype(np.float64), other[name][common].astype(np.float64)
        scale = max(float(np.abs(mine).max(initial=0.0)), float(np.abs(theirs).max(initial=0.0)))
        if float(np.abs(mine - theirs).max(initial=0.0)) > DISTINCT * scale:
            return True
    return False


def _number(value: float) -> float | str:
    """JSON has no infinity: it is written as text."""
    return value if math.isfinite(value) else str(value)
