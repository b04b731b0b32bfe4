"""Which format each parameter of a decoder is kept in, by the recipe's scheme."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from pydoit.errors import UserError
from pydoit.kernels.cpu.weight_format import Quantized, WeightFormat, dequantize, quantize
from pydoit.models.config import DecoderConfig
from pydoit.models.parameters import Parameter, parameters
from pydoit.models.spec import WeightSpec
from pydoit.nearest import nearest

DEFAULT_GROUP = 32
"""Elements that share an int4 scale when the recipe does not say: that of GGUF's Q4_1."""


def weight_format(parameter: Parameter, kept: WeightSpec) -> WeightFormat:
    """The format of a matrix; the head, which int4 would hurt most, stays at int8 as llama.cpp's 4-bit files keep it at 6."""
    if kept.scheme is None or any(fnmatchcase(parameter.name, pattern) for pattern in kept.exclude):
        return WeightFormat(kept.precision, None, symmetric=True)
    if kept.scheme == "int4" and parameter.name not in ("head", "embedding"):
        return WeightFormat("int4", kept.group_size or DEFAULT_GROUP, symmetric=kept.symmetric)
    return WeightFormat("int8", kept.group_size if kept.scheme == "int8" else DEFAULT_GROUP, symmetric=True)


def check_exclude(config: DecoderConfig, kept: WeightSpec) -> None:
    """Raise UserError for a pattern that leaves out nothing: its parameter would be quantized against the recipe's word."""
    names = [parameter.name for parameter in parameters(config) if parameter.kind != "vector"]
    for pattern in kept.exclude:
        if not any(fnmatchcase(name, pattern) for name in names):
            shown = list(dict.fromkeys(re.sub(r"\.\d+\.", ".*.", name) for name in names))
            raise UserError(f"quantization.exclude: {pattern!r} matches no parameter; {nearest(pattern, shown)}")


def fit(chosen: WeightFormat, source: Any) -> Any:
    """A matrix of a checkpoint in the chosen format: its own blocks where they are that already, else rounded anew."""
    if isinstance(source, Quantized) and _is_of(source, chosen):
        return source
    values = dequantize(source) if isinstance(source, Quantized) else source
    return quantize(chosen, values) if chosen.quantized else values


def concatenate(parts: Sequence[Any]) -> Any:
    """Matrices of one format below each other."""
    if len(parts) == 1:
        return parts[0]
    if not isinstance(parts[0], Quantized):
        return np.concatenate(parts)
    minima = [part.minimum for part in parts]
    return Quantized(
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.scale for part in parts]),
        None if minima[0] is None else np.concatenate(minima),
    )


def _is_of(blocks: Quantized, chosen: WeightFormat) -> bool:
    bits = 8 if max(-int(blocks.values.min()), int(blocks.values.max())) > 15 else 4
    return (
        chosen.dtype == f"int{bits}"
        and blocks.scale.shape[1] == chosen.groups(blocks.values.shape[1])
        and (blocks.minimum is None) == chosen.symmetric
    )
