"""Blocks as the schedules see them, in functions that have none."""

from __future__ import annotations

from typing import Any

from relax_modules import functions, module_of

from pydoit.kernels.blocks import vectorizable
from pydoit.kernels.scheduling import plan_function
from pydoit.tvm_compat import Schedule, relax, tirx


def test_a_function_of_plain_loops_has_no_blocks() -> None:
    def build(x: Any, index: Any, update: Any) -> Any:
        return relax.op.scatter_elements(x, relax.op.astype(index, "int64"), update, axis=1)

    module = module_of(build, {"x": (5, 7), "index": (5, 2), "update": (5, 2)}, {})
    module = relax.transform.LegalizeOps()(module)
    scatter = [f for f in module.functions.values() if isinstance(f, tirx.PrimFunc) and len(f.params) == 4]
    assert [plan_function(function).blocks for function in scatter] == [()]


def test_a_slice_is_adjacent_and_padding_is_not() -> None:
    builds = {
        True: lambda x: relax.op.strided_slice(x, axes=[1], begin=[8], end=[24]),
        False: lambda x: relax.op.nn.pad(x, [0, 0, 3, 3]),
    }
    for wanted, build in builds.items():
        module = relax.transform.LegalizeOps()(module_of(build, {"x": (5, 32)}, {}))
        (function,) = functions(module).values()
        (block,) = plan_function(function).blocks
        assert vectorizable(Schedule(function), block.name) is wanted
