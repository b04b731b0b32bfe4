"""The passes that a recipe may name: TVM's, our own, and those that installed packages register."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from pydoit.errors import UserError
from pydoit.passes.info import PassInfo

ENTRY_POINTS = "modelbuild.passes"
"""Group of entry points; each names a `PassInfo`."""

State = Mapping[str, Any]
_ON_OPERATORS: State = {"requires": frozenset({"operators", "separate", "dataflow"})}
_ON_FUNCTIONS: State = {"requires": frozenset({"lowered", "separate"})}
_ON_WEIGHTS: State = {"requires": frozenset({"operators", "separate", "dataflow", "weights"})}
_LOWERING: State = {
    "requires": frozenset({"operators", "separate"}),
    "provides": frozenset({"lowered"}),
    "invalidates": frozenset({"operators", "patterns"}),
}
_SEPARATE: State = {"requires": frozenset({"separate"})}
_NCHW = "ConvertLayout leaves no convolution in NCHW, the layout that this pass knows"
_OFFLOADED = "OffloadOneDnn has replaced the operators that this pass looks for"
_PACKED = "PackWeights has replaced the operators that this pass looks for"


def _relax(
    name: str, summary: str, state: Mapping[str, Any], options: Mapping[str, Any] | None = None, **more: Any
) -> PassInfo:
    return PassInfo(summary, f"tvm.relax.transform:{name}", options or {}, **{**state, **more})


def _tir(name: str, summary: str, **more: Any) -> PassInfo:
    return PassInfo(summary, f"tvm.s_tir.transform:{name}", **{**_ON_FUNCTIONS, **more})


def _own(module: str, name: str, summary: str, state: State, **more: Any) -> PassInfo:
    return PassInfo(summary, f"pydoit.passes.{module}:{name}", **{**state, **more})


PASSES: Mapping[str, PassInfo] = {
    "AdjustMatmulOrder": _relax(
        "AdjustMatmulOrder",
        "Reorder chains of matmul to compute less.",
        _ON_OPERATORS,
        before={"PackWeights": _PACKED},
    ),
    "AnnotateTIROpPattern": _relax(
        "AnnotateTIROpPattern",
        "Mark TIR functions as elementwise, injective, reduction.",
        _ON_FUNCTIONS,
        provides=frozenset({"patterns"}),
    ),
    "CanonicalizeBindings": _relax("CanonicalizeBindings", "Remove trivial bindings, tuples and match casts.", {}),
    "CombineParallelMatmul": _own(
        "combine_parallel_matmul",
        "CombineParallelMatmul",
        "Merge matmuls that share their left operand.",
        _ON_WEIGHTS,
        before={"PackWeights": _PACKED},
    ),
    "ComputePrimValue": _relax("ComputePrimValue", "Compute symbolic values that the graph reads in functions.", _SEPARATE),
    "ConvertLayout": _own(
        "convert_layout",
        "ConvertLayout",
        "Compute convolutions in NHWC, with transposes at the ends.",
        _ON_WEIGHTS,
        targets=("cpu",),
        before={"PackWeights": "PackWeights packs convolutions in NHWC only"},
    ),
    "ConvertToDataflow": _relax(
        "ConvertToDataflow",
        "Wrap pure bindings in dataflow blocks.",
        _SEPARATE,
        {"min_size": 2},
        provides=frozenset({"dataflow"}),
        choices={"min_size": (1, 2)},
    ),
    "DeadCodeElimination": _relax("DeadCodeElimination", "Remove unused bindings and functions.", {}),
    "DecomposeOpsForInference": _relax(
        "DecomposeOpsForInference",
        "Split composite operators into simple ones.",
        _ON_OPERATORS,
        after={"FoldBatchNorm": "it splits batch norms, which FoldBatchNorm folds whole"},
    ),
    "EliminateCommonSubexpr": _relax(
        "EliminateCommonSubexpr",
        "Compute equal expressions once.",
        _SEPARATE,
        {"call_only": False},
        choices={"call_only": (False, True)},
    ),
    "ExpandClip": _own(
        "expand_clip",
        "ExpandClip",
        "Write clip with constant bounds as maximum and minimum.",
        _ON_OPERATORS,
        before={"ConvertLayout": "ConvertLayout puts transposes around each clip that it meets"},
    ),
    "ExpandMatmulOfSum": _relax(
        "ExpandMatmulOfSum", "Rewrite x(A+B) to xA+xB.", _ON_OPERATORS, before={"PackWeights": _PACKED}
    ),
    "FoldBatchNorm": _own(
        "fold_batch_norm",
        "FoldBatchNorm",
        "Fold batch norm into the convolution's weights.",
        _ON_WEIGHTS,
        before={"ConvertLayout": _NCHW, "PackWeights": _PACKED},
    ),
    "FoldConstant": _own("fold_constant", "FoldConstant", "Evaluate what depends on constants alone.", _ON_OPERATORS),
    "FoldPad": _own(
        "fold_pad",
        "FoldPad",
        "Fold zero padding into the convolution that reads it.",
        _ON_OPERATORS,
        before={"ConvertLayout": _NCHW, "PackWeights": _PACKED},
    ),
    "FuseOps": _relax(
        "FuseOps",
        "Group operators that one function can compute.",
        {"requires": frozenset({"lowered", "patterns", "separate", "dataflow"})},
        {"fuse_opt_level": -1},
        provides=frozenset({"groups"}),
        invalidates=frozenset({"separate"}),
        choices={"fuse_opt_level": (-1, 0, 1, 2)},
    ),
    "FuseOpsGuarded": _own(
        "fuse_ops_guarded",
        "FuseOpsGuarded",
        "Group operators like FuseOps, within limits.",
        {"requires": frozenset({"lowered", "patterns", "separate", "dataflow"})},
        options={"max_inputs": 16, "max_operators": 32, "max_working_set": 1024},
        provides=frozenset({"groups"}),
        invalidates=frozenset({"separate"}),
        choices={"max_inputs": (8, 16, 32), "max_operators": (8, 16, 32, 64), "max_working_set": (256, 1024, 4096)},
    ),
    "FuseRmsNorm": _own(
        "fuse_rms_norm",
        "FuseRmsNorm",
        "Join RMS norm, and the sum before it, to one function.",
        _ON_OPERATORS,
        targets=("cpu",),
    ),
    "FuseSafeSoftmax": _own(
        "fuse_safe_softmax",
        "FuseSafeSoftmax",
        "Join softmax and its guard for masked rows.",
        _ON_OPERATORS,
        targets=("cpu",),
    ),
    "FuseSwiGLU": _own(
        "fuse_swiglu",
        "FuseSwiGLU",
        "Join SiLU and the product with the other branch of a gated unit.",
        _ON_OPERATORS,
        targets=("cpu",),
    ),
    "FuseTIR": _relax(
        "FuseTIR",
        "Turn each group into one TIR function.",
        {"requires": frozenset({"groups"})},
        provides=frozenset({"separate"}),
        invalidates=frozenset({"groups", "patterns"}),
    ),
    "FuseTransposeMatmul": _relax(
        "FuseTransposeMatmul",
        "Read a transposed right operand in place.",
        _ON_OPERATORS,
        after={"PackWeights": "it turns products into functions, which PackWeights cannot pack"},
    ),
    "InlinePrivateFunctions": _relax("InlinePrivateFunctions", "Inline private Relax functions.", _SEPARATE),
    "LegalizeForCpu": _own(
        "legalize_for_cpu",
        "LegalizeForCpu",
        "Lower operators to TIR, with vector math for CPUs.",
        _LOWERING,
        targets=("cpu",),
    ),
    "LegalizeOps": _relax("LegalizeOps", "Lower operators to TIR.", _LOWERING, {"enable_warning": False}),
    "LiftTransformParams": _relax(
        "LiftTransformParams",
        "Move what depends on weights alone into `transform`.",
        {"requires": frozenset({"weights", "separate", "dataflow"})},
        invalidates=frozenset({"weights"}),
    ),
    "Normalize": _relax("Normalize", "Bring Relax into A-normal form.", {}),
    "OffloadOneDnn": _own(
        "offload_onednn",
        "OffloadOneDnn",
        "Let oneDNN compute convolutions and products, with what follows them.",
        _ON_WEIGHTS,
        options={"conv2d": "auto", "matmul": "auto", "precision": "float32"},
        targets=("cpu",),
        before={"PackWeights": _PACKED},
        after={
            "ConvertLayout": "it takes convolutions in NHWC, which ConvertLayout makes",
            **dict.fromkeys(("FoldBatchNorm", "FoldPad", "CombineParallelMatmul"), _OFFLOADED),
        },
        choices={
            "conv2d": ("auto", "onednn", "tvm"),
            "matmul": ("auto", "onednn", "tvm"),
            "precision": ("float32", "bfloat16"),
        },
    ),
    "PackWeights": _own(
        "pack_weights",
        "PackWeights",
        "Read constant weights in panels of adjacent columns.",
        _ON_WEIGHTS,
        options={"lanes": 0},
        targets=("cpu",),
        choices={"lanes": (0, 4, 8, 16)},
    ),
    "PropagateTranspose": _own(
        "propagate_transpose",
        "PropagateTranspose",
        "Move transposes behind maps where inverse ones cancel.",
        _ON_OPERATORS,
    ),
    "RemoveUnusedOutputs": _relax("RemoveUnusedOutputs", "Remove outputs of private functions that nobody reads.", _SEPARATE),
    "RemoveUnusedParameters": _relax(
        "RemoveUnusedParameters", "Remove parameters that private functions do not read.", _SEPARATE
    ),
    "ReorderPermuteDimsAfterConcat": _relax(
        "ReorderPermuteDimsAfterConcat", "Move transposes behind concatenation.", _ON_OPERATORS
    ),
    "ReorderTakeAfterMatmul": _relax("ReorderTakeAfterMatmul", "Gather after the matmul instead of before it.", _ON_OPERATORS),
    "RewriteDataflowReshape": _relax(
        "RewriteDataflowReshape",
        "Make reshapes views instead of copies.",
        {"requires": frozenset({"lowered", "separate", "dataflow"})},
    ),
    "ShareConstants": _own(
        "share_constants",
        "ShareConstants",
        "Bind equal constants once.",
        _SEPARATE,
        after={"FuseSafeSoftmax": "it gives names to constants, which FuseSafeSoftmax looks for in place"},
    ),
    "SimplifyBooleans": _own(
        "simplify_booleans",
        "SimplifyBooleans",
        "Remove boolean operators and casts that change nothing.",
        _ON_OPERATORS,
    ),
    "SimplifyShapes": _own(
        "simplify_shapes", "SimplifyShapes", "Remove reshapes and broadcasts that change nothing.", _ON_OPERATORS
    ),
    "StmtSimplify": _tir("StmtSimplify", "Simplify the arithmetic of TIR functions.", invalidates=frozenset({"patterns"})),
    "TopologicalSort": _relax(
        "TopologicalSort",
        "Order bindings.",
        {"requires": frozenset({"separate", "dataflow"})},
        {"order": "depth-first", "direction": "from-inputs"},
        choices={"order": ("depth-first", "breadth-first"), "direction": ("from-inputs", "from-outputs")},
    ),
}
"""TVM's and our own, by name."""


@cache
def registered() -> Mapping[str, PassInfo]:
    """Passes of installed packages, by name; raises UserError for an entry point that is no PassInfo."""
    found: dict[str, PassInfo] = {}
    for point in entry_points(group=ENTRY_POINTS):
        distribution = point.dist.name if point.dist is not None else ""
        try:
            info = point.load()
        except (ImportError, AttributeError) as error:
            raise UserError(
                f'{distribution}: pass "{point.name}" cannot be loaded: {error}; mend or remove the package'
            ) from error
        if not isinstance(info, PassInfo):
            raise UserError(f'{distribution}: pass "{point.name}" is {type(info).__name__}, not PassInfo; mend the package')
        if point.name in PASSES or point.name in found:
            raise UserError(f'{distribution}: pass "{point.name}" has the name of another pass; rename it')
        found[point.name] = replace(info, package=distribution)
    return found


def find_pass(name: str) -> PassInfo | None:
    """What is declared of a pass; packages are looked at only for names that are not ours."""
    return PASSES.get(name) or registered().get(name)


def all_passes() -> Mapping[str, PassInfo]:
    """All passes by name."""
    return {**PASSES, **registered()}
