"""Bounds of kernels from ceilings, and traced runs summed up by kernel."""

from __future__ import annotations

from typing import Any

import pytest

from pydoit.profiling.kernels import summarize
from pydoit.profiling.roofline import annotate, bandwidth, peak
from pydoit.profiling.tracer import Run, Step

CEILINGS: dict[str, Any] = {
    "device": "a CPU", "threads": 2, "copy": 1e10, "call_seconds": 1e-6,
    "bandwidth": [{"bytes": 1000, "read": 4e9}, {"bytes": 100_000, "read": 2e9}, {"bytes": 10_000_000, "read": 1e9}],
    "flops": {"float32": 1e9, "bfloat16": 4e9},
}  # fmt: skip


def _kernel(**values: Any) -> dict[str, Any]:
    plain = {
        "name": "k", "calls": 1, "ms": 10.0, "share": 1.0, "flops": 0.0, "bytes": 0, "weight_bytes": 0, "dtype": "float32",
    }  # fmt: skip
    return {**plain, **values}


def _bound(**values: Any) -> tuple[str, float]:
    (kernel,) = annotate({"kernels": [_kernel(**values)]}, CEILINGS)["kernels"]
    return kernel["bound"], kernel["bound_ms"]


def test_the_longest_of_three_times_is_the_bound() -> None:
    assert _bound(flops=2e6) == ("compute", 2.0)
    assert _bound(flops=2e6, dtype="bfloat16") == ("compute", 0.5)
    assert _bound(bytes=1000, flops=1.0) == ("launch", 0.001)
    assert _bound(bytes=50_000) == ("memory", pytest.approx(50_000 / 2e9 * 1000))
    assert _bound(calls=100, bytes=50_000) == ("launch", pytest.approx(0.1))


def test_weights_come_from_where_the_whole_model_fits() -> None:
    name, ms = _bound(bytes=900_000, weight_bytes=900_000)
    assert (name, ms) == ("memory", pytest.approx(0.9))


def test_a_bound_is_never_above_the_time() -> None:
    (kernel,) = annotate({"kernels": [_kernel(ms=0.5, flops=1e6)]}, CEILINGS)["kernels"]
    assert (kernel["bound_ms"], kernel["headroom_ms"]) == (0.5, 0.0)


def test_without_costs_there_is_no_bound() -> None:
    kernel = _kernel()
    del kernel["flops"]
    found = annotate({"kernels": [kernel]}, CEILINGS)
    assert found["kernels"][0]["bound"] is None
    assert found["roofline"]["bound_ms"] == 0
    assert annotate({"kernels": [kernel]}, None) == {"kernels": [kernel]}


def test_a_busy_moment_of_the_calibration_does_not_lower_a_smaller_size() -> None:
    dented = {"bandwidth": [{"bytes": 10, "read": 1.0}, {"bytes": 100, "read": 5.0}, {"bytes": 1000, "read": 2.0}]}
    assert [bandwidth(dented, size) for size in (5, 50, 500, 5000)] == [5.0, 5.0, 2.0, 2.0]


def test_types_that_the_same_units_compute() -> None:
    assert peak(CEILINGS, "float16") == 4e9
    assert peak(CEILINGS, "int64") == 1e9


COSTS: dict[str, Any] = {
    "functions": {"a": {"parallel": 4, "parallel_share": 1.0, "vector_share": 0.5}},
    "entries": {
        "main": {
            "steps": [
                {"name": "a", "flops": 10.0, "read_bytes": 6, "weight_bytes": 2, "written_bytes": 4, "dtype": "float32", "weight_dtype": "", "partial": False},
                {"name": "b", "flops": 1.0, "read_bytes": 4, "weight_bytes": 0, "written_bytes": 4, "dtype": "float32", "weight_dtype": "", "partial": True},
                {"name": "a", "flops": 10.0, "read_bytes": 6, "weight_bytes": 2, "written_bytes": 4, "dtype": "float32", "weight_dtype": "", "partial": False},
            ],
            "planned_bytes": 8, "live_bytes": 8, "intermediate_bytes": 16, "tensors": [],
        }
    },
}  # fmt: skip


def _run(*times: float, ms: float = 10.0) -> Run:
    return Run(ms, tuple(Step(name, float(place), time) for place, (name, time) in enumerate(zip("aba", times, strict=True))))


def test_runs_by_kernel() -> None:
    runs = [_run(1.0, 2.0, 3.0), _run(2.0, 3.0, 4.0), _run(3.0, 4.0, 5.0)]
    found = summarize(runs, 9.5, COSTS, "main", serial=[_run(4.0, 3.0, 8.0)])
    first, second = found["kernels"]
    assert (first["name"], first["calls"], first["ms"], first["best_ms"]) == ("a", 2, 6.0, 4.0)
    assert (first["flops"], first["bytes"], first["weight_bytes"], first["loops"]["parallel"]) == (20.0, 20, 4, 4)
    assert first["speedup"] == 2.0
    assert "flops" not in second  # it reads a part of a cache only
    assert found["trace"]["kernels_ms"] + found["trace"]["gaps_ms"] == found["trace"]["traced_ms"] == 10.0
    assert [step["kernel"] for step in found["timeline"]] == ["a", "b", "a"]
    assert found["memory"]["reuse"] == 0.5


def test_a_kernel_that_is_called_otherwise_than_the_ir_says_has_no_costs() -> None:
    run = Run(5.0, (Step("a", 0.0, 1.0), Step("other", 1.0, 2.0)))
    kernels = {kernel["name"]: kernel for kernel in summarize([run], 5.0, COSTS, "main")["kernels"]}
    assert "flops" not in kernels["a"]
    assert summarize([run], 5.0, COSTS, "elsewhere")["memory"] is None


def test_runs_that_went_another_way_are_left_out() -> None:
    short = Run(3.0, (Step("a", 0.0, 3.0),))
    assert summarize([short, _run(1.0, 1.0, 1.0)], 1.0, COSTS, "main")["trace"]["runs"] == 1
