"""RMSNorm of query and key heads (Qwen3), on the fused projection's output."""

from __future__ import annotations

from typing import Any

from pydoit.models.config import DecoderConfig


def head_norms(qkv: Any, q_norm: Any, k_norm: Any, config: DecoderConfig) -> Any:
    """[rows, (heads + 2 kv_heads) head_dim] with normalized queries and keys; values stay as they are."""
    from tvm.relax.frontend import nn

    from pydoit.tvm_compat import te, tirx

    width, normed = config.head_dim, config.heads + config.kv_heads
    dtype = str(qkv.dtype)

    def squares(source: Any) -> Any:
        axis = te.reduce_axis((0, width), name="k")

        def value(row: Any, head: Any) -> Any:
            element = source[row, head * width + axis].astype("float32")
            return te.sum(element * element, axis=axis)

        return te.compute((source.shape[0], normed), value, name="head_squares")

    def scaled(source: Any, total: Any, query: Any, key: Any) -> Any:
        def value(row: Any, column: Any) -> Any:
            head, inner = column // width, column % width
            own = tirx.min(head, normed - 1)
            scale = tirx.rsqrt(total[row, own] / float(width) + config.norm_epsilon)
            weight = tirx.if_then_else(head < config.heads, query[inner], key[inner]).astype("float32")
            normal = (source[row, column].astype("float32") * scale * weight).astype(dtype)
            return tirx.if_then_else(head < normed, normal, source[row, column])

        return te.compute(tuple(source.shape), value, name="head_norms")

    total = nn.op.tensor_expr_op(squares, "head_squares", [qkv])
    return nn.op.tensor_expr_op(scaled, "head_norms", [qkv, total, q_norm, k_norm])
