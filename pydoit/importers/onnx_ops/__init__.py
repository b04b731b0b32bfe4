"""Converters of ONNX operators that TVM's importer lacks or gets wrong: one file an operator or family.

A file's `CONVERTERS` maps operator names to functions from a Node to Relax. `installed` puts them over TVM's own table.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from pydoit.importers.onnx_ops.node import Converter, Node


@cache
def converters() -> Mapping[str, Converter]:
    """Our converters by the operator's name; other domains are written `com.microsoft.Name`."""
    found: dict[str, Converter] = {}
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda item: item.name):
        own = getattr(importlib.import_module(f"{__name__}.{module.name}"), "CONVERTERS", {})
        assert not set(own) & set(found), f"{module.name} converts what another file converts"
        found.update(own)
    return found


@contextmanager
def installed() -> Iterator[None]:
    """Let TVM's importer use our converters meanwhile, in this thread's process only."""
    from tvm.relax.frontend.onnx import onnx_frontend

    original = onnx_frontend._get_convert_map  # noqa: SLF001 - the importer has no other hook (TVM 0.27)
    known = original()
    table = {**known, **{name: _Adapter(name, function, known.get(name)) for name, function in converters().items()}}
    onnx_frontend._get_convert_map = lambda: table  # noqa: SLF001
    try:
        yield
    finally:
        onnx_frontend._get_convert_map = original  # noqa: SLF001


class _Adapter:
    """Looks to TVM's importer like one of its converter classes."""

    def __init__(self, name: str, function: Converter, shape_arithmetic: Any = None) -> None:
        self.name = name
        self.function = function
        self.shape_arithmetic = shape_arithmetic

    def get_converter(self, opset: int) -> Any:
        def convert(builder: Any, inputs: Sequence[Any], attributes: Mapping[str, Any], scope: Sequence[Any]) -> Any:
            from tvm import relax

            if self.shape_arithmetic is not None and inputs and _is_shape(inputs[0]):
                return self.shape_arithmetic.get_converter(opset)(builder, inputs, attributes, scope)
            outputs = attributes["tvm_custom"]["num_outputs"]
            node = Node(self.name, builder, list(inputs), attributes, opset, outputs, scope[1])
            result = self.function(node)
            return relax.Tuple(list(result)) if isinstance(result, list | tuple) else result

        return convert


def _is_shape(expr: Any) -> bool:
    """Whether an operand is a symbolic shape or extent, on which TVM's own converters compute at import."""
    from tvm import relax
    from tvm.ir import PrimExpr

    return isinstance(expr, PrimExpr) or isinstance(getattr(expr, "ty", None), relax.ShapeType)
