"""Which format each parameter of a decoder is kept in, by the recipe's scheme."""

from __future__ import annotations

from fnmatch import fnmatchcase

from pydoit.kernels.cpu.weight_format import WeightFormat
from pydoit.models.parameters import Parameter
from pydoit.models.spec import WeightSpec

DEFAULT_GROUP = 32
"""Elements that share an int4 scale when the recipe does not say: that of GGUF's Q4_1."""


def weight_format(parameter: Parameter, kept: WeightSpec) -> WeightFormat:
    """The format of a matrix; the head, which int4 would hurt most, stays at int8 as llama.cpp's 4-bit files keep it at 6."""
    if kept.scheme is None or any(fnmatchcase(parameter.name, pattern) for pattern in kept.exclude):
        return WeightFormat(kept.precision, None, symmetric=True)
    if kept.scheme == "int4" and parameter.name not in ("head", "embedding"):
        return WeightFormat("int4", kept.group_size or DEFAULT_GROUP, symmetric=kept.symmetric)
    return WeightFormat("int8", kept.group_size if kept.scheme == "int8" else DEFAULT_GROUP, symmetric=True)
