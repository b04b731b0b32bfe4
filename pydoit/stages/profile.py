"""profile: latency, throughput, memory and the time of each kernel on this machine, after warm-up."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean, median
from typing import Any

from pydoit.frozen import Frozen
from pydoit.importers.spec import Input
from pydoit.target import ResolvedTarget

TOOLS = ("apache-tvm", "apache-tvm-ffi", "numpy")
READS = {"optimize": ("spec.json",), "compile": ("lib.so",), "weights": ("model.safetensors",)}
KERNELS_SHOWN = 20


class Spec(Frozen):
    """How the latency is measured."""

    inputs: dict[str, Input]
    """The model's inputs; seeded random values within their ranges are used."""
    seed: int = 0
    """Seed of the inputs."""
    warmup: int = 5
    """Calls before the timed ones."""
    repeat: int = 30
    """Timed calls."""
    target: ResolvedTarget = ResolvedTarget(kind="cpu", arch="native")
    """What the library was compiled for; its thread count is used."""


def run(spec: Spec, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Measure; all times are wall times of one call with inputs in place."""
    from pydoit.compiled import open_model
    from pydoit.random_tensors import random_sample

    sample = random_sample(spec.inputs, spec.seed, 0)
    _reset_peak_memory()
    started = time.perf_counter()
    model = open_model(inputs, spec.target.threads)
    loaded = time.perf_counter()
    call = model.bind(sample)
    call()
    first_call = time.perf_counter() - loaded
    for _ in range(spec.warmup):
        call()
    times = [_milliseconds(call) for _ in range(spec.repeat)]
    peak = _peak_memory()
    return {
        "device": _device(),
        "threads": spec.target.threads or len(os.sched_getaffinity(0)),
        "latency_ms": _statistics(times),
        "throughput": 1000.0 / fmean(times),
        "peak_memory_bytes": peak,
        "load_ms": (loaded - started) * 1000.0,
        "first_call_ms": first_call * 1000.0,
        "kernels": _kernels(model, sample),
    }


def _milliseconds(call: Any) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1000.0


def _statistics(times: list[float]) -> dict[str, float | int]:
    ordered = sorted(times)
    rank = math.ceil(0.95 * len(ordered)) - 1
    return {
        "median": median(ordered),
        "p95": ordered[rank],
        "min": ordered[0],
        "mean": fmean(ordered),
        "max": ordered[-1],
        "n": len(ordered),
    }


def _kernels(model: Any, sample: dict[str, Any]) -> list[dict[str, Any]]:
    """The slowest kernels of one traced run: name, calls, milliseconds and share of all kernels."""
    totals: dict[str, list[float]] = {}
    for name, milliseconds in model.trace(sample):
        totals.setdefault(name, []).append(milliseconds)
    everything = sum(sum(times) for times in totals.values()) or 1.0
    slowest = sorted(totals, key=lambda name: -sum(totals[name]))[:KERNELS_SHOWN]
    return [{"name": n, "calls": len(totals[n]), "ms": sum(totals[n]), "share": sum(totals[n]) / everything} for n in slowest]


def _device() -> str:
    from pydoit.tools import cpu_name

    return cpu_name()


def _reset_peak_memory() -> None:
    """Forget the peak so far (Linux), so that what was imported and freed before does not count."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def _peak_memory() -> int:
    """Largest resident size of this process in bytes: library, weights, workspace and the Python process itself."""
    try:
        status = Path("/proc/self/status").read_text()
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
