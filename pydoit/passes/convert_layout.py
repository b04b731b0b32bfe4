"""ConvertLayout: compute 2-d convolutions, and what lies between them, in NHWC."""

from __future__ import annotations

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
        """Return the module with converted layouts."""
        convert = relax.transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]})
        return relax.transform.DeadCodeElimination()(convert(module))
