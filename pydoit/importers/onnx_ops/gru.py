"""GRU with all attributes."""

from __future__ import annotations

from pydoit.importers.onnx_ops.node import Expr, Node, const
from pydoit.importers.onnx_ops.recurrent import Direction, recurrent

_UPDATE, _RESET, _HIDDEN = range(3)


def gru(node: Node) -> list[Expr]:
    """Y, Y_h (onnx's GRU); see `recurrent` for the shapes."""
    return recurrent(node, 3, 1, ("Sigmoid", "Tanh"), _step)


def _step(direction: Direction, product: Expr, states: list[Expr]) -> list[Expr]:
    from tvm import relax

    emit = direction.node.emit
    (hidden,) = states
    gate_of, of_hidden = direction.activations

    def bias(which: Expr | None, index: int) -> Expr | None:
        return None if which is None else direction.gate(which, index)

    def gate(index: int) -> Expr:
        part = emit(relax.op.matmul(hidden, direction.gate(direction.recurrence, index)))
        biases = (bias(direction.input_bias, index), bias(direction.recurrent_bias, index))
        return gate_of(direction.clip(direction.add(direction.gate(product, index), part, *biases)))

    update, reset = gate(_UPDATE), gate(_RESET)
    weight, inner = direction.gate(direction.recurrence, _HIDDEN), bias(direction.recurrent_bias, _HIDDEN)
    if direction.node.get("linear_before_reset", 0):
        linear = direction.add(emit(relax.op.matmul(hidden, weight)), inner)
        recurrent_part = emit(relax.op.multiply(reset, linear))
    else:
        recurrent_part = direction.add(emit(relax.op.matmul(emit(relax.op.multiply(reset, hidden)), weight)), inner)
    total = direction.add(direction.gate(product, _HIDDEN), recurrent_part, bias(direction.input_bias, _HIDDEN))
    candidate = of_hidden(direction.clip(total))
    fresh = emit(relax.op.multiply(emit(relax.op.subtract(const(1, direction.dtype), update)), candidate))
    return [direction.add(fresh, emit(relax.op.multiply(update, hidden)))]


CONVERTERS = {"GRU": gru}
