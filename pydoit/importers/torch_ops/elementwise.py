"""Functions of one element: those that take integers too, powers, and SELU and CELU, which TVM 0.27 gets wrong."""

from __future__ import annotations

from typing import Any

from pydoit.importers.torch_ops import converter
from pydoit.importers.torch_ops.graph import Graph

_SELU_SCALE = 1.0507009873554804934193349852946
_SELU_ALPHA = 1.6732632423543772848170429916717


def _register(name: str, relax_name: str) -> None:
    @converter(f"{name}.default")
    def convert(graph: Graph, data: Any) -> Any:
        from tvm import relax

        return graph.emit(getattr(relax.op, relax_name)(graph.cast(data, graph.dtype())))


for _name in ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "exp", "log", "rsqrt", "sigmoid", "sin",
              "sinh", "sqrt", "tan", "tanh"):  # fmt: skip
    _register(_name, _name)


@converter("log2.default", "log10.default", "log1p.default")
def scaled_log(graph: Graph, data: Any) -> Any:
    """Logarithms to base 2 and 10, and of 1 + x."""
    from tvm import relax

    dtype = graph.dtype()
    kind = graph.node.target.__name__.partition(".")[0]
    data = graph.cast(data, dtype)
    if kind == "log1p":
        return graph.emit(relax.op.log(graph.emit(relax.op.add(data, relax.const(1, dtype)))))
    factor = {"log2": 1.4426950408889634, "log10": 0.4342944819032518}[kind]
    return graph.emit(relax.op.multiply(graph.emit(relax.op.log(data)), relax.const(factor, dtype)))


@converter("pow.Tensor_Scalar")
def power(graph: Graph, base: Any, exponent: float) -> Any:
    """Powers; small whole exponents are products, a half is a square root."""
    from tvm import relax

    dtype = graph.dtype()
    base = graph.cast(base, dtype)
    if exponent == int(exponent) and 1 <= exponent <= 4:
        result = base
        for _ in range(int(exponent) - 1):
            result = graph.emit(relax.op.multiply(result, base))
        return result
    if exponent == 0:
        return graph.emit(relax.op.ones_like(base))
    if dtype.startswith("float"):
        if exponent in (0.5, -0.5):
            return graph.emit(relax.op.sqrt(base) if exponent > 0 else relax.op.rsqrt(base))
        return graph.emit(relax.op.power(base, relax.const(exponent, dtype)))
    if exponent < 0:
        raise graph.refuse("a negative exponent of integers")
    result = graph.emit(relax.op.ones_like(base))
    for _ in range(int(exponent)):
        result = graph.emit(relax.op.multiply(result, base))
    return result


@converter("erfc.default")
def erfc(graph: Graph, data: Any) -> Any:
    """1 - erf(x)."""
    from tvm import relax

    dtype = graph.dtype()
    return graph.emit(relax.op.subtract(relax.const(1, dtype), graph.emit(relax.op.erf(graph.cast(data, dtype)))))


@converter("selu.default")
def selu(graph: Graph, data: Any) -> Any:
    """Klambauer et al., 2017; TVM 0.27's relax.nn.selu is wrong for negative values."""
    return _elu(graph, data, _SELU_ALPHA, _SELU_SCALE, 1.0)


@converter("elu.default")
def elu(graph: Graph, data: Any, alpha: float, scale: float, input_scale: float) -> Any:
    """scale * x above zero, scale * alpha * (exp(input_scale * x) - 1) below; TVM's importer drops both scales."""
    return _elu(graph, data, alpha, scale, input_scale)


@converter("celu.default")
def celu(graph: Graph, data: Any, alpha: float) -> Any:
    """Barron, 2017; TVM's importer divides after the exponential instead of before."""
    return _elu(graph, data, alpha, 1.0, 1.0 / alpha)


@converter("silu.default")
def silu(graph: Graph, data: Any) -> Any:
    """x * sigmoid(x), kept as one operator."""
    from tvm import relax

    return graph.emit(relax.op.nn.silu(data))


def _elu(graph: Graph, data: Any, alpha: float, scale: float, input_scale: float) -> Any:
    from tvm import relax

    dtype = graph.dtype()
    zero = relax.const(0, dtype)
    below = relax.op.multiply(graph.emit(relax.op.minimum(data, zero)), relax.const(input_scale, dtype))
    below = relax.op.subtract(graph.emit(relax.op.exp(graph.emit(below))), relax.const(1, dtype))
    below = graph.emit(relax.op.multiply(graph.emit(below), relax.const(alpha * scale, dtype)))
    above = graph.emit(relax.op.multiply(relax.op.maximum(data, zero), relax.const(scale, dtype)))
    return graph.emit(relax.op.add(above, below))
