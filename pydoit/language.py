"""What the stages of a language model read of its recipe, and what such a recipe may not say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydoit.models.calibration import DEFAULT
from pydoit.recipe import Recipe
from pydoit.toml_lines import KeyPath

SWEPT = ("prompt", "context", "sequences")
"""What [profile.shapes] may sweep: tokens of a prompt, tokens before the decoded one, sequences decoded at a time."""
LATER = ("max_degradation", "require_speedup")
"""Keys of [quantization] that no stage of a language model reads yet."""
METRICS = frozenset({"greedy", "top1", "divergence", "perplexity"})
"""Tolerances that only language models have."""


def stage_values(stage: str, recipe: Recipe, target: dict[str, Any], order: list[Any]) -> dict[str, Any]:
    """The values for a stage's `Spec`."""
    if stage == "optimize":
        return {"passes": order, "target": target, "instrument": recipe.passes.instrument}
    values = model_values(recipe, target)
    if stage == "import":  # a definition without values: other weights do not recompile
        return {**values, "weights": None, "matmul": recipe.kernels.matmul if recipe.target.kind == "cuda" else "auto"}
    if stage == "verify":
        verify = recipe.verify.model_dump(mode="json")
        text = verify["language"].pop("text")
        named = text if text is None or ":" in text else "file"
        if recipe.model.weights is not None:  # seeded weights know no language
            named, verify["language"]["prompts"] = None, ()
        return {"model": values, "seed": verify["seed"], "text": named, "tolerance": verify["tolerance"], **verify["language"]}
    if stage == "quantize":
        quantization = recipe.quantization
        text = quantization.calibration if quantization is not None else None
        named = DEFAULT if text is None else text if ":" in text else "file"
        seed = None if recipe.model.weights is None else int(recipe.model.weights.removeprefix("random:"))
        # Seeded weights know no language.
        chosen = {"text": named if seed is None else None}
        return {"source": recipe.model.source, "seed": seed, "kept": values["kept"], **chosen}
    if stage == "profile":
        profile = recipe.profile.model_dump(mode="json", exclude={"concurrency"})
        return {"cache": values["cache"], "seed": recipe.verify.seed, "target": target, **profile}
    return values


def model_values(recipe: Recipe, target: dict[str, Any]) -> dict[str, Any]:
    """The values of `pydoit.models.spec.LanguageSpec`."""
    from pydoit.recipe import KvCache

    quantization = recipe.quantization
    kept: dict[str, Any] = {"precision": recipe.target.precision}
    if quantization is not None:
        named = {"scheme", "group_size", "symmetric", "exclude"}
        kept |= quantization.model_dump(mode="json", include=named)
    return {
        "source": recipe.model.source,
        "weights": recipe.model.weights,
        "cache": (recipe.model.kv_cache or KvCache()).model_dump(mode="json"),
        "kept": kept,
        "target": target,
    }


def faults(recipe: Recipe) -> Iterator[tuple[KeyPath, str]]:
    """Contradictions of a language model's recipe."""
    model, quantization = recipe.model, recipe.quantization
    cache = model.kv_cache
    bits = quantization.scheme if quantization is not None else ""
    method = quantization.method if quantization is not None else ""
    cuda = recipe.target.kind == "cuda"
    rules: tuple[tuple[bool, KeyPath, str], ...] = (
        (model.source not in ("gguf", "transformers"), ("model", "kv_cache"),
         f'does not go with source = "{model.source}"; language models come from "transformers" or "gguf"'),
        (bool(model.inputs), ("model", "inputs"), "a language model has its own inputs; remove them"),
        (bool(model.dims), ("model", "dims"), "a language model has its own dimensions; bound them in [model.kv_cache]"),
        (model.path is None and model.weights is None, ("model", "path"), "is missing; name the checkpoint's files"),
        (model.path is None and model.config is None, ("model", "config"), "is missing; without model.path name a config.json"),
        (model.source == "gguf" and model.weights is not None, ("model", "weights"),
         'a GGUF file has weights of its own; remove it, or use source = "transformers"'),
        (bool(model.constants), ("model", "constants"), "a language model has its own inputs, none constant; remove it"),
        (model.outputs is not None, ("model", "outputs"), "a language model has one output, its logits; remove it"),
        (model.auto_class not in ("AutoModel", "AutoModelForCausalLM"), ("model", "auto_class"),
         f"{model.auto_class} is no language model's class; remove it, or [model.kv_cache]"),
        (bool(model.packages), ("model", "packages"), "a language model runs no code of its own; remove them"),
        (recipe.verify.dataset is not None, ("verify", "dataset"),
         "a language model is compared on verify.language.text; name that"),
        (cache is not None and cache.prefill_chunk > cache.tokens, ("model", "kv_cache", "prefill_chunk"),
         "is more than the cache's tokens; make it smaller"),
        (cache is not None and cache.sequences * cache.page_size > cache.tokens, ("model", "kv_cache", "sequences"),
         "each sequence needs a page; raise tokens or lower sequences"),
        (recipe.passes.check is not None, ("passes", "check"),
         "does not go with language models; their verify stage compares logits; remove it"),
        (recipe.target.precision == "tf32", ("target", "precision"), 'use "float32", "bfloat16" or "float16"'),
        (bool(bits) and bits not in ("int8", "int4"), ("quantization", "scheme"),
         f"{bits} is not supported for language models yet; use int8 or int4"),
        (bool(bits) and cuda, ("quantization", "scheme"), "is not supported on cuda yet; remove it"),
        (bits == "int8" and quantization is not None and not quantization.symmetric, ("quantization", "symmetric"),
         "int8 is always symmetric; remove it"),
        (method == "gptq" and bits == "int8", ("quantization", "method"),
         'rounding to int8 loses next to nothing, so there is nothing to make up for; use "nearest", or int4'),
        (method == "nearest" and quantization is not None and quantization.calibration is not None,
         ("quantization", "calibration"), 'rounding to the nearest reads no text; remove it, or set method = "gptq"'),
        (model.weights is not None and quantization is not None and quantization.calibration is not None,
         ("quantization", "calibration"), "seeded weights know no language and are calibrated on random tokens; remove it"),
        *((quantization is not None and getattr(quantization, name) is not None, ("quantization", name),
           "is not supported for language models yet; remove it") for name in LATER),
        (cuda and recipe.target.precision == "float32", ("target", "precision"),
         'language models run on cuda in "bfloat16" or "float16"; choose one'),
        (not cuda and recipe.target.precision == "float16", ("target", "precision"),
         'language models run on CPUs in "float32" or "bfloat16"; choose one'),
        (bool(recipe.profile.concurrency), ("profile", "concurrency"),
         "a language model decodes sequences together; use profile.shapes.sequences"),
    )  # fmt: skip
    yield from ((path, text) for applies, path, text in rules if applies)
    for name in recipe.profile.shapes:
        if name not in SWEPT:
            yield ("profile", "shapes", name), f"a language model is measured over {', '.join(SWEPT)}; use one of them"
