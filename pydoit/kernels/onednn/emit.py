"""C++ that exports a module's oneDNN functions: the common part in shim.cc and a table of sites behind it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pydoit.kernels.onednn.site import Call, PostOp, Site

ALGORITHMS = {
    "add": "kAdd",
    "relu": "0x20",
    "tanh": "0x21",
    "linear": "0x26",
    "sigmoid": "0x29",
    "gelu_tanh": "0x2b",
    "silu": "0x2c",
    "clip": "0x2f",
    "gelu": "0x31",
}
"""Post-op -> oneDNN's dnnl_alg_kind_t; `clip` is clip_v2, `gelu` gelu_erf, `silu` swish, `sigmoid` logistic."""
_TYPES = {"bfloat16": "kBfloat16", "float32": "kFloat32"}
_COMMON = Path(__file__).with_name("shim.cc")


def cpp_source(sites: Mapping[str, Site], calls: Sequence[Call]) -> str:
    """C++ that exports a function for each site, and `onednn_prepare` that takes all weights of `main`."""
    common, _, _ = _COMMON.read_text(encoding="utf-8").partition("// SITES")
    # Weights that `main` computes are other tensors in each call.
    volatile = {call.symbol for call in calls if call.weight is None}
    parts = [_function(symbol, site, is_constant=symbol not in volatile) for symbol, site in sites.items()]
    return "\n".join((common.rstrip(), "", *parts, _prepare(calls)))


def _function(symbol: str, site: Site, *, is_constant: bool) -> str:
    top, left, bottom, right = site.padding
    dilates = tuple(distance - 1 for distance in site.dilation)
    fields = [
        str(site.operator == "conv2d").lower(), _TYPES[site.dtype], _TYPES[site.out_dtype], str(is_constant).lower(),
        str(site.has_bias).lower(), _braces(_post_op(item) for item in site.post_ops),
        *(_braces(map(str, pair)) for pair in (site.strides, dilates, (top, left), (bottom, right))), str(site.groups),
    ]  # fmt: skip
    return f"// {site.task}\nEXPORT_SITE({symbol}, {', '.join(fields)})"


def _prepare(calls: Sequence[Call]) -> str:
    lines = []
    for call in calls:
        if call.weight is not None and call.data is not None and call.out is not None:
            data, out = _braces(map(str, call.data)), _braces(map(str, call.out))
            lines.append(f"  site_{call.symbol}().Prepare({data}, weights[{call.weight}], {out});")
    body = "\n".join(lines)
    return f"""static void prepare(tvm::ffi::Array<Tensor> weights) {{
  static_cast<void>(weights);
{body}
}}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(onednn_prepare, prepare);
"""


def _post_op(item: PostOp) -> str:
    values = (ALGORITHMS[item.name], _number(item.alpha), _number(item.beta), _TYPES[item.dtype] if item.dtype else "0")
    return _braces(values)


def _number(value: float) -> str:
    if math.isinf(value):
        return "kInfinity" if value > 0 else "-kInfinity"
    return f"{value!r}f"


def _braces(values: Iterable[str]) -> str:
    return "{" + ", ".join(values) + "}"
