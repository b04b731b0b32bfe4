"""Which composite ATen operators are split before translation: all that nobody translates as a whole."""

from __future__ import annotations

from typing import Any

import torch

from pydoit.importers import torch_ops

WRONG = frozenset({"grid_sampler_2d.default"})
"""Operators that TVM 0.27's importer translates with the wrong shape; torch splits them into indexing."""


def table(known: set[str]) -> dict[Any, Any]:
    """torch's decompositions for inference, without the operators that `torch_ops` translates as a whole.

    To torch.export's own list come those that only training and compilers use, where nobody translates the operator.
    """
    decompositions = torch.export.default_decompositions()
    own = torch_ops.convert_map()
    for operator, split in torch._decomp.global_decomposition_table["post_autograd"].items():  # noqa: SLF001
        name = getattr(operator, "__name__", "")
        if name in WRONG or (name not in known and operator not in decompositions):
            decompositions[operator] = split
    for name in own:
        packet, _, overload = name.partition(".")
        operator = getattr(getattr(torch.ops.aten, packet), overload)
        if operator in decompositions:
            del decompositions[operator]
    return decompositions  # type: ignore[no-any-return]
