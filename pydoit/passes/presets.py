"""Named orders of passes, by the kind of model and target."""

from __future__ import annotations

from collections.abc import Mapping

from pydoit.passes.info import Entry

Order = tuple[Entry, ...]

_LOWERED: Order = ("LegalizeOps", "RewriteDataflowReshape")
_FUSED: Order = ("AnnotateTIROpPattern", "FuseOps", "FuseTIR", "DeadCodeElimination", "RewriteDataflowReshape")
_CLEANED: Order = ("CanonicalizeBindings", "FoldConstant", "EliminateCommonSubexpr", "DeadCodeElimination")
_JOINED: Order = ("FuseSafeSoftmax", "FuseRmsNorm", "FuseSwiGLU")
_PACKED: Order = (
    "FoldBatchNorm",
    "FoldPad",
    "ExpandClip",
    "ConvertLayout",
    "OffloadOneDnn",
    "PackWeights",
    "LiftTransformParams",
    "DeadCodeElimination",
    "LegalizeForCpu",
)

PRESETS: Mapping[str, Order] = {
    # Correct and readable: every operator is a function of its own.
    "O0": _LOWERED,
    # Fusion without changing layouts or weights.
    "O1": (*_CLEANED, "FoldBatchNorm", "LiftTransformParams", "LegalizeOps", *_FUSED),
    # Layout, packed weights, vector math: what the CPU schedules are written for.
    "O2": (*_CLEANED, "SimplifyShapes", *_JOINED, *_PACKED, *_FUSED),
    # O2, and products that share their data become one.
    "O3": (*_CLEANED, "SimplifyShapes", *_JOINED, "CombineParallelMatmul", *_PACKED, *_FUSED),
}

_LANGUAGE: Order = ("CanonicalizeBindings", "EliminateCommonSubexpr", "DeadCodeElimination", "LegalizeOps", *_FUSED)

# Language models bring their matrix products, attention and norms as kernels; passes arrange what lies between.
LANGUAGE_PRESETS: Mapping[str, Mapping[str, Order]] = {
    "cpu": {"O0": _LOWERED, "O1": _LANGUAGE, "O2": _LANGUAGE, "O3": _LANGUAGE},
    "cuda": {
        "O0": _LOWERED,
        "O1": _LANGUAGE,
        "O2": ("FuseTransposeMatmul", *_LANGUAGE),
        "O3": ("FuseTransposeMatmul", *_LANGUAGE),
    },
}
