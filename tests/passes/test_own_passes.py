"""Our own passes: what the IR holds before and after each."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from pydoit import passes
from pydoit.errors import UserError
from pydoit.tvm_compat import relax, tvm


def operators(module: Any) -> Counter[str]:
    found: Counter[str] = Counter()

    def visit(expr: Any) -> None:
        if isinstance(expr, relax.Call) and hasattr(expr.op, "name"):
            found[expr.op.name.removeprefix("relax.")] += 1

    for function in module.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    return found


def module_of(shapes: dict[str, tuple[int, ...]], body: Any, inputs: int = 1) -> Any:
    """A module whose `main` takes tensors of these shapes, the first `inputs` of them the user's."""
    variables = [relax.Var(name, relax.TensorType(shape, "float32")) for name, shape in shapes.items()]
    builder = relax.BlockBuilder()
    with builder.function("main", variables, attrs={"num_input": inputs}):
        with builder.dataflow():
            result = builder.emit_output(body(*variables))
        builder.emit_func_output(result)
    return builder.get()


def apply(name: str, module: Any, **options: Any) -> Any:
    with tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3"}):
        return passes.make_pass({"name": name, **options} if options else name)(module)


def test_fold_batch_norm_leaves_a_convolution_and_a_sum() -> None:
    shapes = {"x": (1, 3, 8, 8), "w": (4, 3, 3, 3), "gamma": (4,), "beta": (4,), "mean": (4,), "variance": (4,)}

    def body(x: Any, w: Any, gamma: Any, beta: Any, mean: Any, variance: Any) -> Any:
        norm = relax.op.nn.batch_norm(relax.op.nn.conv2d(x, w), gamma, beta, mean, variance, axis=1)
        return relax.TupleGetItem(norm, 0)

    module = relax.transform.Normalize()(module_of(shapes, body))
    before = operators(module)
    assert (before["nn.batch_norm"], before["nn.conv2d"]) == (1, 1)
    after = operators(relax.transform.DeadCodeElimination()(apply("FoldBatchNorm", module)))
    assert (after["nn.batch_norm"], after["nn.conv2d"]) == (0, 1)


@pytest.mark.parametrize(("width", "folds"), [(1, True), (0, True), (-1, False)])
def test_fold_pad_takes_padding_and_leaves_cropping(width: int, folds: bool) -> None:
    def body(x: Any, w: Any) -> Any:
        return relax.op.nn.conv2d(relax.op.nn.pad(x, [0, 0, 0, 0, width, width, width, width]), w, padding=1)

    module = relax.transform.Normalize()(module_of({"x": (1, 3, 8, 8), "w": (4, 3, 3, 3)}, body))
    after = operators(relax.transform.DeadCodeElimination()(apply("FoldPad", module)))
    assert after["nn.pad"] == (0 if folds else 1)


def test_convert_layout_computes_in_nhwc() -> None:
    module = module_of({"x": (1, 3, 8, 8), "w": (4, 3, 3, 3)}, lambda x, w: relax.op.nn.conv2d(x, w))
    layouts: list[str] = []

    def visit(expr: Any) -> None:
        if isinstance(expr, relax.Call) and getattr(expr.op, "name", "") == "relax.nn.conv2d":
            layouts.append(str(expr.attrs.data_layout))

    relax.analysis.post_order_visit(apply("ConvertLayout", module)["main"], visit)
    assert layouts == ["NHWC"]


def test_convert_layout_leaves_a_module_without_convolutions() -> None:
    module = module_of({"x": (2, 3)}, lambda x: relax.op.nn.relu(x))
    assert apply("ConvertLayout", module).same_as(module)


def test_expand_clip() -> None:
    module = module_of({"x": (2, 3)}, lambda x: relax.op.clip(x, 0, 6))
    after = operators(apply("ExpandClip", module))
    assert after["clip"] == 0
    assert (after["maximum"], after["minimum"]) == (1, 1)


def test_simplify_shapes_drops_a_reshape_that_changes_nothing() -> None:
    module = module_of({"x": (2, 3)}, lambda x: relax.op.nn.relu(relax.op.reshape(x, (2, 3))))
    assert operators(relax.transform.DeadCodeElimination()(apply("SimplifyShapes", module)))["reshape"] == 0


def test_every_preset_is_made_of_known_passes_that_can_be_made() -> None:
    for preset in passes.PRESETS.values():
        for use in preset:
            passes.check_use(use)
            with tvm.target.Target("llvm"):
                assert callable(passes.make_pass(use))


@pytest.mark.parametrize(
    ("use", "says"),
    [
        ("FoldConstnat", "FoldConstant"),
        ({"name": "FuseOps", "level": 1}, "fuse_opt_level"),
        ("", "is unknown"),
    ],
)
def test_unknown_passes_and_options_are_refused(use: Any, says: str) -> None:
    with pytest.raises(UserError, match=says):
        passes.check_use(use)
