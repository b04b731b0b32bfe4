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

from pydoit.importers.onnx_ops import shape_values
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
    own, known = converters(), original()
    merged = {name: _Adapter(name, own.get(name), known.get(name)) for name in (*known, *own)}
    # empty lists of axes and shapes must stay constants
    table = {name: item if name == "Constant" else _Checked(item) for name, item in merged.items()}
    onnx_frontend._get_convert_map = lambda: table  # noqa: SLF001
    try:
        yield
    finally:
        onnx_frontend._get_convert_map = original  # noqa: SLF001


class _Checked:
    """A converter whose empty results are made empty without computing: TVM divides by their extents."""

    def __init__(self, converter: Any) -> None:
        self.converter = converter

    def get_converter(self, opset: int) -> Any:
        inner = self.converter.get_converter(opset)

        def convert(builder: Any, inputs: Any, attributes: Mapping[str, Any], scope: Sequence[Any]) -> Any:
            from tvm import relax

            result = inner(builder, inputs, attributes, scope)
            if not isinstance(result, relax.Expr) or isinstance(result, relax.Tuple):
                return result
            result = builder.normalize(result)
            shape = getattr(result.ty, "shape", None)
            extents = getattr(shape, "values", None) or ()
            if any(getattr(extent, "value", None) == 0 for extent in extents):
                return builder.emit(relax.op.zeros(shape, str(result.ty.dtype)))
            return result

        return convert


class _Adapter:
    """Looks to TVM's importer like one of its converter classes: shape arithmetic, else our converter, else TVM's own."""

    def __init__(self, name: str, function: Converter | None, standard: Any) -> None:
        self.name = name
        self.function = function
        self.standard = standard

    def get_converter(self, opset: int) -> Any:
        standard = self.standard.get_converter(opset) if self.function is None else None

        def convert(builder: Any, inputs: Any, attributes: Mapping[str, Any], scope: Sequence[Any]) -> Any:
            from tvm import relax

            extents = shape_values.evaluate(self.name, list(inputs), attributes)
            if extents is not None:
                return extents
            if self.name not in shape_values.CONSUMERS:
                for index, item in enumerate(inputs):
                    if shape_values.is_symbolic(item):
                        inputs[index] = shape_values.materialize(builder, item)
            if standard is not None:
                return standard(builder, inputs, attributes, scope)
            assert self.function is not None
            outputs = attributes["tvm_custom"]["num_outputs"]
            node = Node(self.name, builder, list(inputs), attributes, opset, outputs, scope)
            result = self.function(node)
            return relax.Tuple(list(result)) if isinstance(result, list | tuple) else result

        return convert
