"""bench: two artifacts timed in turn in one process; no part of a build."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydoit.frozen import Frozen
from pydoit.measure import Call, interleaved, repeats_of
from pydoit.worker import progress

TOOLS = ("apache-tvm", "apache-tvm-ffi", "numpy")
READS: Mapping[str, tuple[str, ...]] = {}
SHORTEST_SECONDS = 0.005
"""A sample takes at least this long, so that the clock's and the scheduler's grain does not show."""
WARMUP = 5


class Spec(Frozen):
    """How the artifacts are measured."""

    extents: dict[str, int] = {}
    """Symbolic dimensions that are not measured at their largest."""
    seed: int = 0
    """Seed of the inputs."""
    rounds: int = 40
    """Samples of each artifact; a round takes one of each, every other round in the opposite order."""
    swap: bool = False
    """Load the second artifact first: where things come to lie in memory is part of the noise."""
    threads: int | None = None
    """Size of the thread pool; None: as the first artifact's manifest has it."""
    prompt: int = 128
    """Language models: tokens of the prompt, and before the decoded ones."""


def run(spec: Spec, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Return {"times": {metric: [milliseconds of "a", of "b"]}, "load_ms": [a, b], "clocks": MHz before and after}.

    `inputs["a"]` and `inputs["b"]` are artifact folders. Raises UserError where their inputs differ.
    """
    clocks = [_clock()]
    threads = spec.threads if spec.threads is not None else _manifest(inputs["a"])["target"]["threads"]
    names = ("b", "a") if spec.swap else ("a", "b")
    calls: dict[str, dict[str, Call]] = {}
    load: dict[str, float] = {}
    for name in names:
        started = time.perf_counter()
        calls[name] = dict(_calls(inputs[name], spec, threads))
        load[name] = (time.perf_counter() - started) * 1000.0
    times = {metric: _interleaved([calls["a"][metric], calls["b"][metric]], spec.rounds, metric) for metric in calls["a"]}
    return {"times": times, "load_ms": [load["a"], load["b"]], "clocks": [*clocks, _clock()]}


def _manifest(folder: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((folder / "manifest.json").read_bytes())
    return value


def _calls(folder: Path, spec: Spec, threads: int) -> Iterator[tuple[str, Call]]:
    """What is timed of an artifact: one call of a model; of a language model a prompt and a decoded token."""
    if "language" in _manifest(folder):
        yield from _language_calls(folder, spec, threads)
        return
    from pydoit.importers.spec import Input
    from pydoit.random_tensors import random_sample
    from pydoit.runtime import load

    model = load(folder, threads)
    extents = {name: largest for name, (_, largest) in model.dims.items()} | spec.extents
    inputs = {item.name: Input(shape=item.shape, dtype=item.dtype) for item in model.inputs}
    yield "latency", model.bind(random_sample(inputs, spec.seed, 0, extents))


def _language_calls(folder: Path, spec: Spec, threads: int) -> Iterator[tuple[str, Call]]:
    from pydoit.random_tensors import integers
    from pydoit.runtime import load_language_model

    model = load_language_model(folder, threads)
    size = min(spec.prompt, model.capacity // 2 - 1)
    tokens = integers(spec.seed, "prompt", (size,), 0, model.vocabulary - 1)
    kept = model.add()
    model.prefill(kept, tokens)

    def prefill() -> None:
        sequence = model.add()
        model.prefill(sequence, tokens)
        model.drop(sequence)

    def decode() -> None:
        branch = model.fork(kept)
        model.decode([branch], [int(tokens[0])])
        model.drop(branch)

    yield "prefill", prefill
    yield "decode", decode


def _interleaved(calls: Sequence[Call], rounds: int, metric: str) -> list[list[float]]:
    """Milliseconds of both by round, of samples of equally many calls."""
    repeats = max(repeats_of(call, warmup=WARMUP, seconds=SHORTEST_SECONDS) for call in calls)
    return interleaved(calls, [repeats] * len(calls), rounds, lambda text: progress(f"{metric}: {text}"))


def _clock() -> float | None:
    """Mean clock of the CPUs in MHz, as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    clocks = [float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")]
    return sum(clocks) / len(clocks) if clocks else None
