"""inspect_import: what of a model cannot be imported; run by `doit plan --imports`, no part of a build's graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydoit import importers
from pydoit.importers.spec import ModelSpec

TOOLS = ("apache-tvm", "apache-tvm-ffi", "torch", "transformers", "onnx", "numpy", "safetensors")
READS = {"fetch": ("*",)}


class Spec(ModelSpec):
    """The model's definition."""


def run(spec: Spec, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Return {"unsupported": [{operator, count, where, hint}]}; inputs["fetch"]/model holds the model's files."""
    found = importers.unsupported(spec, inputs["fetch"] / "model")
    return {"unsupported": [dataclasses.asdict(item) for item in found]}
