"""What is read from a trace of CUPTI, and, where there is a GPU, a trace itself."""

from __future__ import annotations

import pytest

from pydoit.profiling.gpu_tracer import GpuTracer, function_of, gpu_is_there, kernel_steps
from pydoit.profiling.kernels import summarize

EVENTS = [
    {"cat": "cpu_op", "name": "host", "ts": 0.0, "dur": 500.0},
    {
        "cat": "kernel",
        "name": "linear7_kernel",
        "ts": 110.0,
        "dur": 20.0,
        "args": {"registers per thread": 64, "grid": [1, 1, 1]},
    },
    {"cat": "gpu_memcpy", "name": "Memcpy HtoD", "ts": 100.0, "dur": 2.0, "args": {}},
    {"name": "metadata", "ph": "M"},
]


def test_kernels_of_a_trace() -> None:
    copy, kernel = kernel_steps(EVENTS)
    assert (copy.kernel, copy.start_ms, copy.ms) == ("Memcpy HtoD", 0.0, 0.002)
    assert (kernel.kernel, kernel.start_ms, kernel.ms, kernel.launch) == ("linear7", 0.01, 0.02, {"registers": 64.0})
    assert list(kernel_steps([])) == []


def test_launches_reach_the_profile() -> None:
    from pydoit.profiling.tracer import Run

    found = summarize([Run(0.03, tuple(kernel_steps(EVENTS)))], 0.03, {"entries": {}, "functions": {}}, "decode")
    assert found["kernels"][0]["launch"] == {"registers": 64.0}


@pytest.mark.parametrize(
    ("kernel", "function"),
    [("linear7_kernel", "linear7"), ("linear7_kernel_1", "linear7"), ("my_kernels", "my_kernels"), ("gemm", "gemm")],
)
def test_names(kernel: str, function: str) -> None:
    assert function_of(kernel) == function


@pytest.mark.gpu
@pytest.mark.skipif(not gpu_is_there(), reason="needs a GPU that PyTorch sees")
def test_a_trace() -> None:
    import torch

    data = torch.ones(1 << 20, device="cuda")
    run = GpuTracer().run(lambda: data.mul_(2.0))
    assert len(run.steps) == 1
    assert run.steps[0].ms > 0
    assert run.steps[0].launch["registers"] > 0
