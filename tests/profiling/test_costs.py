"""Costs of kernels by the IR, and how scheduled functions loop."""

from __future__ import annotations

from typing import Any

import pytest

from pydoit.figures import Meter
from pydoit.kernels.apply import schedule_module
from pydoit.kernels.lowering import dispatched
from pydoit.profiling.costs import bounds_of, document, entry_costs
from pydoit.profiling.loops import loops_of
from pydoit.target import ResolvedTarget, make_tvm_target
from pydoit.tvm_compat import Schedule, relax, te

TARGET = make_tvm_target(ResolvedTarget(kind="cpu", arch="x86-64-v3"))


def _module(build: Any, *shapes: tuple[Any, ...], inputs: int = 1) -> Any:
    builder = relax.BlockBuilder()
    given = [relax.Var(f"p{n}", relax.TensorType(shape, "float32")) for n, shape in enumerate(shapes)]
    with builder.function("main", given, attrs={"num_input": inputs}):
        with builder.dataflow():
            output = builder.emit_output(build(builder, *given))
        builder.emit_func_output(output)
    return builder.get()


def _costs(build: Any, *shapes: tuple[Any, ...]) -> dict[str, Any]:
    with TARGET:
        return entry_costs(dispatched(_module(build, *shapes)))["main"]


def test_a_product_and_what_follows() -> None:
    def build(builder: Any, x: Any, w: Any) -> Any:
        return builder.emit(relax.op.nn.relu(builder.emit(relax.op.matmul(x, w))))

    steps = _costs(build, (8, 16), (16, 32))["steps"]
    product, relu = steps
    assert product["flops"] == 2 * 8 * 16 * 32
    assert product["weight_bytes"] == 16 * 32 * 4
    assert product["read_bytes"] == (8 * 16 + 16 * 32) * 4
    assert product["written_bytes"] == 8 * 32 * 4
    assert (relu["read_bytes"], relu["weight_bytes"], relu["dtype"]) == (8 * 32 * 4, 0, "float32")


def test_a_view_of_a_weight_is_a_weight() -> None:
    def build(builder: Any, x: Any, w: Any) -> Any:
        return builder.emit(relax.op.add(x, builder.emit(relax.op.reshape(w, (4, 4)))))

    with TARGET:
        module = relax.transform.RewriteDataflowReshape()(dispatched(_module(build, (4, 4), (16,))))
        (step,) = entry_costs(module)["main"]["steps"]
    assert step["weight_bytes"] == 64


def test_lifetimes_are_places_in_the_order_of_kernels() -> None:
    def build(builder: Any, x: Any) -> Any:
        first = builder.emit(relax.op.exp(x))
        second = builder.emit(relax.op.sin(first))
        return builder.emit(relax.op.add(second, first))

    tensors = _costs(build, (4, 4))["tensors"]
    assert [(tensor["born"], tensor["dies"]) for tensor in tensors] == [(0, 2), (1, 2), (2, 2)]
    assert all(tensor["bytes"] == 64 for tensor in tensors)


def test_scans_are_kernels_with_costs() -> None:
    costs = _costs(lambda builder, x: builder.emit(relax.op.cumsum(x, 1)), (1, 1000))
    assert [step["name"] for step in costs["steps"]] == ["cumsum"]


def test_operands_in_bfloat16_count_as_such() -> None:
    def build(builder: Any, x: Any, w: Any) -> Any:
        narrow = [builder.emit(relax.op.astype(item, "bfloat16")) for item in (x, w)]
        return builder.emit(relax.op.matmul(*narrow, out_dtype="float32"))

    assert _costs(build, (8, 16), (16, 32))["steps"][-1]["dtype"] == "bfloat16"


def test_bounds_stand_for_symbolic_extents() -> None:
    from pydoit.tvm_compat import tirx

    rows = tirx.Var("rows", "int64")
    module = _module(lambda builder, x: builder.emit(relax.op.exp(x)), (rows, 4))
    main = module["main"].with_attr("tir_var_upper_bound", {"rows": 7})
    module.update_func(module.get_global_var("main"), main)
    assert bounds_of(main) == {"rows": 7}
    with TARGET:
        (step,) = entry_costs(dispatched(module))["main"]["steps"]
    assert step["written_bytes"] == 7 * 4 * 4


def test_the_document_has_plans_and_loops() -> None:
    def build(builder: Any, x: Any, w: Any) -> Any:
        return builder.emit(relax.op.matmul(x, w))

    with TARGET:
        module = dispatched(_module(build, (64, 64), (64, 64)))
        entries = entry_costs(module)
        scheduled, _ = schedule_module(module, TARGET, {})
    found = document(entries, scheduled, {"main": 5})
    assert found["entries"]["main"]["planned_bytes"] == 5
    assert found["functions"]["matmul"]["vector_share"] > 0.9
    assert found["functions"]["matmul"]["parallel"] >= 2


def _sum(extent: int) -> Any:
    data = te.placeholder((extent, 64), "float32", "data")
    return te.create_prim_func([data, te.compute((extent, 64), lambda i, j: data[i, j] + 1.0, "sum")])


@pytest.mark.parametrize("pieces", [1, 3, 8])
def test_loops(pieces: int) -> None:
    schedule = Schedule(_sum(pieces))
    rows, columns = schedule.get_loops(schedule.get_sblock("sum"))
    assert loops_of(schedule.mod["main"], {}).parallel_share == 0
    schedule.parallel(rows)
    schedule.vectorize(schedule.split(columns, [None, 8])[1])
    loops = loops_of(schedule.mod["main"], {})
    assert (loops.parallel, loops.vector_share) == (pieces, 1.0)
    assert loops.parallel_share == (1.0 if pieces > 1 else 0.0)


def test_a_missing_entry_is_an_error() -> None:
    with pytest.raises(KeyError):
        Meter(entry="other").body(_module(lambda builder, x: builder.emit(relax.op.exp(x)), (4,)))
