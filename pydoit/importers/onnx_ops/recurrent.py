"""What LSTM, GRU and RNN share: directions, layouts, lengths, activations; the loop over time is unrolled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydoit.importers.onnx_ops.node import Expr, Node, const, dtype_of, shape_of, static_shape

Step = Callable[["Direction", Expr, list[Expr]], list[Expr]]
"""(direction, the step's input product [batch, gates * hidden], states) -> new states; each state is [batch, hidden]."""
MAX_STEPS = 2048
"""Longer sequences are refused: each step is code of its own."""
_ALPHA = {"LeakyRelu": 0.01, "ThresholdedRelu": 1.0, "HardSigmoid": 0.2, "Elu": 1.0, "Affine": 1.0, "ScaledTanh": 1.0}
_BETA = {"HardSigmoid": 0.5, "ScaledTanh": 1.0}


@dataclass(frozen=True)
class Direction:
    """Weights and activations of one direction."""

    node: Node
    recurrence: Expr
    """[hidden, gates * hidden]"""
    input_bias: Expr | None
    """[gates * hidden]"""
    recurrent_bias: Expr | None
    peepholes: Expr | None
    activations: Sequence[Callable[[Expr], Expr]]
    hidden: int
    dtype: str

    def gate(self, x: Expr, index: int, count: int = 1) -> Expr:
        """Columns of gates index..index+count of [..., gates * hidden]."""
        from tvm import relax

        first, last = index * self.hidden, (index + count) * self.hidden
        axis = len(shape_of(x)) - 1
        return self.node.emit(relax.op.strided_slice(x, axes=[axis], begin=[first], end=[last]))

    def clip(self, x: Expr) -> Expr:
        """Within +-clip, if the attribute is given."""
        from tvm import relax

        bound = self.node.get("clip")
        return x if bound is None else self.node.emit(relax.op.clip(x, -float(bound), float(bound)))

    def add(self, *terms: Expr | None) -> Expr:
        """The sum of those that are there."""
        from tvm import relax

        present = [term for term in terms if term is not None]
        total = present[0]
        for term in present[1:]:
            total = self.node.emit(relax.op.add(total, term))
        return total


def recurrent(node: Node, gates: int, states: int, defaults: Sequence[str], step: Step) -> list[Expr]:
    """Y [steps, directions, batch, hidden] and the last states [directions, batch, hidden], or as `layout` says.

    Inputs: X [steps, batch, input], W [directions, gates * hidden, input], R [directions, gates * hidden, hidden],
    B [directions, 2 * gates * hidden], lengths [batch], initial states, and for LSTM peepholes [directions, 3 * hidden].
    """
    from tvm import relax

    batch_first = bool(node.get("layout", 0))
    x = node.emit(relax.op.permute_dims(node[0], [1, 0, 2])) if batch_first else node[0]
    steps, batch, _ = shape_of(x)
    if not isinstance(steps, int) or steps > MAX_STEPS:
        raise node.refuse(f"a sequence of {steps} steps (known at import, at most {MAX_STEPS})", "fix the input shapes")
    directions = static_shape(node, node[1])[0]
    hidden = static_shape(node, node[2])[2]
    reverse = {"forward": [False], "reverse": [True]}.get(node.get("direction", "forward"), [False, True])
    rows: list[list[Expr]] = []
    finals: list[list[Expr]] = []
    for number, backwards in enumerate(reverse[:directions]):
        direction, product = _direction(node, x, number, gates, hidden, defaults)
        initial = [_initial(node, 5 + index, number, [batch, hidden], dtype_of(x), batch_first) for index in range(states)]
        outputs, last = _run(node, direction, product, initial, step, backwards, steps)
        rows.append(outputs)
        finals.append(last)
    y = _stack(node, [_stack(node, [row[t] for row in rows], 0) for t in range(steps)], 0)
    ends = [_stack(node, [last[index] for last in finals], 1 if batch_first else 0) for index in range(states)]
    if batch_first:
        y = node.emit(relax.op.permute_dims(y, [2, 0, 1, 3]))
    return [y, *ends]


def _run(
    node: Node, direction: Direction, product: Expr, states: list[Expr], step: Step, backwards: bool, steps: int
) -> tuple[list[Expr], list[Expr]]:
    """Outputs by time, and the last states; with lengths, a finished sequence keeps its states and gives zeros."""
    from tvm import relax

    lengths = node[4] if node.has(4) else None
    outputs: list[Any] = [None] * steps
    order = range(steps - 1, -1, -1) if backwards else range(steps)
    zero = const(0, direction.dtype)
    for time in order:
        row = node.emit(relax.op.strided_slice(product, axes=[0], begin=[time], end=[time + 1]))
        row = node.emit(relax.op.squeeze(row, [0]))
        new = step(direction, row, states)
        output = new[0]
        if lengths is not None:
            running = node.emit(relax.op.greater(lengths, const(time, dtype_of(lengths))))
            running = node.emit(relax.op.expand_dims(running, [1]))
            new = [node.emit(relax.op.where(running, after, before)) for after, before in zip(new, states, strict=True)]
            output = node.emit(relax.op.where(running, output, zero))
        outputs[time] = output
        states = new
    return outputs, states


def _direction(node: Node, x: Expr, number: int, gates: int, hidden: int, defaults: Sequence[str]) -> tuple[Direction, Expr]:
    from tvm import relax

    weight = node.emit(relax.op.permute_dims(_part(node, node[1], number)))
    recurrence = node.emit(relax.op.permute_dims(_part(node, node[2], number)))
    product = node.emit(relax.op.matmul(x, weight))
    bias = _part(node, node[3], number) if node.has(3) else None
    direction = Direction(
        node=node,
        recurrence=recurrence,
        input_bias=None if bias is None else _slice(node, bias, 0, gates * hidden),
        recurrent_bias=None if bias is None else _slice(node, bias, gates * hidden, 2 * gates * hidden),
        peepholes=_part(node, node[7], number) if node.has(7) else None,
        activations=_activations(node, number, defaults),
        hidden=hidden,
        dtype=dtype_of(x),
    )
    return direction, product


def _part(node: Node, x: Expr, number: int) -> Expr:
    """Row `number` of the direction axis."""
    from tvm import relax

    if shape_of(x)[0] == 1:
        return node.emit(relax.op.squeeze(x, [0]))
    row = node.emit(relax.op.strided_slice(x, axes=[0], begin=[number], end=[number + 1]))
    return node.emit(relax.op.squeeze(row, [0]))


def _slice(node: Node, x: Expr, first: int, last: int) -> Expr:
    from tvm import relax

    return node.emit(relax.op.strided_slice(x, axes=[0], begin=[first], end=[last]))


def _initial(node: Node, index: int, number: int, shape: list[Any], dtype: str, batch_first: bool) -> Expr:
    from tvm import relax

    if not node.has(index):
        return node.emit(relax.op.zeros(relax.ShapeExpr(shape), dtype))
    given = node[index]
    return _part(node, node.emit(relax.op.permute_dims(given, [1, 0, 2])) if batch_first else given, number)


def _stack(node: Node, parts: list[Expr], axis: int) -> Expr:
    from tvm import relax

    rows = [node.emit(relax.op.expand_dims(part, [axis])) for part in parts]
    return rows[0] if len(rows) == 1 else node.emit(relax.op.concat(rows, axis=axis))


def _activations(node: Node, number: int, defaults: Sequence[str]) -> list[Callable[[Expr], Expr]]:
    """The functions of one direction; alphas and betas are given only for those that take them, in order."""
    names = list(node.get("activations") or [*defaults, *defaults])
    alphas, betas = list(node.get("activation_alpha") or ()), list(node.get("activation_beta") or ())
    made = []
    for name in names:
        alpha = float(alphas.pop(0)) if name in _ALPHA and alphas else _ALPHA.get(name, 0.0)
        takes_beta = name in _BETA or name == "Affine"
        beta = float(betas.pop(0)) if takes_beta and betas else _BETA.get(name, 0.0)
        made.append(_activation(node, name, alpha, beta))
    count = len(defaults)
    return made[number * count : (number + 1) * count]


def _activation(node: Node, name: str, alpha: float, beta: float) -> Callable[[Expr], Expr]:
    from tvm import relax

    def scaled(x: Expr, factor: float, offset: float = 0.0) -> Expr:
        dtype = dtype_of(x)
        product = node.emit(relax.op.multiply(x, const(factor, dtype)))
        return node.emit(relax.op.add(product, const(offset, dtype))) if offset else product

    def zero(x: Expr) -> Expr:
        return const(0, dtype_of(x))

    known: dict[str, Callable[[Expr], Expr]] = {
        "Sigmoid": lambda x: relax.op.sigmoid(x),
        "Tanh": lambda x: relax.op.tanh(x),
        "Relu": lambda x: relax.op.nn.relu(x),
        "Affine": lambda x: scaled(x, alpha, beta),
        "LeakyRelu": lambda x: relax.op.nn.leakyrelu(x, alpha),
        "ThresholdedRelu": lambda x: relax.op.where(relax.op.greater(x, const(alpha, dtype_of(x))), x, zero(x)),
        "ScaledTanh": lambda x: scaled(node.emit(relax.op.tanh(scaled(x, beta))), alpha),
        "HardSigmoid": lambda x: relax.op.clip(scaled(x, alpha, beta), 0.0, 1.0),
        "Elu": lambda x: relax.op.where(
            relax.op.less(x, zero(x)), scaled(node.emit(relax.op.subtract(relax.op.exp(x), const(1, dtype_of(x)))), alpha), x
        ),
        "Softsign": lambda x: relax.op.divide(x, relax.op.add(relax.op.abs(x), const(1, dtype_of(x)))),
        "Softplus": lambda x: relax.op.nn.softplus(x),
    }
    by_name = {key.lower(): function for key, function in known.items()}
    if name.lower() not in by_name:
        raise node.refuse(f"the activation {name!r}", f"use one of {', '.join(known)}")
    function = by_name[name.lower()]
    return lambda x: node.emit(function(x))
