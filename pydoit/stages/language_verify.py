"""verify, language models: logits, continuations and perplexity beside transformers in float32; a miss fails the build."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydoit.errors import GateError, UserError
from pydoit.frozen import Frozen
from pydoit.models.spec import LanguageSpec
from pydoit.worker import progress

TOOLS = ("apache-tvm", "apache-tvm-ffi", "torch", "transformers", "tokenizers", "gguf", "numpy")
READS = {
    "fetch": ("*",),
    "optimize": ("spec.json",),
    "compile": ("lib.so",),
    "weights": ("model.safetensors",),
    "tokenizer": ("*",),
}
TEXT_KEY = "verify.language.text"
OPTIONAL = ("tokenizer",)
"""Without a tokenizer, which seeded weights may lack, the text is made of seeded random tokens."""


class Tolerance(Frozen):
    """Bounds by metric; None: not checked."""

    max_abs: float | None = 2e-3
    """Largest absolute difference of a logit; also of batched from single and chunked from whole."""
    max_rel: float | None = None
    """Largest difference relative to the largest logit."""
    cosine: float | None = None
    """Least cosine similarity of the logits of a position."""
    greedy: float | None = None
    """Least part of the continuations' tokens that are equal."""
    top1: float | None = None
    """Least part of the positions with the same likeliest token."""
    divergence: float | None = None
    """Largest mean Kullback-Leibler divergence from the reference, nats a token."""
    perplexity: float | None = None
    """Largest relative difference of the perplexity."""


class Spec(Frozen):
    """What is compared on what."""

    model: LanguageSpec
    """The language model."""
    seed: int = 0
    """Seed of random tokens."""
    text: str | None = None
    """`module:callable`, "file" for the stage's input file, or None for random tokens."""
    windows: int = 4
    """Pieces of the text."""
    window: int = 512
    """Tokens of a piece."""
    prompts: tuple[str, ...] = ()
    """Prompts that both continue; beginnings of the pieces when empty."""
    greedy_tokens: int = 32
    """Tokens of each continuation."""
    tolerance: Tolerance = Tolerance()
    """Bounds by metric."""


def run(spec: Spec, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Measure; raises GateError where a metric misses its bound or the comparison would prove nothing."""
    from pydoit.models.evaluation import evaluate
    from pydoit.models.reference import Reference
    from pydoit.runtime.language import LanguageModel

    described = json.loads((inputs["optimize"] / "spec.json").read_bytes())
    target = spec.model.target
    files = [inputs["weights"] / "model.safetensors"]
    model = LanguageModel(
        inputs["compile"] / "lib.so", files, described["language"], target=target.model_dump(), threads=target.threads
    )
    window = min(spec.window, model.longest)
    if window < 2:
        raise UserError("verify.language: a piece of one token predicts nothing; raise kv_cache.tokens to 2 or more")
    pieces, prompts = _texts(spec, inputs, model.vocabulary, window)
    prompts = [prompt[: model.longest] for prompt in prompts]
    folder = inputs["fetch"] / "model" if "fetch" in inputs else Path()
    progress("loading the reference")
    reference = Reference(spec.model, folder, inputs.get("config"))
    measured = {
        "reference": f"transformers float32 on {reference.device}",
        "seed": spec.seed,
        "tolerance": spec.tolerance.model_dump(exclude_none=True),
        **evaluate(model, reference, pieces, prompts, spec.greedy_tokens),
    }
    failures = list(_failures(measured, spec.tolerance))
    measured = {"passed": not failures, **measured}
    if failures:
        raise GateError("; ".join(failures), measured)
    return measured


def _texts(spec: Spec, inputs: Mapping[str, Path], vocabulary: int, window: int) -> tuple[list[Any], list[Any]]:
    """Token ids of the pieces and of the prompts."""
    import numpy as np

    from pydoit.models.calibration import random_pieces, read_text, token_pieces
    from pydoit.runtime.text.tokenizer import Tokenizer

    has_tokenizer = "tokenizer" in inputs and any(inputs["tokenizer"].iterdir())
    if spec.text is None or not has_tokenizer:
        if spec.prompts or spec.text is not None:
            raise UserError("verify.language: text and prompts need a tokenizer, which this model lacks; remove them")
        random = random_pieces(spec.seed, vocabulary, spec.windows, window)
        return random, [piece[: 7 + 3 * index] for index, piece in enumerate(random)]
    tokenizer = Tokenizer.load(inputs["tokenizer"], model_vocabulary=vocabulary)
    text = read_text(spec.text, TEXT_KEY, inputs.get("text"))
    pieces = token_pieces(tokenizer, text, TEXT_KEY, spec.windows, window)
    prompts = [np.array(tokenizer.encode(prompt), dtype=np.int32) for prompt in spec.prompts]
    return pieces, prompts or [piece[: 7 + 5 * index] for index, piece in enumerate(pieces)]


def _failures(measured: Mapping[str, Any], tolerance: Tolerance) -> Iterator[str]:
    if measured["not_finite"]:
        yield f"{measured['not_finite']} logits are NaN or infinite; look for the kernel or pass that broke them"
    if measured["distinct_outputs"] < 2:
        yield "the reference gives the same logits everywhere, so the check proves nothing; choose other weights or text"
    largest = {"max_abs": "max_abs", "max_rel": "max_rel", "divergence": "divergence", "perplexity": "perplexity_change",
               "batched": "batched_max_abs", "chunked": "chunked_max_abs"}  # fmt: skip
    bounds = {**tolerance.model_dump(), "batched": tolerance.max_abs, "chunked": tolerance.max_abs}
    for name, metric in largest.items():
        value, bound = measured[metric], bounds[name]
        if bound is not None and value is not None and not float(value) <= bound:
            yield f"{metric} is {float(value):.3g}, above {bound:g}; find the cause, or raise the tolerance"
    for name in ("cosine", "greedy", "top1"):
        value, bound = measured[name], bounds[name]
        if bound is not None and value is not None and not float(value) >= bound:
            yield f"{name} is {float(value):.5f}, below {bound:g}; find the cause, or lower the bound"
