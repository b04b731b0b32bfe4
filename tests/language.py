"""Small language models for tests: a checkpoint folder with seeded weights, and the stages up to a loaded model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers

from pydoit import passes
from pydoit.runtime.language import LanguageModel, load_language_model
from pydoit.stages import compile as compile_stage
from pydoit.stages import (
    language_import,
    language_optimize,
    language_verify,
    language_weights,
    optimize,
    package,
    tokenizer,
    tune,
)

CPU = {"kind": "cpu", "arch": "x86-64-v3", "threads": 2}
SMALL = {"vocab_size": 131, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 6,
         "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 256}  # fmt: skip
CACHE = {"tokens": 128, "sequences": 5, "page_size": 4, "prefill_chunk": 16}


def write_checkpoint(folder: Path, kind: str, **values: Any) -> Path:
    """A transformers folder with config.json and safetensors."""
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **{**SMALL, "initializer_range": 0.2, **values})
    model = transformers.AutoModelForCausalLM.from_config(config)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:  # biases of zero and norms of one would hide that they are left out
            torch.nn.init.normal_(parameter, mean=1.0 if "norm" in name else 0.0, std=0.2)
    model.save_pretrained(folder)
    return folder


def language_spec(source: str = "transformers", target: dict[str, Any] | None = None, **values: Any) -> dict[str, Any]:
    """The values of `LanguageSpec`."""
    kept = values.pop("kept", {})
    return {"source": source, "cache": {**CACHE, **values.pop("cache", {})}, "kept": kept, "target": target or CPU, **values}


def run_language_chain(spec: dict[str, Any], folder: Path, preset: str = "O2") -> dict[str, Path]:
    """All stages on the checkpoint in folder/fetch/model; folders of the outputs by stage."""
    names = ("fetch", "import", "optimize", "tune", "compile", "weights", "tokenizer", "package")
    out = {name: folder / name for name in names}
    for path in out.values():
        path.mkdir(parents=True, exist_ok=True)
    target = spec["target"]
    language_import.run(language_import.Spec.model_validate(spec), out, out["import"])
    order = {"passes": passes.LANGUAGE_PRESETS[target["kind"]][preset], "target": target}
    language_optimize.run(optimize.Spec.model_validate(order), out, out["optimize"])
    tune.run(tune.Spec.model_validate({"target": target}), out, out["tune"])
    compile_stage.run(compile_stage.Spec.model_validate({"target": target}), out, out["compile"])
    language_weights.run(language_weights.Spec.model_validate(spec), out, out["weights"])
    tokenizer.run(tokenizer.Spec.model_validate({"source": spec["source"]}), out, out["tokenizer"])
    package.run(package.Spec.model_validate({"recipe": "x", "target": target}), out, out["package"])
    return out


def verified_language(spec: dict[str, Any], out: dict[str, Path], folder: Path, **values: Any) -> dict[str, Any]:
    """The verify stage's measurements."""
    tolerance = {"max_abs": 2e-4, "greedy": 1.0, **values.pop("tolerance", {})}
    chosen = {"model": spec, "windows": 3, "window": 40, "greedy_tokens": 12, "tolerance": tolerance, **values}
    return language_verify.run(language_verify.Spec.model_validate(chosen), out, folder)


def loaded(out: dict[str, Path]) -> LanguageModel:
    """The packaged artifact."""
    return load_language_model(out["package"])


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())
