"""A compiled language model on a GPU: speed, and its distance from float32 beside that of transformers in bfloat16.

    python benchmarks/language_gpu.py llama3@random --library lib.so --spec spec.json [--json FILE]

The library and its spec.json are outputs of compile and optimize, made on any machine; weights are made here.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--spec", type=Path, required=True)
    parser.add_argument(
        "--weights", type=Path, default=Path(tempfile.gettempdir(), "modelbuild-weights"), help="folder, made when missing"
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--tokens", type=int, default=512, help="tokens compared with float32")
    options = parser.parse_args()
    from pydoit.resolve import resolve
    from pydoit.workspace import open_workspace

    nodes = resolve(open_workspace(), options.recipe).nodes
    inputs = {
        "optimize": options.spec.parent, "import": options.spec.parent, "compile": options.library.parent,
        "weights": options.weights,
    }  # fmt: skip
    make_weights(nodes["weights"].spec, inputs)
    results: dict[str, Any] = {}
    for name, measure in (
        ("accuracy", lambda: accuracy(nodes["verify"].spec["model"], inputs, options.tokens)),
        ("speed", lambda: speed(nodes["profile"].spec, inputs)),
    ):
        try:
            results[name] = measure()
        except Exception:  # noqa: BLE001 - the other part is worth having
            traceback.print_exc()
    if options.json:
        options.json.write_text(json.dumps(results, indent=2, default=float))


def make_weights(spec: Any, inputs: dict[str, Path]) -> None:
    from pydoit.stages import language_weights

    if (inputs["weights"] / "model.safetensors").is_file():
        return
    inputs["weights"].mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    made = language_weights.run(language_weights.Spec.model_validate(spec), inputs, inputs["weights"])
    print(f"weights: {made['bytes'] / 1e9:.1f} GB in {time.perf_counter() - started:.0f} s", flush=True)


def speed(spec: Any, inputs: dict[str, Path]) -> dict[str, Any]:
    from pydoit.stages import language_profile

    measured = language_profile.run(language_profile.Spec.model_validate(spec), inputs, Path("/tmp"))
    print(f"{measured['device']}; load {measured['load_ms'] / 1000:.1f} s", flush=True)
    for item in measured["decode"]:
        print(f"decode  {item['sequences']:3d} x {item['context']:5d}: {item['latency_ms']['median']:7.3f} ms, "
              f"{item['tokens_per_second']:8.1f} tokens/s", flush=True)  # fmt: skip
    for item in measured["prefill"]:
        print(
            f"prefill     {item['prompt']:5d}: {item['latency_ms']['median']:7.2f} ms, "
            f"{item['tokens_per_second']:8.0f} tokens/s",
            flush=True,
        )
    return measured


def accuracy(spec: Any, inputs: dict[str, Path], tokens: int) -> dict[str, Any]:
    """Divergence and top-1 disagreement from float32, ours and transformers' in the recipe's precision."""
    import torch

    from pydoit.models.evaluation import compare_scores, score
    from pydoit.models.reference import Reference
    from pydoit.models.spec import LanguageSpec
    from pydoit.random_tensors import integers
    from pydoit.runtime.language import LanguageModel

    chosen = LanguageSpec.model_validate(spec)
    described = json.loads((inputs["optimize"] / "spec.json").read_bytes())["language"]
    piece = integers(0, "accuracy", (tokens,), 0, described["config"]["vocabulary"] - 1).astype(np.int32)
    config = Path("recipes/models/llama3-8b/config.json")
    started = time.perf_counter()
    reference = Reference(chosen, Path(), config)
    print(f"reference on {reference.device} in {time.perf_counter() - started:.0f} s", flush=True)
    exact = reference.logits(piece)
    reference.round_to(chosen.kept.precision)
    rounded = reference.logits(piece)
    print(f"transformers, eager: prefill {tokens}: {eager_prefill(reference, piece) * 1e3:.2f} ms", flush=True)
    del reference
    torch.cuda.empty_cache()
    model = LanguageModel(inputs["compile"] / "lib.so", [inputs["weights"] / "model.safetensors"], described,
                          target=chosen.target.model_dump())  # fmt: skip
    ours = score(model, piece)
    result = {}
    for name, logits in (("ours", ours), ("transformers", rounded)):
        result[name] = compare_scores(lambda _: logits, lambda _: exact, [piece])  # noqa: B023 - called at once
        item = result[name]
        print(f"{name:13s} divergence {item['divergence']:.5f}, top-1 disagreement {1 - item['top1']:.4f}, "
              f"max_abs {item['max_abs']:.3f}, "
              f"cosine {item['cosine']:.6f}, perplexity change {item['perplexity_change']:.2e}", flush=True)  # fmt: skip
    return result


def eager_prefill(reference: Any, piece: Any) -> float:
    """Median seconds of transformers' eager forward pass with the last token's logits."""
    import torch

    given = torch.from_numpy(piece.astype(np.int64))[None].to(reference.device)
    times = []
    with torch.inference_mode():
        for _ in range(8):
            torch.cuda.synchronize()
            started = time.perf_counter()
            reference.model(input_ids=given, use_cache=True, logits_to_keep=1).logits.float().cpu()
            times.append(time.perf_counter() - started)
    return sorted(times[2:])[3]


if __name__ == "__main__":
    main()
