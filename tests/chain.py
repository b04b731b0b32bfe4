"""Runs the stages from import to results in this process: what a build does, without the store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pydoit import passes
from pydoit.runtime import load
from pydoit.stages import compile as compile_stage
from pydoit.stages import import_, optimize, package, tune, verify, weights


def run_chain(
    model: dict[str, Any],
    folder: Path,
    preset: str = "O2",
    arch: str = "x86-64-v3",
    order: Sequence[passes.Entry] | None = None,
) -> dict[str, Path]:
    """Import, optimize, match records, compile, make weights, package; folders of the outputs by stage.

    The passes are those of the preset, or of `order` where it is given.
    """
    target = {"kind": "cpu", "arch": arch, "threads": 2}
    out = {name: folder / name for name in ("fetch", "import", "optimize", "tune", "compile", "weights", "package")}
    for path in out.values():
        path.mkdir(parents=True, exist_ok=True)
    (out["fetch"] / "model").mkdir(exist_ok=True)
    import_.run(import_.Spec.model_validate(model), out, out["import"])
    spec = {"passes": order or passes.PRESETS[preset], "target": target}
    optimize.run(optimize.Spec.model_validate(spec), out, out["optimize"])
    tune.run(tune.Spec.model_validate({"target": target}), out, out["tune"])
    compile_stage.run(compile_stage.Spec.model_validate({"target": target}), out, out["compile"])
    weights.run(weights.Spec.model_validate({"target": target}), out, out["weights"])
    package.run(package.Spec.model_validate({"recipe": "x", "target": target}), out, out["package"])
    return out


def verified(model: dict[str, Any], out: dict[str, Path], folder: Path, samples: int = 3, **tolerance: float) -> dict[str, Any]:
    """The verify stage's measurements on the outputs of `run_chain`."""
    target = {"kind": "cpu", "arch": "x86-64-v3", "threads": 2}
    spec = {"model": model, "samples": samples, "target": target, "tolerance": tolerance}
    return verify.run(verify.Spec.model_validate(spec), out, folder)


def results(out: dict[str, Path], **inputs: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """What the packaged artifact computes."""
    return load(out["package"])(**inputs)
