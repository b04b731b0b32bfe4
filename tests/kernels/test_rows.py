"""Row kernels and elementwise kernels: parallel, vectorized, and right for sizes that no vector divides."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from relax_modules import TARGET, module_of, run_pass

from pydoit.kernels.lowering import compile_module
from pydoit.kernels.machine import Machine
from pydoit.kernels.scheduling import schedule_function
from pydoit.passes.legalize_for_cpu import LegalizeForCpu
from pydoit.runtime import library
from pydoit.runtime.aligned import aligned, empty
from pydoit.runtime.exchange import to_tensor
from pydoit.tvm_compat import IRModule, relax, tirx


@pytest.mark.parametrize("columns", [64, 60])
def test_a_softmax_is_one_parallel_loop_over_rows(columns: int) -> None:
    module = run_pass(LegalizeForCpu(), module_of(lambda x: relax.op.nn.softmax(x), {"x": (4, 6, columns)}))
    text = schedule_function(module["softmax"], Machine.of(TARGET)).script()
    assert text.count("T.parallel(T.int64(24))") == 1
    assert ("T.vectorized(T.int64(8))" in text) == (columns % 8 == 0)


def test_small_maps_stay_on_one_thread() -> None:
    texts = []
    for rows in (4, 400):
        module = run_pass(LegalizeForCpu(), module_of(lambda x: relax.op.nn.gelu(x), {"x": (rows, 64)}))
        texts.append(schedule_function(module["gelu"], Machine.of(TARGET)).script())
    assert ["T.parallel" in text for text in texts] == [False, True]


@pytest.mark.parametrize("shape", [(64, 96), (3, 40, 48), (30, 300), (5, 1000), (17, 257)])
def test_a_transpose_goes_in_squares_and_is_right(shape: tuple[int, ...], tmp_path: Path) -> None:
    axes = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
    module = run_pass(LegalizeForCpu(), module_of(lambda x: relax.op.permute_dims(x, axes), {"x": shape}))
    (scheduled,) = [
        schedule_function(function, Machine.of(TARGET))
        for _, function in module.functions_items()
        if isinstance(function, tirx.PrimFunc)
    ]
    squares = all(_has_side(extent) for extent in shape[-2:])
    assert ("T.parallel" in scheduled.script()) == (squares or math.prod(shape) >= 4096)
    named = IRModule({"transpose": scheduled.with_attr("global_symbol", "transpose")})
    compile_module(named, TARGET).export_library(str(tmp_path / "lib.so"))
    given = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    wanted = np.ascontiguousarray(given.transpose(axes))
    made = empty(wanted.shape, wanted.dtype)
    library.load_module(tmp_path / "lib.so")["transpose"](
        to_tensor(aligned(given), library.tvm_ffi()), to_tensor(made, library.tvm_ffi())
    )
    np.testing.assert_array_equal(made, wanted)


def _has_side(extent: int) -> bool:
    return any(extent % side == 0 for side in range(4, 17))
