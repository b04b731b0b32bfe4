"""Operands that decide on shapes: which inputs of an ONNX node must be constants, because code is generated for them."""

from __future__ import annotations

from typing import Any

_REDUCTIONS = ("Max", "Min", "Sum", "Mean", "Prod", "LogSum", "LogSumExp", "SumSquare", "L1", "L2")

STATIC: dict[str, tuple[int, ...]] = {
    "AffineGrid": (1,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "Col2Im": (1, 2),
    "Compress": (1,),
    "ConstantOfShape": (0,),
    "CumProd": (1,),
    "CumSum": (1,),
    "DFT": (1, 2),
    "Dropout": (1, 2),
    "Expand": (1,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "Loop": (0, 1),
    "MaxUnpool": (2,),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "OneHot": (1,),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "STFT": (1, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "SplitToSequence": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
    **{f"Reduce{kind}": (1,) for kind in _REDUCTIONS},
}
"""Operator -> positions of the inputs whose values must be known at import."""


def static_operands(node: Any) -> list[str]:
    """Names of the inputs of an onnx.NodeProto whose values must be known at import."""
    return [node.input[i] for i in STATIC.get(node.op_type, ()) if i < len(node.input) and node.input[i]]
