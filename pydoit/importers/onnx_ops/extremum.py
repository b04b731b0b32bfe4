"""Max and Min of any number of tensors, pair by pair: TVM's converter stacks them along a new axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydoit.importers.onnx_ops.node import Converter, Expr, Node


def _pairwise(name: str) -> Converter:
    def convert(node: Node) -> Expr:
        from tvm import relax

        function: Callable[[Any, Any], Any] = getattr(relax.op, name)
        result = node[0]
        for index in range(1, len(node.inputs)):
            result = node.emit(function(result, node[index]))
        return result

    return convert


CONVERTERS = {"Max": _pairwise("maximum"), "Min": _pairwise("minimum")}
