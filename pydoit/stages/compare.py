"""compare: several libraries of one model timed in turn in one process, and how their outputs differ; no part of a build."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydoit.frozen import Frozen
from pydoit.importers.spec import Dim, Input
from pydoit.measure import interleaved, repeats_of
from pydoit.target import ResolvedTarget
from pydoit.worker import progress

TOOLS = ("apache-tvm", "apache-tvm-ffi", "numpy")
READS: Mapping[str, tuple[str, ...]] = {}
SHORTEST_SECONDS = 0.002
"""A sample of a round takes at least this long, so that the clock's and the scheduler's grain does not show."""
WARMUP = 3


class Spec(Frozen):
    """How the libraries are measured."""

    inputs: dict[str, Input]
    """The model's inputs; seeded random values within their ranges are used."""
    dims: dict[str, Dim] = {}
    """The symbolic dimensions; what is measured is measured at their largest extents."""
    seed: int = 0
    """Seed of the inputs."""
    rounds: int = 30
    """Samples of each library; a round takes one of each, every other round in the opposite order."""
    target: ResolvedTarget = ResolvedTarget(kind="cpu", arch="native")
    """What the libraries were compiled for; its thread count is used."""


def run(spec: Spec, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Return {"times": milliseconds of a call by library and round, "differences": largest to the first's outputs}.

    `inputs` holds the folders "N.optimize" (spec.json), "N.compile" (lib.so), "N.weights" (model.safetensors) of library N.
    """
    from pydoit.compiled import open_model
    from pydoit.random_tensors import random_sample

    count = 1 + max(int(name.partition(".")[0]) for name in inputs)
    stages = ("optimize", "compile", "weights")
    models = [open_model({stage: inputs[f"{n}.{stage}"] for stage in stages}, spec.target.threads) for n in range(count)]
    sample = random_sample(spec.inputs, spec.seed, 0, {name: dim.max for name, dim in spec.dims.items()})
    first = models[0](**sample)
    differences = [_difference(model(**sample), first) for model in models]
    calls = [model.bind(sample) for model in models]
    repeats = [repeats_of(call, warmup=WARMUP, seconds=SHORTEST_SECONDS) for call in calls]
    times = interleaved(calls, repeats, spec.rounds, progress)
    return {"times": times, "differences": differences}


def _difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> float | str:
    """Largest absolute difference over all outputs; "inf" where one is not finite and the other is."""
    import numpy as np

    largest = 0.0
    for name, array in wanted.items():
        mine, theirs = found[name].astype(np.float64), array.astype(np.float64)
        if mine.shape != theirs.shape or (np.isfinite(mine) != np.isfinite(theirs)).any():
            return "inf"
        both = np.isfinite(theirs)
        largest = max(largest, float(np.abs(mine[both] - theirs[both]).max(initial=0.0)))
    return largest
