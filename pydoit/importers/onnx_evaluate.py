"""Evaluates single ONNX nodes on known values, with onnx's reference implementation."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

MAX_ELEMENTS = 4096
"""Larger results stay computations: they are weights' transforms, not shapes."""
RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Dropout"}
)
_NEVER = RANDOM | {"If", "Loop", "Scan", "SequenceMap", "ImageDecoder"}
_GROWING = frozenset({"CenterCropPad", "ConstantOfShape", "Expand", "OneHot", "Pad", "Resize", "Tile", "Upsample"})
"""Operators whose result may be far larger than their operands: never evaluated before its size is known."""
_SCALAR_FORMS = {"value_float": "float32", "value_floats": "float32", "value_int": "int64", "value_ints": "int64"}

Values = dict[str, NDArray[Any]]
Shapes = Mapping[str, tuple[int, ...]]


def evaluate(node: onnx.NodeProto, values: Values, shapes: Shapes, model: onnx.ModelProto) -> Values | None:
    """The node's outputs when they are known now and (but for literal constants) small, else None."""
    if node.op_type == "Constant":
        value = literal(node)
        return None if value is None else {node.output[0]: value}
    if node.op_type in ("Shape", "Size") and node.input[0] in shapes:
        return {node.output[0]: _extents(node, shapes[node.input[0]])}
    names = [name for name in node.input if name]
    if node.op_type in _NEVER or node.domain not in ("", "ai.onnx") or not all(name in values for name in names):
        return None
    if any(name in shapes and not is_small(shapes[name]) for name in node.output):
        return None
    if node.op_type in _GROWING and node.output[0] not in shapes:
        return None
    if node.op_type == "Range" and _range_length(*(values[name] for name in names)) > MAX_ELEMENTS:
        return None
    return _run(node, {name: values[name] for name in names}, model)


def _run(node: onnx.NodeProto, given: Values, model: onnx.ModelProto) -> Values | None:
    try:
        evaluator = ReferenceEvaluator(node, opsets={item.domain: item.version for item in model.opset_import})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of NumPy, about overflow and the like
            results = [np.asarray(result) for result in evaluator.run(None, given)]
    except Exception:  # the reference raises what NumPy and its own code meet; the node stays a computation
        logging.getLogger(__name__).info("%s %s is not evaluated at import", node.op_type, node.name, exc_info=True)
        return None
    if any(result.size > MAX_ELEMENTS or result.dtype.kind == "O" for result in results):
        return None
    return {name: result for name, result in zip(node.output, results, strict=True) if name}


def literal(node: onnx.NodeProto) -> NDArray[Any] | None:
    """The value of a Constant node, whatever its size (it may be a weight); None for strings and sparse ones."""
    attribute = node.attribute[0]
    if attribute.name == "value":
        return np.asarray(onnx.numpy_helper.to_array(attribute.t))
    if attribute.name in _SCALAR_FORMS:
        return np.array(onnx.helper.get_attribute_value(attribute), dtype=_SCALAR_FORMS[attribute.name])
    return None


def _extents(node: onnx.NodeProto, shape: tuple[int, ...]) -> NDArray[Any]:
    if node.op_type == "Size":
        return np.array(int(np.prod(shape, dtype=np.int64)), dtype=np.int64)
    bounds = {attribute.name: attribute.i for attribute in node.attribute}
    return np.array(shape[bounds.get("start", 0) : bounds.get("end", len(shape))], dtype=np.int64)


def _range_length(start: NDArray[Any], limit: NDArray[Any], delta: NDArray[Any]) -> float:
    step = float(delta.reshape(-1)[0])
    return (float(limit.reshape(-1)[0]) - float(start.reshape(-1)[0])) / step if step else float("inf")


def is_small(extents: Any) -> bool:
    """Whether a tensor of these extents is worth evaluating at import."""
    return int(np.prod(list(extents), dtype=np.int64)) <= MAX_ELEMENTS
