"""Layer and group norm without weight or bias, for which Relax's operators want ones and zeros."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from pydoit.importers.torch_ops import converter
from pydoit.importers.torch_ops.graph import Graph


@converter("native_layer_norm.default")
def layer_norm(graph: Graph, data: Any, shape: list[int], weight: Any, bias: Any, epsilon: float) -> Any:
    """Ba et al., 2016, over the trailing axes."""
    from tvm import relax

    _only_result(graph)
    sizes = tuple(int(extent) for extent in shape)
    axes = list(range(-len(sizes), 0))
    weight, bias = _affine(graph, weight, bias, sizes)
    normed = graph.emit(relax.op.nn.layer_norm(data, weight, bias, axes=axes, epsilon=epsilon))
    return relax.Tuple([normed])


@converter("native_group_norm.default")
def group_norm(
    graph: Graph, data: Any, weight: Any, bias: Any, batch: Any, channels: int, plane: Any, groups: int, epsilon: float
) -> Any:
    """Wu and He, 2018, over groups of channels."""
    from tvm import relax

    _only_result(graph)
    weight, bias = _affine(graph, weight, bias, (int(channels),))
    axes = list(range(2, data.ty.ndim))
    normed = relax.op.nn.group_norm(data, weight, bias, num_groups=groups, channel_axis=1, axes=axes, epsilon=epsilon)
    return relax.Tuple([graph.emit(normed)])


def _affine(graph: Graph, weight: Any, bias: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
    dtype = graph.dtype(0)
    ones = graph.constant(np.ones(shape, dtype)) if weight is None else weight
    return ones, graph.constant(np.zeros(shape, dtype)) if bias is None else bias


def _only_result(graph: Graph) -> None:
    if any(user.target is operator.getitem and user.args[1] > 0 for user in graph.node.users):
        raise graph.refuse("its mean and deviation as results")
