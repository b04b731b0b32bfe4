"""Traces the kernels of a call on a GPU through CUPTI, as PyTorch's profiler offers it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydoit.profiling.tracer import Run, Step

_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")
_LAUNCH = {
    "registers per thread": "registers",
    "shared memory": "shared_bytes",
    "est. achieved occupancy %": "occupancy_percent",
}
_SUFFIX = "_kernel"


class GpuTracer:
    """Needs PyTorch and a GPU that it sees; the model itself need not use PyTorch."""

    counters: tuple[str, ...] = ()

    def run(self, call: Callable[[], Any]) -> Run:
        """Trace one call; its time is that from the first kernel's start to the last one's end."""
        import torch
        from torch.profiler import ProfilerActivity, profile

        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            call()
            torch.cuda.synchronize()
        with TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            profiler.export_chrome_trace(str(path))
            events = json.loads(path.read_text())["traceEvents"]
        steps = tuple(kernel_steps(events))
        return Run(max((step.start_ms + step.ms for step in steps), default=0.0), steps)


def kernel_steps(events: list[Mapping[str, Any]]) -> Iterator[Step]:
    """The kernels and copies among the events of a Chrome trace, in the order in which they began."""
    ours = sorted((event for event in events if event.get("cat") in _CATEGORIES), key=lambda event: float(event["ts"]))
    if not ours:
        return
    started = float(ours[0]["ts"])
    for event in ours:
        arguments = event.get("args", {})
        launch = {ours: float(arguments[theirs]) for theirs, ours in _LAUNCH.items() if theirs in arguments}
        yield Step(
            function_of(event["name"]), (float(event["ts"]) - started) / 1000.0, float(event["dur"]) / 1000.0, launch=launch
        )


def function_of(kernel: str) -> str:
    """The function of the module that a CUDA kernel was made of: TVM adds `_kernel` and a number."""
    name, suffix, number = kernel.rpartition(_SUFFIX)
    return name if suffix and (not number or number.lstrip("_").isdecimal()) else kernel


def gpu_is_there() -> bool:
    """Whether PyTorch is installed and sees a GPU."""
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())
