"""profile: latency, throughput, memory and the time of each kernel on this machine, after warm-up."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from pydoit.frozen import Frozen
from pydoit.importers.spec import Dim, Input
from pydoit.measure import peak_memory, reset_peak_memory, statistics
from pydoit.target import ResolvedTarget

TOOLS = ("apache-tvm", "apache-tvm-ffi", "numpy")
READS = {"optimize": ("spec.json",), "compile": ("lib*.so*",), "weights": ("model.safetensors",)}
KERNELS_SHOWN = 20


class Spec(Frozen):
    """How the latency is measured."""

    inputs: dict[str, Input]
    """The model's inputs; seeded random values within their ranges are used."""
    dims: dict[str, Dim] = {}
    """The symbolic dimensions; what is measured is measured at their largest extents."""
    shapes: dict[str, tuple[int, ...]] = {}
    """Extents of symbolic dimensions to measure too, in all combinations; the others at their largest."""
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

    largest = {name: dim.max for name, dim in spec.dims.items()}
    sample = random_sample(spec.inputs, spec.seed, 0, largest)
    reset_peak_memory()
    started = time.perf_counter()
    model = open_model(inputs, spec.target.threads)
    loaded = time.perf_counter()
    model.bind(sample)()
    first_call = time.perf_counter() - loaded
    times = _times(model, sample, spec)
    peak = peak_memory()
    return {
        "device": _device(),
        "threads": spec.target.threads or len(os.sched_getaffinity(0)),
        "latency_ms": statistics(times),
        "throughput": 1000.0 / fmean(times),
        "peak_memory_bytes": peak,
        "load_ms": (loaded - started) * 1000.0,
        "first_call_ms": first_call * 1000.0,
        "extents": largest,
        "sweep": [_measured_at(model, spec, {**largest, **extents}) for extents in _combinations(spec.shapes)],
        "kernels": _kernels(model, sample),
    }


def _measured_at(model: Any, spec: Spec, extents: dict[str, int]) -> dict[str, Any]:
    """The latency at one combination of extents."""
    from pydoit.random_tensors import random_sample

    times = _times(model, random_sample(spec.inputs, spec.seed, 0, extents), spec)
    return {"extents": extents, "latency_ms": statistics(times), "throughput": 1000.0 / fmean(times)}


def _combinations(shapes: Mapping[str, tuple[int, ...]]) -> list[dict[str, int]]:
    if not shapes:
        return []
    return [dict(zip(shapes, extents, strict=True)) for extents in itertools.product(*shapes.values())]


def _times(model: Any, sample: dict[str, Any], spec: Spec) -> list[float]:
    """Milliseconds of the timed calls, after the others."""
    call = model.bind(sample)
    for _ in range(spec.warmup):
        call()
    return [_milliseconds(call) for _ in range(spec.repeat)]


def _milliseconds(call: Any) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1000.0


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
