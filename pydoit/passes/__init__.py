"""The passes that a recipe may name and the presets made of them: plain data, readable without TVM."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydoit.errors import UserError

Entry = str | Mapping[str, Any]
"""A pass as recipes write it: its name, or a table of `name` and options."""


@dataclass(frozen=True)
class PassInfo:
    """What is known about a pass without importing it."""

    summary: str
    """One sentence for `doit passes`."""
    factory: str
    """`module:attribute` that makes the pass from its options."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Option -> default."""


def _relax(name: str, summary: str, **options: Any) -> PassInfo:
    return PassInfo(summary, f"tvm.relax.transform:{name}", options)


def _own(module: str, name: str, summary: str, **options: Any) -> PassInfo:
    return PassInfo(summary, f"pydoit.passes.{module}:{name}", options)


PASSES: Mapping[str, PassInfo] = {
    "AdjustMatmulOrder": _relax("AdjustMatmulOrder", "Reorder chains of matmul so that less is computed."),
    "AnnotateTIROpPattern": _relax("AnnotateTIROpPattern", "Mark TIR functions as elementwise, injective, reduction."),
    "CanonicalizeBindings": _relax("CanonicalizeBindings", "Remove trivial bindings, tuples and match casts."),
    "CombineParallelMatmul": _own(
        "combine_parallel_matmul", "CombineParallelMatmul", "Merge matmuls that share their left operand."
    ),
    "ConvertLayout": _own("convert_layout", "ConvertLayout", "Compute convolutions in NHWC, with transposes at the ends."),
    "ConvertToDataflow": _relax("ConvertToDataflow", "Wrap pure bindings in dataflow blocks.", min_size=2),
    "DeadCodeElimination": _relax("DeadCodeElimination", "Remove unused bindings and functions."),
    "DecomposeOpsForInference": _relax("DecomposeOpsForInference", "Split composite operators into simple ones."),
    "EliminateCommonSubexpr": _relax("EliminateCommonSubexpr", "Compute equal expressions once.", call_only=False),
    "ExpandClip": _own("expand_clip", "ExpandClip", "Write clip with constant bounds as maximum and minimum."),
    "ExpandMatmulOfSum": _relax("ExpandMatmulOfSum", "Rewrite x(A+B) to xA+xB."),
    "FoldBatchNorm": _own("fold_batch_norm", "FoldBatchNorm", "Fold batch norm into the convolution's weights."),
    "FoldConstant": _own("fold_constant", "FoldConstant", "Evaluate what depends on constants alone."),
    "FoldPad": _own("fold_pad", "FoldPad", "Fold zero padding into the convolution that reads it."),
    "FuseOps": _relax("FuseOps", "Group operators that one function can compute.", fuse_opt_level=-1),
    "FuseSafeSoftmax": _own("fuse_safe_softmax", "FuseSafeSoftmax", "Join softmax and its guard for masked rows."),
    "FuseTIR": _relax("FuseTIR", "Turn each group into one TIR function."),
    "FuseTransposeMatmul": _relax("FuseTransposeMatmul", "Read a transposed right operand in place."),
    "InlinePrivateFunctions": _relax("InlinePrivateFunctions", "Inline Relax functions that only this module calls."),
    "LegalizeForCpu": _own("legalize_for_cpu", "LegalizeForCpu", "Lower operators to TIR, with vector math for CPUs."),
    "LegalizeOps": _relax("LegalizeOps", "Lower operators to TIR.", enable_warning=False),
    "LiftTransformParams": _relax("LiftTransformParams", "Move what depends on weights alone into `transform`."),
    "Normalize": _relax("Normalize", "Bring Relax into A-normal form."),
    "PackWeights": _own("pack_weights", "PackWeights", "Read constant weights in panels of adjacent columns.", lanes=0),
    "RemoveUnusedOutputs": _relax("RemoveUnusedOutputs", "Remove outputs of private functions that nobody reads."),
    "RemoveUnusedParameters": _relax("RemoveUnusedParameters", "Remove parameters that private functions do not read."),
    "ReorderPermuteDimsAfterConcat": _relax("ReorderPermuteDimsAfterConcat", "Move transposes behind concatenation."),
    "ReorderTakeAfterMatmul": _relax("ReorderTakeAfterMatmul", "Gather after the matmul instead of before it."),
    "RewriteDataflowReshape": _relax("RewriteDataflowReshape", "Make reshapes views instead of copies."),
    "SimplifyShapes": _own("simplify_shapes", "SimplifyShapes", "Remove reshapes and broadcasts that change nothing."),
    "TopologicalSort": _relax("TopologicalSort", "Order bindings.", order="depth-first", direction="from-inputs"),
}

PRESETS: Mapping[str, tuple[Entry, ...]] = {
    # Correct and readable: every operator is a function of its own.
    "O0": ("LegalizeOps", "RewriteDataflowReshape"),
    # Fusion without changing layouts or weights.
    "O1": (
        "CanonicalizeBindings",
        "FoldConstant",
        "EliminateCommonSubexpr",
        "DeadCodeElimination",
        "FoldBatchNorm",
        "LiftTransformParams",
        "LegalizeOps",
        "AnnotateTIROpPattern",
        "FuseOps",
        "FuseTIR",
        "DeadCodeElimination",
        "RewriteDataflowReshape",
    ),
    # Layout, packed weights, vector math: what the CPU schedules are written for.
    "O2": (
        "CanonicalizeBindings",
        "FoldConstant",
        "EliminateCommonSubexpr",
        "DeadCodeElimination",
        "SimplifyShapes",
        "FuseSafeSoftmax",
        "FoldBatchNorm",
        "FoldPad",
        "ExpandClip",
        "ConvertLayout",
        "PackWeights",
        "LiftTransformParams",
        "DeadCodeElimination",
        "LegalizeForCpu",
        "AnnotateTIROpPattern",
        "FuseOps",
        "FuseTIR",
        "DeadCodeElimination",
        "RewriteDataflowReshape",
    ),
    # O2, and products that share their data become one.
    "O3": (
        "CanonicalizeBindings",
        "FoldConstant",
        "EliminateCommonSubexpr",
        "DeadCodeElimination",
        "SimplifyShapes",
        "FuseSafeSoftmax",
        "CombineParallelMatmul",
        "FoldBatchNorm",
        "FoldPad",
        "ExpandClip",
        "ConvertLayout",
        "PackWeights",
        "LiftTransformParams",
        "DeadCodeElimination",
        "LegalizeForCpu",
        "AnnotateTIROpPattern",
        "FuseOps",
        "FuseTIR",
        "DeadCodeElimination",
        "RewriteDataflowReshape",
    ),
}


_LANGUAGE_ORDER: tuple[Entry, ...] = (
    "CanonicalizeBindings",
    "EliminateCommonSubexpr",
    "DeadCodeElimination",
    "LegalizeOps",
    "AnnotateTIROpPattern",
    "FuseOps",
    "FuseTIR",
    "DeadCodeElimination",
    "RewriteDataflowReshape",
)

# Language models bring their matrix products, attention and norms as kernels; passes arrange what lies between.
LANGUAGE_PRESETS: Mapping[str, Mapping[str, tuple[Entry, ...]]] = {
    "cpu": {
        "O0": ("LegalizeOps", "RewriteDataflowReshape"),
        "O1": _LANGUAGE_ORDER,
        "O2": _LANGUAGE_ORDER,
        "O3": _LANGUAGE_ORDER,
    },
    "cuda": {
        "O0": ("LegalizeOps", "RewriteDataflowReshape"),
        "O1": _LANGUAGE_ORDER,
        "O2": ("FuseTransposeMatmul", *_LANGUAGE_ORDER),
        "O3": ("FuseTransposeMatmul", *_LANGUAGE_ORDER),
    },
}


def split_use(use: Entry) -> tuple[str, dict[str, Any]]:
    """Return name and options of one entry of an order."""
    if isinstance(use, str):
        return use, {}
    options = dict(use)
    return str(options.pop("name")), options


def check_use(use: Entry) -> None:
    """Check name and options of a registered pass; a `module:Class` entry is checked when it is made.

    Raises UserError that lists what is known and names the nearest match.
    """
    name, options = split_use(use)
    if ":" in name:
        return
    if name not in PASSES:
        raise UserError(f'pass "{name}" is unknown; {_suggest(name, tuple(PASSES))}')
    known = PASSES[name].options
    for option in options:
        if option not in known:
            hint = _suggest(option, tuple(known)) if known else "it has none"
            raise UserError(f'pass "{name}" has no option "{option}"; {hint}')


def make_pass(use: Entry) -> Callable[[Any], Any]:
    """Return the pass that an entry names: a callable from module to module. Imports TVM.

    Raises UserError when the name, an option or the user's class is wrong.
    """
    check_use(use)
    name, options = split_use(use)
    factory = name if ":" in name else PASSES[name].factory
    module_name, _, attribute = factory.partition(":")
    try:
        importlib.import_module("pydoit.tvm_compat")
        made = getattr(importlib.import_module(module_name), attribute)(**options)
    except (ImportError, AttributeError, TypeError) as error:
        raise UserError(f'pass "{name}" cannot be made: {error}; correct its name or options') from error
    if not callable(made):
        raise UserError(f'pass "{name}" is no pass: {attribute} must make a callable from module to module')
    return made  # type: ignore[no-any-return]


def _suggest(name: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f'did you mean "{near[0]}"? ' if near else ""
    return f"{hint}known: {', '.join(known)}"
