"""Keys of kernels: the same for renamed values, another for another computation."""

from __future__ import annotations

from typing import Any

import numpy as np
from relax_modules import TARGET, evaluate, module_of, random, run_pass

from pydoit.kernels.machine import Machine
from pydoit.kernels.scheduling import schedule_function
from pydoit.kernels.tasks import extract_tasks, function_key
from pydoit.passes.legalize_for_cpu import LegalizeForCpu
from pydoit.passes.pack_weights import PackWeights
from pydoit.tvm_compat import relax, te


def scaled(name: str, rows: int = 8, factor: float = 2.0) -> Any:
    data = te.placeholder((rows, 16), name=name)
    return te.create_prim_func([data, te.compute((rows, 16), lambda i, j: data[i, j] * factor, name="scaled")])


def test_names_of_values_and_functions_do_not_matter() -> None:
    first, second = scaled("data"), scaled("lv42").with_attr("global_symbol", "fused_3")
    assert function_key(first) == function_key(second)


def test_shapes_and_constants_do() -> None:
    keys = {function_key(scaled("data", rows, factor)) for rows in (8, 16) for factor in (2.0, 3.0)}
    assert len(keys) == 4


def test_tasks_are_the_functions_with_a_register_tile() -> None:
    def build(x: Any, w: Any) -> Any:
        return relax.op.nn.softmax(relax.op.matmul(x, w))

    module = module_of(build, {"x": (4, 8)}, {"w": (8, 16)})
    module = run_pass(LegalizeForCpu(), run_pass(PackWeights(), module))
    assert [task.name for task in extract_tasks(module)] == ["matmul"]


def test_a_product_spread_over_an_image_is_a_tile_and_loops_of_their_own() -> None:
    def build(x: Any, image: Any, w: Any) -> Any:
        return relax.op.multiply(image, relax.op.matmul(x, w))

    module = module_of(build, {"x": (1, 1, 1, 8), "image": (1, 90, 70, 16)}, {"w": (8, 16)})
    module = run_pass(LegalizeForCpu(), run_pass(PackWeights(), module))
    for name in ("AnnotateTIROpPattern", "FuseOps", "FuseTIR"):
        module = run_pass(getattr(relax.transform, name)(), module)
    (task,) = extract_tasks(module)
    text = schedule_function(task.function, Machine.of(TARGET)).script()
    # in the tile, its plane would be unrolled: 6,300 stores, or one loop without threads
    assert text.count("T.parallel") == 2
    x, image, w = random(1, 1, 1, 8), random(1, 90, 70, 16, seed=1), random(8, 16, seed=2)
    np.testing.assert_allclose(evaluate(module, x, image, w), image * (x @ w), rtol=1e-5, atol=1e-5)
