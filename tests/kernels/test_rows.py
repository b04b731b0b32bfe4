"""Row kernels and elementwise kernels: parallel, vectorized, and right for sizes that no vector divides."""

from __future__ import annotations

import pytest
from relax_modules import TARGET, module_of, run_pass

from pydoit.kernels.machine import Machine
from pydoit.kernels.scheduling import schedule_function
from pydoit.passes.legalize_for_cpu import LegalizeForCpu
from pydoit.tvm_compat import relax


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
