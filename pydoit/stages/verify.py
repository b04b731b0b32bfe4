"""verify: the compiled model against the original one in float32, on real inputs; a miss fails the build."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydoit import importers
from pydoit.errors import GateError, UserError
from pydoit.frozen import Frozen
from pydoit.importers.spec import ModelSpec
from pydoit.target import ResolvedTarget

TOOLS = ("apache-tvm", "apache-tvm-ffi", "torch", "transformers", "onnxruntime", "numpy")
READS = {
    "fetch": ("*",),
    "optimize": ("spec.json",),
    "compile": ("lib*.so*",),
    "weights": ("model.safetensors",),
}


class Tolerance(Frozen):
    """Bounds by metric; None: not checked."""

    max_abs: float | None = 1e-3
    """Largest absolute difference."""
    max_rel: float | None = None
    """Largest difference relative to the largest magnitude of the sample's reference."""
    cosine: float | None = 0.99999
    """Least cosine similarity of an output."""


class Spec(Frozen):
    """What is compared with what."""

    model: ModelSpec
    """The original model."""
    reference: Literal["torch", "onnxruntime"] | None = None
    """What runs the original; None: as the source says."""
    samples: int = 8
    """Number of inputs."""
    seed: int = 0
    """Seed of made-up or drawn inputs."""
    dataset: str | None = None
    """`module:callable`, "file" for the stage's input file, or None for seeded random inputs."""
    tolerance: Tolerance = Tolerance()
    """Bounds by metric."""
    target: ResolvedTarget = ResolvedTarget(kind="cpu", arch="native")
    """What the library was compiled for."""


def run(spec: Spec, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Measure the errors; raises GateError where one misses its bound or the comparison would prove nothing."""
    from pydoit import datasets
    from pydoit.comparison import Comparison
    from pydoit.compiled import open_model

    folder = inputs["fetch"] / "model"
    dataset = inputs["dataset"] if spec.dataset == "file" else spec.dataset
    samples = datasets.load(dataset, spec.model.inputs, spec.samples, spec.seed, folder, spec.model.dims)
    compiled = open_model(inputs, spec.target.threads)
    reference = importers.reference(spec.model, folder, spec.reference)
    comparison = Comparison()
    for sample in samples:
        comparison.add(compiled(**sample), _reference_outputs(reference, sample))
    measured = {
        "reference": spec.reference or importers.REFERENCES[spec.model.source],
        "seed": spec.seed,
        "tolerance": spec.tolerance.model_dump(),
        **comparison.summary(),
    }
    failures = list(_failures(measured, spec.tolerance))
    measured = {"passed": not failures, **measured}
    if failures:
        raise GateError("; ".join(failures), measured)
    return measured


def _reference_outputs(reference: importers.Reference, sample: dict[str, Any]) -> dict[str, Any]:
    try:
        return reference(sample)
    except Exception as error:  # whatever the user's model, dataset or framework raises on this input
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(f"verify: the reference fails on its input ({reason}); correct the inputs or dataset") from error


def _failures(measured: Mapping[str, Any], tolerance: Tolerance) -> Iterable[str]:
    where = f"output {measured['worst_output']!r}, sample {measured['worst_sample']}"
    if measured["samples"] > 1 and measured["distinct_outputs"] < 2:
        yield (
            f"the reference gives one output for all {measured['samples']} inputs, so the check proves nothing; "
            "choose inputs or weights whose outputs differ"
        )
    if measured["not_finite"]:
        yield f"{measured['not_finite']} values are NaN or infinite ({where}); look for the pass that broke them"
    for metric in ("max_abs", "max_rel"):
        value, bound = float(measured[metric]), getattr(tolerance, metric)
        if bound is not None and not value <= bound:
            yield f"{metric} is {value:.3g}, above {bound:g} ({where}); find the cause, or raise the tolerance"
    if tolerance.cosine is not None and not float(measured["cosine"]) >= tolerance.cosine:
        yield f"cosine is {float(measured['cosine']):.7f}, below {tolerance.cosine:g}; find the cause, or lower the bound"
