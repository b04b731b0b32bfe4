"""RNN with all attributes."""

from __future__ import annotations

from pydoit.importers.onnx_ops.node import Expr, Node
from pydoit.importers.onnx_ops.recurrent import Direction, recurrent


def rnn(node: Node) -> list[Expr]:
    """Y, Y_h (onnx's RNN); see `recurrent` for the shapes."""
    return recurrent(node, 1, 1, ("Tanh",), _step)


def _step(direction: Direction, product: Expr, states: list[Expr]) -> list[Expr]:
    from tvm import relax

    part = direction.node.emit(relax.op.matmul(states[0], direction.recurrence))
    total = direction.add(product, part, direction.input_bias, direction.recurrent_bias)
    return [direction.activations[0](direction.clip(total))]


CONVERTERS = {"RNN": rnn}
