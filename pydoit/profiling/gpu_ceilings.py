"""Measures what the first GPU can do at most, through PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydoit.errors import Deferred

BYTES = 1 << 30
SIDE = 8192
SAMPLES = 10


def measure() -> dict[str, Any]:
    """`bandwidth`, `copy`, `flops` and `call_seconds`; raises Deferred where PyTorch sees no GPU."""
    import torch

    if not torch.cuda.is_available():
        raise Deferred("a GPU that PyTorch sees")
    data = torch.zeros(BYTES // 4, device="cuda")
    other = torch.empty_like(data)
    flops = {}
    for name in ("float32", "bfloat16", "float16"):
        square = torch.randn(SIDE, SIDE, device="cuda", dtype=getattr(torch, name))
        flops[name] = 2.0 * SIDE**3 / _seconds(lambda: square @ square)  # noqa: B023 - called at once
    tiny = torch.zeros(1, device="cuda")
    return {
        "bandwidth": [{"bytes": BYTES, "read": BYTES / _seconds(lambda: torch.sum(data))}],
        "copy": 2.0 * BYTES / _seconds(lambda: other.copy_(data)),
        "flops": flops,
        "call_seconds": _seconds(lambda: [tiny.add_(1.0) for _ in range(1000)]) / 1000.0,
    }


def _seconds(work: Callable[[], Any]) -> float:
    """The least time of several runs."""
    import torch

    work()
    least = float("inf")
    for _ in range(SAMPLES):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        least = min(least, begin.elapsed_time(end) / 1000.0)
    return least
