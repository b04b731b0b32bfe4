"""cdist: the distances of all rows of two matrices."""

from __future__ import annotations

import math
from typing import Any

from pydoit.importers.torch_ops import converter
from pydoit.importers.torch_ops.graph import Graph


@converter("_cdist_forward.default")
def cdist(graph: Graph, left: Any, right: Any, power: float, mode: int | None) -> Any:
    """The p-norm of each difference, computed from the differences, which is exact where torch's product form is not."""
    from tvm import relax

    difference = relax.op.subtract(graph.emit(relax.op.expand_dims(left, -2)), graph.emit(relax.op.expand_dims(right, -3)))
    difference = graph.emit(relax.op.abs(graph.emit(difference)))
    if power == math.inf:
        return graph.emit(relax.op.max(difference, axis=[-1]))
    if power == 1:
        return graph.emit(relax.op.sum(difference, axis=[-1]))
    dtype = graph.dtype()
    if power == 2:
        squares = graph.emit(relax.op.multiply(difference, difference))
        return graph.emit(relax.op.sqrt(graph.emit(relax.op.sum(squares, axis=[-1]))))
    if power <= 0:
        raise graph.refuse(f"p = {power:g}")
    raised = graph.emit(relax.op.power(difference, relax.const(power, dtype)))
    return graph.emit(relax.op.power(graph.emit(relax.op.sum(raised, axis=[-1])), relax.const(1 / power, dtype)))
