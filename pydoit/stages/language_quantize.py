"""quantize, language models: matrices rounded with calibration inputs, so that the weights stage has no need to round anew."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydoit.errors import UserError
from pydoit.frozen import Frozen
from pydoit.models.calibration import DEFAULT
from pydoit.models.spec import WeightSpec
from pydoit.worker import progress

if TYPE_CHECKING:
    from pydoit.kernels.cpu.weight_format import Quantized
    from pydoit.models.layerwise import Rounded

TOOLS = ("torch", "transformers", "tokenizers", "gguf", "numpy", "safetensors")
READS = {"fetch": ("model/config.json", "model/*.safetensors", "model/*.safetensors.index.json", "model/*.gguf"),
         "tokenizer": ("*",)}  # fmt: skip
OPTIONAL = ("tokenizer",)
"""Without a tokenizer, which seeded weights may lack, calibration tokens are random."""
FILE = "blocks.safetensors"
KEY = "quantization.calibration"
FLOAT_BYTES = 4


class Spec(Frozen):
    """What is rounded, and on what."""

    source: Literal["gguf", "transformers"]
    """Format of the checkpoint."""
    seed: int | None = None
    """Seed of random weights; None for the checkpoint's own."""
    kept: WeightSpec
    """How weights are kept."""
    method: Literal["gptq"] = "gptq"
    """How they are rounded."""
    text: str | None = DEFAULT
    """`module:callable`, "file" for the stage's input file, or None for random tokens."""
    windows: int = 32
    """Pieces of the text."""
    window: int = 512
    """Tokens of a piece."""


def tools(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """A text that is computed may come from Python's own library, the default one does."""
    return () if spec["text"] in (None, "file") else ("python",)


def run(spec: Spec, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Write blocks.safetensors: `NAME.values`, `NAME.scale` and, with a zero point, `NAME.minimum` by checkpoint tensor.

    Raises UserError for a text of less than one piece and for weights that are not finite.
    """
    _fix_arithmetic()
    import torch

    from pydoit.models.checkpoint import load_config
    from pydoit.models.layerwise import round_layers
    from pydoit.models.parameters import checkpoint_shapes
    from pydoit.models.quantized_blocks import write_blocks
    from pydoit.models.reference import load_model

    torch.set_num_threads(1)
    folder = inputs["fetch"] / "model" if "fetch" in inputs else Path()
    config = load_config(spec.source, folder, inputs.get("config"))
    pieces = _pieces(spec, inputs, config.vocabulary, min(spec.window, config.context))
    progress("loading the model")
    model = load_model(spec.source, spec.seed, folder, inputs.get("config"))
    sizes = {name: shape[0] for name, shape in checkpoint_shapes(config).items()}
    layers: list[dict[str, Any]] = []
    blocks: dict[str, Quantized] = {}
    for rounded in round_layers(model, config, spec.kept, pieces):
        progress(f"{rounded.parameter.name} of {config.layers} layers")
        blocks |= rounded.blocks(sizes)
        layers.append(_figures(rounded))
    write_blocks(out / FILE, blocks)
    return {"calibration_tokens": sum(map(len, pieces)), "tensors": len(blocks), "layers": layers}


def _fix_arithmetic() -> None:
    """Let torch take the same instructions on every x86 CPU with AVX2, so that sums are rounded alike."""
    os.environ.setdefault("ATEN_CPU_CAPABILITY", "avx2")
    os.environ.setdefault("MKL_CBWR", "AVX2")


def _pieces(spec: Spec, inputs: Mapping[str, Path], vocabulary: int, size: int) -> list[Any]:
    from pydoit.models.calibration import random_pieces, read_text, token_pieces
    from pydoit.runtime.text.tokenizer import Tokenizer

    has_tokenizer = "tokenizer" in inputs and any(inputs["tokenizer"].iterdir())
    if has_tokenizer and spec.text is not None:
        tokenizer = Tokenizer.load(inputs["tokenizer"], model_vocabulary=vocabulary)
        return token_pieces(tokenizer, read_text(spec.text, KEY, inputs.get("calibration")), KEY, spec.windows, size)
    if spec.text not in (None, DEFAULT):
        raise UserError(f"{KEY}: a text needs a tokenizer, which this model lacks; remove it")
    return random_pieces(0, vocabulary, spec.windows, size)


def _figures(rounded: Rounded) -> dict[str, Any]:
    """A row of the report's table of layers."""
    from pydoit.models.gptq import decibels

    found, quantized = rounded.compensated, rounded.compensated.quantized
    scales = sum(item.nbytes for item in (quantized.scale, quantized.minimum) if item is not None)
    return {
        "name": rounded.parameter.name,
        "scheme": f"int4, groups of {rounded.format.group_size}",
        "bytes_before": quantized.values.size * FLOAT_BYTES,
        "bytes": quantized.values.size // 2 + scales,
        "error": found.error,
        "nearest_error": found.nearest_error,
        "sqnr_db": decibels(found.error),
    }
