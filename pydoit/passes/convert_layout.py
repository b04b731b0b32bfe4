"""ConvertLayout: compute 2-d convolutions, and what lies between them, in NHWC."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from pydoit.tvm_compat import relax


@dataclass(frozen=True)
class ConvertLayout:
    """Convert convolutions from NCHW/OIHW to NHWC/OHWI; poolings, sums and means follow.

    Transposes remain only where the network's inputs and outputs demand the old layout. Channels last makes adjacent
    channels one vector, so that one schedule serves convolutions, products, poolings and sums.
    """

    def __call__(self, module: Any) -> Any:
        """Return the module with converted layouts; a module without convolutions comes back as it is."""
        if not _has_convolution(module):
            return module
        convert = relax.transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]})
        try:
            converted = convert(module)
        except (MemoryError, RuntimeError) as error:
            # TVM 0.27 fails on some operators beside convolutions, such as take of one element ("std::bad_alloc"). The
            # old layout is slower, but right. Drop this when the pass handles them.
            sys.stderr.write(f"ConvertLayout: kept NCHW, TVM's pass failed: {str(error).splitlines()[-1:]}\n")
            return module
        return relax.transform.DeadCodeElimination()(converted)


def _has_convolution(module: Any) -> bool:
    found: list[Any] = []

    def visit(expr: Any) -> None:
        if isinstance(expr, relax.Call) and getattr(expr.op, "name", "") == "relax.nn.conv2d":
            found.append(expr)

    for function in module.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    return bool(found)
