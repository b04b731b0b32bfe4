"""LSTM with all attributes."""

from __future__ import annotations

from pydoit.importers.onnx_ops.node import Expr, Node, const
from pydoit.importers.onnx_ops.recurrent import Direction, recurrent

_INPUT, _OUTPUT, _FORGET, _CELL = range(4)
"""Order of the gates in W, R and B (i, o, f, c); that of the peepholes is the same without the cell."""


def lstm(node: Node) -> list[Expr]:
    """Y, Y_h, Y_c (onnx's LSTM); see `recurrent` for the shapes."""
    return recurrent(node, 4, 2, ("Sigmoid", "Tanh", "Tanh"), _step)


def _step(direction: Direction, product: Expr, states: list[Expr]) -> list[Expr]:
    from tvm import relax

    emit = direction.node.emit
    hidden, cell = states
    gate_of, of_cell, of_output = direction.activations
    recurrent_part = emit(relax.op.matmul(hidden, direction.recurrence))
    total = direction.add(product, recurrent_part, direction.input_bias, direction.recurrent_bias)

    def gate(index: int, peeked: Expr) -> Expr:
        part = direction.gate(total, index)
        if direction.peepholes is not None:
            part = direction.add(part, emit(relax.op.multiply(direction.gate(direction.peepholes, index), peeked)))
        return gate_of(direction.clip(part))

    entering = gate(_INPUT, cell)
    if direction.node.get("input_forget", 0):
        kept = emit(relax.op.subtract(const(1, direction.dtype), entering))
    else:
        kept = gate(_FORGET, cell)
    candidate = of_cell(direction.clip(direction.gate(total, _CELL)))
    new_cell = direction.add(emit(relax.op.multiply(kept, cell)), emit(relax.op.multiply(entering, candidate)))
    leaving = gate(_OUTPUT, new_cell)
    return [emit(relax.op.multiply(leaving, of_output(new_cell))), new_cell]


CONVERTERS = {"LSTM": lstm}
