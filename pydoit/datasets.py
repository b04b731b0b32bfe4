"""Inputs for verify: a workspace function, an .npz file, or seeded random values."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydoit.dims import bounds_of, extents_of_sample, mismatch
from pydoit.errors import UserError
from pydoit.importers.spec import Dim, Input
from pydoit.objects import did_you_mean, load_object
from pydoit.random_tensors import random_sample

Sample = dict[str, NDArray[Any]]


def load(
    dataset: str | Path | None,
    inputs: Mapping[str, Input],
    samples: int,
    seed: int,
    model: Path,
    dims: Mapping[str, Dim] | None = None,
) -> list[Sample]:
    """`samples` inputs by name, each of its declared shape and dtype; symbolic dimensions vary between their bounds.

    `dataset` is `module:callable`, called as f(inputs, samples, seed, model) with inputs name -> {"shape", "dtype"},
    a symbolic dimension in a shape being a name, or the path of an .npz file whose arrays have a leading axis of
    samples. Raises UserError where they do not fit.
    """
    dims = dims or {}
    if dataset is None:
        return [random_sample(inputs, seed, index, extents_of_sample(dims, seed, index)) for index in range(samples)]
    loaded: Any
    if isinstance(dataset, Path):
        loaded = _read_npz(dataset, inputs, samples)
    else:
        described = {name: {"shape": list(item.shape), "dtype": item.dtype} for name, item in inputs.items()}
        loaded = load_object(dataset, "verify.dataset")(described, samples, seed, model)
    if not isinstance(loaded, list) or len(loaded) < samples:
        found = len(loaded) if isinstance(loaded, list) else type(loaded).__name__
        raise UserError(f"verify.dataset: {str(dataset)!r} gives {found}, not {samples} inputs; lower verify.samples")
    return [_checked(sample, inputs, dims, str(dataset)) for sample in loaded[:samples]]


def _read_npz(path: Path, inputs: Mapping[str, Input], samples: int) -> list[Sample]:
    if not path.is_file():
        raise UserError(f"verify.dataset: {path.name!r} does not exist; give a file of the workspace")
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (ValueError, OSError) as error:
        raise UserError(f"verify.dataset: {path.name!r} is no .npz file of plain arrays ({error})") from error
    missing = sorted(set(inputs) - set(arrays))
    if missing:
        raise UserError(f"verify.dataset: {path.name!r} lacks {missing[0]!r}{did_you_mean(missing[0], arrays)}")
    count = min(samples, *(len(arrays[name]) for name in inputs))
    return [{name: arrays[name][index] for name in inputs} for index in range(count)]


def _checked(sample: Sample, inputs: Mapping[str, Input], dims: Mapping[str, Dim], dataset: str) -> Sample:
    for name in sample:
        if name not in inputs:
            raise UserError(f"verify.dataset: {dataset!r} gives an input {name!r}{did_you_mean(name, inputs)}")
    extents: dict[str, int] = {}
    bounds = bounds_of(dims)
    for name, item in inputs.items():
        if name not in sample:
            raise UserError(f"verify.dataset: {dataset!r} does not give the input {name!r}; add it")
        shape, dtype = tuple(sample[name].shape), str(sample[name].dtype)
        if dtype != item.dtype or mismatch(shape, item.shape, bounds, extents):
            raise UserError(
                f"verify.dataset: {dataset!r} gives {name!r} as {dtype} {list(shape)}, "
                f"not {item.dtype} {list(item.shape)}; make it fit [model.inputs.{name}]"
            )
    return {name: np.ascontiguousarray(sample[name]) for name in inputs}
