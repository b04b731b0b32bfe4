"""The check of an order: what is refused, with which reason, and the smallest change that mends it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydoit import passes
from pydoit.passes.document import dot, edges, markdown, svg
from pydoit.passes.order import Setting, check_order, is_legal
from pydoit.passes.repair import repair_order
from pydoit.passes.sampling import neighbour, random_order

CPU, CUDA, LANGUAGE = Setting(), Setting("cuda"), Setting("cpu", language=True)
FUSED = ["AnnotateTIROpPattern", "FuseOps", "FuseTIR"]

ILLEGAL: list[tuple[list[Any], Setting, str, list[str]]] = [
    (["FoldConstnat"], CPU, "is unknown", ['write "FoldConstant" for "FoldConstnat"']),
    (["LegalizeOps", "Nothing"], CPU, "is unknown", ['remove "Nothing"']),
    ([{"name": "PackWeights", "lane": 8}], CPU, 'no option "lane"', ['remove lane of "PackWeights"']),
    ([{"name": "ConvertToDataflow", "min_size": "2"}], CPU, "a whole number", ['remove min_size of "ConvertToDataflow"']),
    ([{"name": "EliminateCommonSubexpr", "call_only": 1}], CPU, "true or false", ['remove call_only of "EliminateCommonSubexpr"']),
    ([{"name": "TopologicalSort", "order": "random"}], CPU, "is no choice", ['remove order of "TopologicalSort"']),
    ([{"name": "CanonicalizeBindings", "repeat": 0}], CPU, "from 1 to 100", ['remove repeat of "CanonicalizeBindings"']),
    ([{"name": "FoldConstnat", "repeat": 3}], CPU, "is unknown", ['write "FoldConstant" for "FoldConstnat"']),
    ([{"name": "LegalizeOps", "repeat": 2}], CPU, "repeat:", ['remove repeat of "LegalizeOps"']),
    (["LegalizeForCpu"], CUDA, "for cpu targets", ['write "LegalizeOps" for "LegalizeForCpu"']),
    (["ConvertLayout", "LegalizeOps"], CUDA, "for cpu targets", ['remove "ConvertLayout"']),
    (["PackWeights", "LegalizeOps"], CUDA, "for cpu targets", ['remove "PackWeights"']),
    (["FuseSafeSoftmax", "LegalizeOps"], CUDA, "for cpu targets", ['remove "FuseSafeSoftmax"']),
    (["LiftTransformParams", "LegalizeOps"], LANGUAGE, "a language model has none", ['remove "LiftTransformParams"']),
    (["FoldBatchNorm", "LegalizeOps"], LANGUAGE, "a language model has none", ['remove "FoldBatchNorm"']),
    (["RewriteDataflowReshape"], CPU, "operators that are lowered", ['insert "LegalizeForCpu" before "RewriteDataflowReshape"']),
    (["RewriteDataflowReshape", "LegalizeOps"], CPU, "operators that are lowered", ['move "RewriteDataflowReshape" after "LegalizeOps"']),
    (["AnnotateTIROpPattern", "LegalizeOps"], CPU, "operators that are lowered", ['move "AnnotateTIROpPattern" after "LegalizeOps"']),
    (["LegalizeOps", "FuseOps", "FuseTIR"], CPU, "marked by their pattern", ['insert "AnnotateTIROpPattern" before "FuseOps"']),
    (["LegalizeOps", "FuseOps", *FUSED], CPU, "marked by their pattern", ['remove "FuseOps"']),
    (["LegalizeOps", "FuseTIR"], CPU, "needs groups of operators", ['remove "FuseTIR"']),
    (["LegalizeOps", "AnnotateTIROpPattern", "FuseTIR", "FuseOps"], CPU, "needs groups", ['move "FuseTIR" after "FuseOps"']),
    (["LegalizeOps", "AnnotateTIROpPattern", "FuseOps"], CPU, "the order ends with groups", ['insert "FuseTIR" at the end']),
    (["LegalizeOps", *FUSED, "FuseOps", "FuseTIR"], CPU, "makes new ones without marks",
     ['insert "AnnotateTIROpPattern" before "FuseOps"']),
    (["LegalizeOps", "AnnotateTIROpPattern", "FuseOps", "FuseOps", "FuseTIR"], CPU, "groups them", ['remove "FuseOps"']),
    (["LegalizeOps", "AnnotateTIROpPattern", "FuseOps", "EliminateCommonSubexpr", "FuseTIR"], CPU, "groups them",
     ['move "EliminateCommonSubexpr" before "FuseOps"']),
    (["LegalizeOps", "FoldConstant"], CPU, "lowers them", ['move "FoldConstant" before "LegalizeOps"']),
    (["LegalizeForCpu", "SimplifyShapes"], CPU, "lowers them", ['move "SimplifyShapes" before "LegalizeForCpu"']),
    (["LegalizeForCpu", "LegalizeOps"], CPU, "lowers them", ['remove "LegalizeOps"']),
    (["LiftTransformParams", "PackWeights", "LegalizeForCpu"], CPU, "moves them", ['move "PackWeights" before "LiftTransformParams"']),
    (["LiftTransformParams", "LiftTransformParams"], CPU, "moves them", ['remove "LiftTransformParams"']),
    (["ConvertLayout", "FoldBatchNorm"], CPU, "no convolution in NCHW", ['move "FoldBatchNorm" before "ConvertLayout"']),
    (["ConvertLayout", "FoldPad"], CPU, "no convolution in NCHW", ['move "FoldPad" before "ConvertLayout"']),
    (["ConvertLayout", "ExpandClip"], CPU, "transposes around each clip", ['move "ExpandClip" before "ConvertLayout"']),
    (["PackWeights", "ConvertLayout"], CPU, "packs convolutions in NHWC", ['move "ConvertLayout" before "PackWeights"']),
    (["PackWeights", "CombineParallelMatmul"], CPU, "has replaced", ['move "CombineParallelMatmul" before "PackWeights"']),
    (["FuseTransposeMatmul", "PackWeights"], CPU, "PackWeights cannot pack", ['move "PackWeights" before "FuseTransposeMatmul"']),
    (["DecomposeOpsForInference", "FoldBatchNorm"], CPU, "folds whole", ['move "FoldBatchNorm" before "DecomposeOpsForInference"']),
    (["PackWeights", "ConvertLayout", "FoldBatchNorm"], CPU, "packs convolutions in NHWC",
     ['move "ConvertLayout" before "PackWeights"', 'move "FoldBatchNorm" before "ConvertLayout"']),
]  # fmt: skip


@pytest.mark.parametrize(("order", "setting", "reason", "changes"), ILLEGAL, ids=lambda value: None)
def test_illegal_orders_are_refused_with_the_reason_and_a_mend(
    order: list[Any], setting: Setting, reason: str, changes: list[str]
) -> None:
    faults = check_order(order, setting)
    assert reason in faults[0].text
    repair = repair_order(order, setting)
    assert is_legal(repair.order, setting)
    assert list(repair.changes) == changes


def test_there_are_enough_illegal_orders() -> None:
    assert len(ILLEGAL) >= 30


@pytest.mark.parametrize("preset", passes.PRESETS)
def test_presets_are_legal(preset: str) -> None:
    assert check_order(passes.PRESETS[preset], CPU) == []
    assert repair_order(passes.PRESETS[preset], CPU).changes == ()


@pytest.mark.parametrize(("target", "preset"), [(t, p) for t, found in passes.LANGUAGE_PRESETS.items() for p in found])
def test_presets_of_language_models_are_legal(target: str, preset: str) -> None:
    assert check_order(passes.LANGUAGE_PRESETS[target][preset], Setting(target, language=True)) == []


@given(st.integers(0, 10**6), st.sampled_from([CPU, CUDA, LANGUAGE]), st.integers(1, 30))
def test_random_orders_and_their_neighbours_are_legal(seed: int, setting: Setting, length: int) -> None:
    random = Random(seed)
    order = random_order(random, setting, length)
    assert check_order(order, setting) == []
    assert is_legal(neighbour(random, order, setting), setting)


@given(st.integers(0, 10**6), st.sampled_from([CPU, CUDA, LANGUAGE]))
def test_any_order_can_be_mended(seed: int, setting: Setting) -> None:
    random = Random(seed)
    names = random.choices(sorted(passes.PASSES), k=random.randint(1, 8))
    repair = repair_order(names, setting)
    assert is_legal(repair.order, setting)
    assert bool(repair.changes) != is_legal(names, setting)


def test_one_change_is_enough_where_one_pass_is_out_of_place() -> None:
    order = list(passes.PRESETS["O2"])
    order.append(order.pop(order.index("ConvertLayout")))
    assert len(repair_order(order, CPU).changes) == 1


def test_documents_cover_all_passes() -> None:
    page, picture, graph = markdown(), svg(), dot()
    for name in passes.PASSES:
        assert f"### {name}\n" in page
        assert f">{name}</text>" in picture
        assert f'"{name}"' in graph
    assert all(first in passes.PASSES and second in passes.PASSES for first, second, _ in edges())
