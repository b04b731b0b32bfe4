"""IsInf with its choice of signs."""

from __future__ import annotations

import numpy as np

from pydoit.importers.onnx_ops.cast import cast
from pydoit.importers.onnx_ops.float8 import is_float8
from pydoit.importers.onnx_ops.node import Expr, Node, const, dtype_of


def is_inf(node: Node) -> Expr:
    """X of any shape -> bool."""
    from tvm import relax

    x = cast(node, node[0], "float32") if is_float8(dtype_of(node[0])) else node[0]
    dtype = dtype_of(x)
    signs = [sign for name, sign in (("detect_positive", 1.0), ("detect_negative", -1.0)) if node.get(name, 1)]
    found = [node.emit(relax.op.equal(x, const(sign * np.inf, dtype))) for sign in signs]
    if not found:
        return node.emit(relax.op.less(x, x))  # nothing is looked for: all false
    return found[0] if len(found) == 1 else node.emit(relax.op.logical_or(*found))


CONVERTERS = {"IsInf": is_inf}
