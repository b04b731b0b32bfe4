"""profile, language models: prefill and decode speed over prompt lengths, contexts and batch sizes, memory and kernels."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydoit.frozen import Frozen
from pydoit.measure import peak_memory, reset_peak_memory, statistics
from pydoit.models.spec import CacheSpec
from pydoit.profiling import FILE
from pydoit.profiling.kernels import summarize
from pydoit.target import ResolvedTarget
from pydoit.worker import progress

if TYPE_CHECKING:
    from pydoit.profiling.gpu_tracer import GpuTracer
    from pydoit.profiling.tracer import PlainTracer, Tracer
    from pydoit.runtime.language import LanguageModel

TOOLS = ("apache-tvm", "apache-tvm-ffi", "numpy")
READS = {"optimize": ("spec.json",), "compile": ("lib.so", FILE), "weights": ("model.safetensors",)}
PROMPTS, CONTEXTS, SEQUENCES = (128,), (128,), (1,)
"""What is measured when the recipe names nothing."""
TRACED, COUNTED = 15, 3
"""Decoded tokens that are traced, and traced with counters."""


class Spec(Frozen):
    """How speed is measured."""

    cache: CacheSpec
    """Bounds of what can be measured."""
    shapes: dict[str, tuple[int, ...]] = {}
    """`prompt`: tokens; `context`: tokens before the decoded one; `sequences`: decoded at a time."""
    seed: int = 0
    """Seed of the tokens."""
    warmup: int = 5
    """Calls before the timed ones."""
    repeat: int = 30
    """Timed calls."""
    target: ResolvedTarget
    """What the library was compiled for; its thread count is used."""


def run(spec: Spec, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Measure; `latency_ms` is that of one decoded token at the first context, `throughput` its tokens a second."""
    from pydoit.runtime.language import LanguageModel
    from pydoit.tools import cpu_name

    described = json.loads((inputs["optimize"] / "spec.json").read_bytes())
    files = [inputs["weights"] / "model.safetensors"]
    tracer = _tracer(spec)
    reset_peak_memory()
    started = time.perf_counter()
    model = LanguageModel(
        inputs["compile"] / "lib.so", files, described["language"], target=spec.target.model_dump(),
        threads=spec.target.threads,
    )  # fmt: skip
    loaded = time.perf_counter()
    prompts = [size for size in spec.shapes.get("prompt", PROMPTS) if size <= model.longest]
    contexts = spec.shapes.get("context", CONTEXTS)
    batches = [size for size in spec.shapes.get("sequences", SEQUENCES) if size <= model.sequences]
    prefill = [_prefill(model, spec, size) for size in prompts]
    cases = [(size, count) for size in contexts for count in batches if size < _room(model, count)]
    decode = [_decode(model, spec, size, count) for size, count in cases]
    peak = peak_memory()
    traced = {}
    if tracer is not None and decode:
        costs = json.loads((inputs["compile"] / FILE).read_bytes())
        traced = _traced(model, spec, cases[0][0], tracer, decode[0]["latency_ms"]["median"], costs, described["language"])
    return {
        "device": cpu_name() if spec.target.kind == "cpu" else model.device_name,
        "threads": spec.target.threads or len(os.sched_getaffinity(0)),
        "latency_ms": decode[0]["latency_ms"] if decode else None,
        "throughput": decode[0]["tokens_per_second"] if decode else None,
        "prefill": prefill,
        "decode": decode,
        "load_ms": (loaded - started) * 1000.0,
        "weight_bytes": files[0].stat().st_size,
        "cache_bytes": model.cache_bytes,
        "peak_memory_bytes": peak,
        **traced,
    }


def _tracer(spec: Spec) -> Tracer | PlainTracer | GpuTracer | None:
    """What traces the model where it runs; None on a GPU that PyTorch does not see."""
    from pydoit.profiling.gpu_tracer import GpuTracer, gpu_is_there
    from pydoit.profiling.tracer import make_tracer

    if spec.target.kind == "cpu":
        return make_tracer()
    return GpuTracer() if gpu_is_there() else None


def _traced(
    model: LanguageModel,
    spec: Spec,
    context: int,
    tracer: Tracer | PlainTracer | GpuTracer,
    plain_ms: float,
    costs: Mapping[str, Any],
    language: Mapping[str, Any],
) -> dict[str, Any]:
    """Where the time of a decoded token goes; the model is slower afterwards."""
    from pydoit.profiling.gpu_tracer import GpuTracer
    from pydoit.profiling.tracer import Tracer

    tokens = _tokens(model, spec.seed, context)
    sequence = model.add()
    model.prefill(sequence, tokens)
    steps = iter(range(min(TRACED + COUNTED + 1, model.longest - context)))

    def step() -> None:
        model.decode([sequence], [int(tokens[next(steps) % context])])

    if not isinstance(tracer, GpuTracer):
        model.instrument(tracer.instrument)
    step()
    left = min(TRACED + COUNTED, model.longest - context - 1)
    runs = [tracer.run(step) for _ in range(left - min(COUNTED, left - 1))]
    counted = []
    if isinstance(tracer, Tracer):
        counted = [tracer.run(step, count=True) for _ in range(min(COUNTED, left - 1) if tracer.counters else 0)]
    model.drop(sequence)
    found = summarize(runs, plain_ms, costs, "decode", counted=counted)
    _add_attention(found["kernels"], language, context)
    return found


def _add_attention(kernels: Sequence[dict[str, Any]], language: Mapping[str, Any], context: int) -> None:
    """What the attention kernels read of the caches hangs on the context, which the IR does not say."""
    config, cache = language["config"], language["caches"][0]
    width = int("".join(filter(str.isdigit, cache["dtype"]))) // 8
    for kernel in kernels:
        if "attention" not in kernel["name"]:
            continue
        size = kernel["calls"] * context * config["head_dim"]
        read, flops = 2 * size * config["kv_heads"] * width, 4.0 * size * config["heads"]
        kernel.update(
            flops=flops, read_bytes=read, written_bytes=0, weight_bytes=0, bytes=read, intensity=flops / read,
            dtype=cache["dtype"], weight_dtype="",
        )  # fmt: skip


def _prefill(model: Any, spec: Spec, size: int) -> dict[str, Any]:
    """Time of a prompt of `size` tokens in a fresh sequence."""
    tokens = _tokens(model, spec.seed, size)
    times = []
    for number in range(min(spec.warmup, 2) + min(spec.repeat, 10)):
        progress(f"prefill of {size} tokens, {number}")
        sequence = model.add()
        started = time.perf_counter()
        model.prefill(sequence, tokens)
        times.append((time.perf_counter() - started) * 1000.0)
        model.drop(sequence)
    measured = statistics(times[min(spec.warmup, 2) :])
    return {"prompt": size, "latency_ms": measured, "tokens_per_second": 1000.0 * size / measured["median"]}


def _decode(model: Any, spec: Spec, context: int, count: int) -> dict[str, Any]:
    """Time of one decode step of `count` sequences that hold `context` tokens each."""
    tokens = _tokens(model, spec.seed, context)
    steps = min(spec.warmup + spec.repeat, _room(model, count) - context)
    sequences = [model.add() for _ in range(count)]
    for sequence in sequences:
        model.prefill(sequence, tokens)
    times = []
    for number in range(steps):
        progress(f"decode of {count} x {context} tokens, {number}")
        started = time.perf_counter()
        model.decode(sequences, [int(tokens[number % context])] * count)
        times.append((time.perf_counter() - started) * 1000.0)
    occupied = _occupied(model.pool)
    for sequence in sequences:
        model.drop(sequence)
    measured = statistics(times[min(spec.warmup, steps - 1) :])
    rate = 1000.0 * count / measured["median"]
    return {"context": context, "sequences": count, "latency_ms": measured, "tokens_per_second": rate, "kv_cache": occupied}


def _occupied(pool: Any) -> dict[str, float]:
    """Parts of the KV cache: `utilization`, held by sequences; `fragmentation`, of that what holds no token yet."""
    capacity = pool.pages * pool.page_size
    held = capacity - pool.free_tokens
    tokens = sum(pool.length(sequence) - pool.start(sequence) for sequence in pool.sequences)
    return {"utilization": held / capacity, "fragmentation": 1.0 - tokens / held}


def _room(model: Any, count: int) -> int:
    """Tokens that each of `count` sequences may have, in whole pages."""
    return int(min(model.context, model.pool.pages // count * model.pool.page_size))


def _tokens(model: Any, seed: int, size: int) -> Any:
    from pydoit.random_tensors import integers

    return integers(seed, "profile", (size,), 0, model.vocabulary - 1)
