"""Perplexity of an int4 language model by how its weights are rounded, before and after a rotation of the residual stream.

    python benchmarks/quantization.py --model FOLDER [--group-size 128] [--windows 32] [--methods A,B] [--json FILE]

FOLDER holds one GGUF file. Every row is torch alone: the reference model in float32 with the weights that the blocks stand
for, on one thread. The text is the one that smollm2 is verified on, 4 pieces of 512 tokens; calibration reads the stage's
default text. A rotation multiplies the residual stream, and the values of each head, by seeded random orthogonal matrices
that are folded into the weights, as QuaRot (Ashkboos et al., 2024, arXiv:2404.00456) does for weights.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
METHODS = ("float32", "nearest", "gptq", "rotated float32", "rotated nearest", "rotated gptq")
KEY = "text"
PIECES, SIZE = 4, 512
EMBEDDING_GROUP = 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="folder with a GGUF file")
    parser.add_argument("--group-size", type=int, default=128)
    parser.add_argument("--windows", type=int, default=32, help="pieces of the calibration text")
    parser.add_argument("--seed", type=int, default=0, help="of the rotation")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    sys.path.insert(0, str(HERE.parent))
    import torch

    from pydoit.models.calibration import python_documentation, token_pieces
    from pydoit.tools import cpu_name, version
    from recipes.texts import python_topics

    torch.set_num_threads(1)
    tokenizer = make_tokenizer(options.model)
    verified = token_pieces(tokenizer, python_topics(), KEY, PIECES, SIZE)
    calibration = token_pieces(tokenizer, python_documentation(), KEY, options.windows, SIZE)
    rows: list[dict[str, Any]] = []
    for method in options.methods.split(","):
        rows.append(measure(method.strip(), options, verified, calibration))
        print(rows[-1], file=sys.stderr, flush=True)
    tools = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "python"))
    print(f"{cpu_name()}, one thread, {tools}; int4, groups of {options.group_size}, {options.windows} x {SIZE} tokens\n")
    print("| method | perplexity | change | bytes | seconds |\n|---|---|---|---|---|")
    for row in rows:
        print(f"| {row['method']} | {row['perplexity']:.3f} | {row['perplexity'] / rows[0]['perplexity'] - 1:+.1%} "
              f"| {row['bytes']:,} | {row['seconds']:.0f} |")  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


def measure(method: str, options: argparse.Namespace, verified: list[Any], calibration: list[Any]) -> dict[str, Any]:
    """A row of the table; its seconds are those of the rounding."""
    from pydoit.models.checkpoint import load_config
    from pydoit.models.reference import load_model

    config = load_config("gguf", options.model, None)
    model: Any = load_model("gguf", None, options.model, None)
    if "rotated" in method:
        rotate(model, config, options.seed)
    started = time.monotonic()
    size = quantize(model, config, method.removeprefix("rotated "), options.group_size, calibration)
    seconds = time.monotonic() - started
    return {"method": method, "perplexity": perplexity(model, verified), "bytes": size, "seconds": seconds}


def quantize(model: Any, config: Any, method: str, group_size: int, calibration: list[Any]) -> int:
    """Put what the blocks stand for in place of the model's matrices; bytes of all weights."""
    import torch

    from pydoit.kernels.cpu.weight_format import WeightFormat, dequantize
    from pydoit.kernels.cpu.weight_format import quantize as round_to
    from pydoit.models.layerwise import round_layers
    from pydoit.models.spec import WeightSpec

    if method == "float32":
        return 4 * sum(parameter.numel() for parameter in model.parameters())
    kept = WeightSpec(scheme="int4", group_size=group_size)
    tables = {id(module.weight): module for module in (model.lm_head, model.model.embed_tokens)}
    size = sum(4 * parameter.numel() for parameter in model.parameters() if parameter.dim() == 1)
    for module in tables.values():
        blocks = round_to(WeightFormat("int8", EMBEDDING_GROUP), module.weight.detach().numpy())
        module.weight.data = torch.from_numpy(dequantize(blocks))
        size += blocks.values.nbytes + blocks.scale.nbytes
    if method == "gptq":
        rounded = [item.compensated.quantized for item in round_layers(model, config, kept, calibration)]
    else:
        rounded = []
        for module in model.model.layers.modules():
            if isinstance(module, torch.nn.Linear):
                rounded.append(round_to(WeightFormat("int4", group_size), module.weight.detach().numpy()))
                module.weight.data = torch.from_numpy(dequantize(rounded[-1]))
    return size + sum(item.values.size // 2 + item.scale.nbytes for item in rounded)


def rotate(model: Any, config: Any, seed: int) -> None:
    """Rotate the residual stream and the values of each head; the function that the model computes stays the same."""
    import torch

    stream, heads = orthogonal(config.hidden, seed), orthogonal(config.head_dim, seed + 1)
    inner = model.model
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    inner.embed_tokens.weight = torch.nn.Parameter(inner.embed_tokens.weight.detach().clone())

    def change(module: Any, left: Any = None, gain: Any = None, right: Any = None) -> None:
        weight = module.weight.data.double()
        weight = weight if gain is None else weight * gain.weight.data.double()
        weight = weight if right is None else (weight.unflatten(1, (-1, len(right))) @ right).flatten(1)
        weight = weight if left is None else (left.T @ weight.unflatten(0, (-1, len(left)))).flatten(0, 1)
        module.weight.data = weight.float().contiguous()

    change(inner.embed_tokens, right=stream)
    change(model.lm_head, gain=inner.norm, right=stream)
    for layer in inner.layers:
        for module in (layer.self_attn.q_proj, layer.self_attn.k_proj):
            change(module, gain=layer.input_layernorm, right=stream)
        change(layer.self_attn.v_proj, left=heads, gain=layer.input_layernorm, right=stream)
        change(layer.self_attn.o_proj, left=stream, right=heads)
        for module in (layer.mlp.gate_proj, layer.mlp.up_proj):
            change(module, gain=layer.post_attention_layernorm, right=stream)
        change(layer.mlp.down_proj, left=stream)
        for norm in (layer.input_layernorm, layer.post_attention_layernorm):
            norm.weight.data.fill_(1)
    inner.norm.weight.data.fill_(1)


def orthogonal(size: int, seed: int) -> Any:
    """A random orthogonal matrix [size, size] of float64, uniform over all."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    q, r = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64))
    return q * r.diagonal().sign()


def perplexity(model: Any, pieces: list[Any]) -> float:
    """Of the pieces, each on its own."""
    import numpy as np
    import torch

    loss, count = 0.0, 0
    with torch.inference_mode():
        for piece in pieces:
            tokens = torch.as_tensor(piece, dtype=torch.int64)
            logits = torch.log_softmax(model(input_ids=tokens[None], use_cache=False).logits[0].double(), -1)
            loss -= float(logits[:-1].gather(1, tokens[1:, None]).sum())
            count += len(piece) - 1
    return float(np.exp(loss / count))


def make_tokenizer(folder: Path) -> Any:
    """The GGUF file's own."""
    from pydoit.models.checkpoint import find_gguf
    from pydoit.models.gguf_tokenizer import write_tokenizer
    from pydoit.runtime.text.tokenizer import Tokenizer

    with tempfile.TemporaryDirectory() as made:
        write_tokenizer(find_gguf(folder), Path(made))
        return Tokenizer.load(Path(made))


if __name__ == "__main__":
    main()
