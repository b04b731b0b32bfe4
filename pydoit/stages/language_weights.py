"""weights, language models: the checkpoint, tensor by tensor, in the layout that the library's kernels read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydoit.models.spec import LanguageSpec
from pydoit.worker import progress

FILE = "blocks.safetensors"
TOOLS = ("gguf", "numpy", "safetensors", "ml_dtypes")
READS = {"fetch": ("model/*.safetensors", "model/*.safetensors.index.json", "model/*.gguf"), "import": ("spec.json",),
         "quantize": (FILE,)}  # fmt: skip


class Spec(LanguageSpec):
    """The language model."""


def run(spec: Spec, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Write model.safetensors; raises UserError for a checkpoint that does not belong to the config."""
    from pydoit import weight_file
    from pydoit.models.checkpoint import open_checkpoint
    from pydoit.models.config import DecoderConfig
    from pydoit.models.quantized_blocks import BlockCheckpoint
    from pydoit.models.targets import make_operators
    from pydoit.models.weights import packed_weights

    described = json.loads((inputs["import"] / "spec.json").read_bytes())
    config = DecoderConfig.model_validate(described["language"]["config"])
    operators = make_operators(config, spec)
    folder = inputs["fetch"] / "model" if "fetch" in inputs else Path()
    checkpoint = open_checkpoint(spec.source, folder, spec.weight_seed, config)
    if "quantize" in inputs:
        checkpoint = BlockCheckpoint(inputs["quantize"] / FILE, checkpoint)
    weights = described["weights"]

    def counted() -> Any:
        for number, item in enumerate(packed_weights(config, operators, checkpoint), start=1):
            progress(f"piece {number}: {item.name}")
            yield item

    weight_file.stream(out / "model.safetensors", weights, counted())
    return {"tensors": len(weights), "bytes": (out / "model.safetensors").stat().st_size}
