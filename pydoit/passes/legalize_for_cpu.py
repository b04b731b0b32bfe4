"""LegalizeForCpu: lower operators to TIR, with the project's expressions where TVM's own do not vectorize on CPUs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydoit.kernels import compute, rows, vector_math
from pydoit.kernels.extremes import extreme
from pydoit.target import vector_lanes
from pydoit.tvm_compat import Target, relax, structural_equal, te, tirx

MIN_LANES = 4
"""Columns that are a multiple of this have a vector width."""
_MAPS: dict[str, Callable[[Any], Any]] = {
    "relax.erf": vector_math.erf,
    "relax.exp": vector_math.exp,
    "relax.nn.gelu": vector_math.gelu,
    "relax.nn.gelu_tanh": vector_math.gelu_tanh,
    "relax.nn.silu": vector_math.silu,
    "relax.sigmoid": vector_math.sigmoid,
    "relax.tanh": vector_math.tanh,
}


@dataclass(frozen=True)
class LegalizeForCpu:
    """Lower float32 softmax, layer norm, GELU, sigmoid and the like to vector code, all else as LegalizeOps does."""

    def __call__(self, module: Any) -> Any:
        """Return the module with every operator that has a lowering as a call of a TIR function."""
        lanes = vector_lanes(Target.current())
        custom: dict[str, Any] = {name: _map_lowering(name, function) for name, function in _MAPS.items()}
        custom["relax.matmul"] = lambda builder, call: _matmul(builder, call, lanes)
        custom["relax.nn.softmax"] = lambda builder, call: _softmax(builder, call, lanes)
        custom["relax.nn.layer_norm"] = lambda builder, call: _layer_norm(builder, call, lanes)
        custom["relax.astype"] = _narrow
        custom["relax.max"] = lambda builder, call: _extreme(builder, call, "max")
        custom["relax.min"] = lambda builder, call: _extreme(builder, call, "min")
        return relax.transform.LegalizeOps(custom)(module)


def _map_lowering(name: str, function: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    short = name.rpartition(".")[2]

    def lower(builder: Any, call: Any) -> Any:
        if call.args[0].ty.dtype != "float32":
            return _standard(name, builder, call)

        def expression(data: Any) -> Any:
            return te.compute(data.shape, lambda *index: function(data(*index)), name=short)

        return builder.call_te(expression, call.args[0], primfunc_name_hint=short)

    return lower


def _matmul(builder: Any, call: Any, lanes: int) -> Any:
    """A product of two computed matrices whose extents no tile divides is padded; the others are TVM's."""
    left, right = call.args
    if not (left.ty.dtype == right.ty.dtype == call.ty.dtype == "float32" and _products_fit(left.ty.shape, right.ty.shape)):
        return _standard("relax.matmul", builder, call)
    columns = right.ty.shape[-1]
    if not compute.is_awkward(left.ty.shape[-2]) and isinstance(columns, tirx.IntImm) and int(columns) % MIN_LANES == 0:
        return _standard("relax.matmul", builder, call)
    return builder.call_te(compute.padded_matmul, left, right, lanes, primfunc_name_hint="matmul")


def _products_fit(left: Any, right: Any) -> bool:
    """Say whether the batch axes are the same, one of them 1, or absent on the right."""
    if left is None or right is None or len(right) < 2 or len(right) not in (2, len(left)):
        return False
    pairs = zip(list(left)[:-2], list(right)[:-2], strict=True) if len(right) > 2 else ()
    return all(
        structural_equal(one, other) or 1 in (getattr(one, "value", 0), getattr(other, "value", 0)) for one, other in pairs
    )


def _softmax(builder: Any, call: Any, lanes: int) -> Any:
    data = call.args[0]
    if data.ty.dtype != "float32" or int(call.attrs.axis) not in (-1, len(data.ty.shape) - 1):
        return _standard("relax.nn.softmax", builder, call)
    return builder.call_te(rows.softmax, data, lanes, False, primfunc_name_hint="softmax")


def _layer_norm(builder: Any, call: Any, lanes: int) -> Any:
    data, gamma, beta = call.args
    attrs = call.attrs
    last = [int(axis) for axis in attrs.axes] in ([-1], [len(data.ty.shape) - 1])
    static = isinstance(data.ty.shape[-1], tirx.IntImm)
    if data.ty.dtype != "float32" or not last or not static or not attrs.center or not attrs.scale:
        return _standard("relax.nn.layer_norm", builder, call)
    return builder.call_te(rows.layer_norm, data, gamma, beta, float(attrs.epsilon), lanes, primfunc_name_hint="layer_norm")


def _narrow(builder: Any, call: Any) -> Any:
    """Rounding to bfloat16 is done row by row, as the softmax is whose result it may read."""
    data = call.args[0]
    if str(data.ty.dtype) != "float32" or str(call.attrs.dtype) != "bfloat16" or len(data.ty.shape) < len(("row", "column")):
        return _standard("relax.astype", builder, call)
    return builder.call_te(rows.narrowed, data, primfunc_name_hint="narrow")


def _extreme(builder: Any, call: Any, kind: str) -> Any:
    data, attrs = call.args[0], call.attrs
    if not str(data.ty.dtype).startswith("float"):
        return _standard(f"relax.{kind}", builder, call)
    rank = len(data.ty.shape)
    axes = sorted({int(axis) % rank for axis in attrs.axis}) if attrs.axis is not None else list(range(rank))
    return builder.call_te(extreme, data, axes, bool(attrs.keepdims), kind == "max", primfunc_name_hint=kind)


def _standard(name: str, builder: Any, call: Any) -> Any:
    """TVM's own lowering of an operator."""
    from tvm.ir import Op

    return Op.get(name).get_attr("FLegalize")(builder, call)
