"""import: a model's own format becomes Relax with weights as parameters of `main`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydoit import importers
from pydoit.importers.spec import ModelSpec
from pydoit.keys import pretty

TOOLS = ("apache-tvm", "apache-tvm-ffi", "torch", "transformers", "onnx", "numpy", "safetensors")
READS = {"fetch": ("*",)}


class Spec(ModelSpec):
    """The model's definition."""


def run(spec: Spec, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Write module.json, params.safetensors and spec.json; inputs["fetch"]/model holds the model's files."""
    imported = importers.load(spec, inputs["fetch"] / "model")
    from tvm.ir import save_json

    from pydoit import weight_file

    (out / "module.json").write_text(save_json(imported.module), encoding="utf-8")
    weight_file.write(out / "params.safetensors", imported.params)
    (out / "spec.json").write_bytes(pretty(imported.spec()))
    return {
        "parameters": sum(array.size for array in imported.params.values()),
        "parameter_bytes": sum(array.nbytes for array in imported.params.values()),
        "operators": imported.operators(),
    }
