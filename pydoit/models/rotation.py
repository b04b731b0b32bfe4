"""Cosines and sines of rotary positions, computed once a step for all layers."""

from __future__ import annotations

from typing import Any

from pydoit.models.config import DecoderConfig


def rotation(positions: Any, config: DecoderConfig) -> Any:
    """float32 [rows, head_dim]: cosines of all angles, then sines, times the scaling's magnitude."""
    from tvm.relax.frontend import nn

    from pydoit.tvm_compat import relax, te, tirx, tvm

    half = config.head_dim // 2
    frequencies = nn.wrap_nested(
        relax.const(tvm.runtime.tensor(config.rope.frequencies(config.head_dim)), "float32"), "frequencies"
    )
    magnitude = tirx.const(config.rope.magnitude, "float32")

    def angles(position: Any, frequency: Any) -> Any:
        def value(row: Any, column: Any) -> Any:
            angle = position[row].astype("float32") * frequency[column % half]
            return tirx.if_then_else(column < half, tirx.cos(angle), tirx.sin(angle)) * magnitude

        return te.compute((position.shape[0], config.head_dim), value, name="rotation")

    return nn.op.tensor_expr_op(angles, "rotation", [positions, frequencies])
