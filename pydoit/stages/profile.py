"""profile: latency, throughput, memory and the time of each kernel on this machine, after warm-up."""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from pydoit.frozen import Frozen
from pydoit.importers.spec import Dim, Input
from pydoit.measure import Call, peak_memory, reset_peak_memory, sample_of, statistics
from pydoit.profiling import FILE
from pydoit.profiling.kernels import summarize
from pydoit.target import ResolvedTarget

if TYPE_CHECKING:
    from pydoit.profiling.tracer import PlainTracer, Tracer
    from pydoit.runtime import Model

TOOLS = ("apache-tvm", "apache-tvm-ffi", "numpy")
READS = {"optimize": ("spec.json",), "compile": ("lib*.so*", FILE), "weights": ("model.safetensors",)}
TRACED, COUNTED, SERIAL = 15, 3, 5
"""Runs that are traced, traced with counters, and traced on one thread; fewer of a model that is slow."""
TRACED_SECONDS = 10.0
BATCHES, BREAK_SECONDS = 3, 0.2
"""Traced runs come in batches with breaks between them, so that a busy moment does not meet all of them."""


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
    concurrency: tuple[int, ...] = ()
    """Numbers of clients that call at the same time."""
    target: ResolvedTarget = ResolvedTarget(kind="cpu", arch="native")
    """What the library was compiled for; its thread count is used."""


def run(spec: Spec, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Measure; all times are wall times of one call with inputs in place."""
    from pydoit.compiled import open_model
    from pydoit.profiling.tracer import make_tracer
    from pydoit.random_tensors import random_sample
    from pydoit.tools import cpu_name

    largest = {name: dim.max for name, dim in spec.dims.items()}
    sample = random_sample(spec.inputs, spec.seed, 0, largest)
    tracer = make_tracer()
    reset_peak_memory()
    started = time.perf_counter()
    model = open_model(inputs, spec.target.threads)
    loaded = time.perf_counter()
    model.bind(sample)()
    first_call = time.perf_counter() - loaded
    times = _times(model, sample, spec)
    peak = peak_memory()
    sweep = [_measured_at(model, spec, {**largest, **extents}) for extents in _combinations(spec.shapes)]
    together = [_together(model, sample, spec, clients) for clients in spec.concurrency]
    threads = spec.target.threads or len(os.sched_getaffinity(0))
    return {
        "device": cpu_name(),
        "threads": threads,
        "latency_ms": statistics(times),
        "throughput": 1000.0 / fmean(times),
        "peak_memory_bytes": peak,
        "load_ms": (loaded - started) * 1000.0,
        "first_call_ms": first_call * 1000.0,
        "extents": largest,
        "sweep": sweep,
        "concurrency": together,
        **_traced(model, model.bind(sample), tracer, threads, median(times), inputs["compile"] / FILE),
    }


def _traced(
    model: Model, call: Call, tracer: Tracer | PlainTracer, threads: int, plain_ms: float, costs: Path
) -> dict[str, Any]:
    """Where the time goes. The model is slower afterwards: it is traced, and runs on one thread."""
    model.instrument(tracer.instrument)
    affordable = max(2, int(TRACED_SECONDS * 1000.0 / plain_ms / (1 + threads)))
    runs = []
    for batch in range(BATCHES):
        time.sleep(BREAK_SECONDS if batch else 0.0)
        call()
        runs += [tracer.run(call) for _ in range(max(1, min(TRACED, affordable) // BATCHES))]
    counted = [tracer.run(call, count=True) for _ in range(min(COUNTED, affordable))] if tracer.counters else []
    serial = []
    if threads > 1:
        model.use_threads(1)
        call()
        serial = [tracer.run(call) for _ in range(min(SERIAL, affordable))]
    return summarize(runs, plain_ms, json.loads(costs.read_bytes()), model.entry, serial, counted)


def _measured_at(model: Any, spec: Spec, extents: dict[str, int]) -> dict[str, Any]:
    """The latency at one combination of extents."""
    from pydoit.random_tensors import random_sample

    times = _times(model, random_sample(spec.inputs, spec.seed, 0, extents), spec)
    return {"extents": extents, "latency_ms": statistics(times), "throughput": 1000.0 / fmean(times)}


def _together(model: Model, sample: dict[str, Any], spec: Spec, clients: int) -> dict[str, Any]:
    """Latency of a call, and calls a second, while `clients` threads make `repeat` calls each, one after the other.

    They begin together after their warm-up. Calls a second are those that end while all clients still call.
    """
    begin = threading.Barrier(clients)

    def client() -> list[tuple[float, float]]:
        try:
            call = model.session(spec.target.threads).bind(sample)
            for _number in range(max(spec.warmup, 1)):
                call()
        except BaseException:
            begin.abort()
            raise
        begin.wait()
        return [_interval(call) for _number in range(spec.repeat)]

    with ThreadPoolExecutor(clients) as pool:
        futures = [pool.submit(client) for _ in range(clients)]
    faults = [fault for future in futures if (fault := future.exception()) is not None]
    for fault in sorted(faults, key=lambda item: isinstance(item, threading.BrokenBarrierError)):
        raise fault  # the others only waited in vain
    calls = [future.result() for future in futures]
    first = min(own[0][0] for own in calls)
    last = min(own[-1][1] for own in calls)
    ended = sum(end <= last for own in calls for _start, end in own)
    times = [(end - start) * 1000.0 for own in calls for start, end in own]
    return {"clients": clients, "latency_ms": statistics(times), "throughput": ended / (last - first)}


def _interval(call: Call) -> tuple[float, float]:
    """When a call began and when it ended, in seconds."""
    start = time.perf_counter()
    call()
    return start, time.perf_counter()


def _combinations(shapes: Mapping[str, tuple[int, ...]]) -> list[dict[str, int]]:
    if not shapes:
        return []
    return [dict(zip(shapes, extents, strict=True)) for extents in itertools.product(*shapes.values())]


def _times(model: Any, sample: dict[str, Any], spec: Spec) -> list[float]:
    """Milliseconds of the timed calls, after the others."""
    call = model.bind(sample)
    for _ in range(spec.warmup):
        call()
    return [sample_of(call, 1) for _ in range(spec.repeat)]
