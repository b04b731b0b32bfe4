"""Converters of ATen operators that TVM's importer lacks or gets wrong; one file a family, merged over its table."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

from pydoit.errors import UserError
from pydoit.importers import torch_report
from pydoit.importers.torch_ops.graph import Graph, SymbolicShapeError

Converter = Callable[..., Any]
"""Takes the graph and the operator's arguments in the order of its ATen schema; returns the Relax expression."""

_CONVERTERS: dict[str, Converter] = {}


def converter(*names: str) -> Callable[[Converter], Converter]:
    """Register a converter for ATen operators by name and overload, such as "amax.default"."""

    def register(function: Converter) -> Converter:
        for name in names:
            assert name not in _CONVERTERS, name
            _CONVERTERS[name] = function
        return function

    return register


def convert_map() -> dict[str, Callable[[Any, Any], Any]]:
    """All converters in the form that `from_exported_program(custom_convert_map=...)` takes."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return {name: _adapt(function) for name, function in sorted(_CONVERTERS.items())}


def _adapt(function: Converter) -> Callable[[Any, Any], Any]:
    def convert(node: Any, importer: Any) -> Any:
        graph = Graph(node, importer)
        try:
            return function(graph, *graph.arguments())
        except SymbolicShapeError as error:
            place = torch_report.where(node)
            text = f"model: {node.target.__name__} at {place} needs a fixed shape, not {error}"
            raise UserError(f"{text}; write whole numbers in model.inputs") from error

    return convert
