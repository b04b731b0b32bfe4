"""Folds what symbolic shapes still leave known: single extents of a shape, and slices that keep everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

Partial = tuple[int | None, ...]
"""The extents of a tensor, None where one is symbolic."""
_LAST = 2**31 - 1


def partial_shapes(graph: onnx.GraphProto) -> dict[str, Partial]:
    """Name -> extents of every tensor whose rank is known."""
    found: dict[str, Partial] = {item.name: tuple(item.dims) for item in graph.initializer}
    for item in (*graph.input, *graph.value_info, *graph.output):
        tensor = item.type.tensor_type
        if tensor.HasField("shape"):
            found[item.name] = tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim)
    return found


def fold_extents(graph: onnx.GraphProto, values: Mapping[str, NDArray[Any]]) -> bool:
    """Make initializers of extents that are known, in place, and drop slices that keep all; whether anything changed.

    `values` are the tensors that are known by name.
    """
    shapes = partial_shapes(graph)
    measured: dict[str, Partial] = {}
    folded: dict[str, NDArray[Any]] = {}
    same: dict[str, str] = {}
    outputs = {item.name for item in graph.output}
    kept = []
    for node in graph.node:
        name = node.output[0] if node.output else ""
        if node.op_type == "Shape" and node.input[0] in shapes:
            extents = _selected(node, shapes[node.input[0]])
            measured[name] = extents
            if None not in extents and name not in outputs:
                folded[name] = np.array(extents, dtype=np.int64)
                continue
        picked = _picked(node, measured, values) if name not in outputs else None
        if picked is not None:
            folded[name] = picked
        elif node.op_type == "Slice" and name not in outputs and _keeps_all(node, shapes, values):
            same[name] = node.input[0]
        else:
            kept.append(node)
    if not folded and not same:
        return False
    del graph.node[:]
    graph.node.extend(kept)
    graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in folded.items())
    _rename(graph, same)
    return True


def _selected(node: onnx.NodeProto, extents: Partial) -> Partial:
    given = {attribute.name: attribute.i for attribute in node.attribute}
    return extents[given.get("start", 0) : given.get("end", len(extents))]


def _picked(node: onnx.NodeProto, measured: Mapping[str, Partial], values: Mapping[str, NDArray[Any]]) -> NDArray[Any] | None:
    """What Gather or Slice takes out of a shape, if those extents are known."""
    if not node.input or node.input[0] not in measured or any(name and name not in values for name in node.input[1:]):
        return None
    extents = np.array(measured[node.input[0]], dtype=object)
    operands = [values[name] if name else None for name in node.input[1:]]
    if node.op_type == "Gather" and operands[0] is not None:
        taken = extents[operands[0].astype(np.int64)]
    elif node.op_type == "Slice" and len(operands) >= 2 and operands[0] is not None and operands[1] is not None:
        step = int(operands[3].item()) if len(operands) > 3 and operands[3] is not None else 1
        taken = extents[int(operands[0].item()) : int(operands[1].item()) : step]
    else:
        return None
    if any(extent is None for extent in np.ravel(taken)):
        return None
    return np.array(taken, dtype=np.int64)


def _keeps_all(node: onnx.NodeProto, shapes: Mapping[str, Partial], values: Mapping[str, NDArray[Any]]) -> bool:
    """Whether a slice takes every element: from 0 to the extent or beyond it, with step 1, on each axis."""
    names = list(node.input)
    if len(names) < 3 or any(name and name not in values for name in names[1:]):
        return False
    starts, ends = (_integers(values[name]) for name in names[1:3])
    axes = _integers(values[names[3]]) if len(names) > 3 and names[3] else list(range(len(starts)))
    steps = _integers(values[names[4]]) if len(names) > 4 and names[4] else [1] * len(starts)
    extents = shapes.get(names[0])
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        extent = extents[axis] if extents is not None and axis < len(extents) else None
        if start != 0 or step != 1 or end < (_LAST if extent is None else extent):
            return False
    return True


def _integers(array: NDArray[Any]) -> list[int]:
    return [int(value) for value in np.ravel(array)]


def _rename(graph: onnx.GraphProto, same: Mapping[str, str]) -> None:
    """Read, here and in subgraphs, the tensor that another is the same as."""
    if not same:
        return

    def source(name: str) -> str:
        while name in same:
            name = same[name]
        return name

    def visit(nodes: Sequence[onnx.NodeProto]) -> None:
        for node in nodes:
            for index, name in enumerate(node.input):
                node.input[index] = source(name)
            for attribute in node.attribute:
                for subgraph in (attribute.g, *attribute.graphs):
                    visit(subgraph.node)
                    for item in subgraph.output:
                        item.name = source(item.name)

    visit(graph.node)
