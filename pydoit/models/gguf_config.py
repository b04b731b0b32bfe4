"""The config of a GGUF file's model in the words of transformers' config.json, so that both kinds are built alike."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pydoit.errors import UserError
from pydoit.models.gguf_file import GgufFile
from pydoit.nearest import nearest

ARCHITECTURES = {"llama": "llama", "mistral": "mistral", "qwen2": "qwen2", "qwen3": "qwen3"}
"""general.architecture -> model_type; Mistral's files mostly call themselves llama."""
_SCALING_KEYS = ("type", "factor", "original_context_length", "finetuned")
_LLAMA3_SCALING = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def is_permuted(architecture: str) -> bool:
    """True if llama.cpp's converter changes the order of the rows of attn_q and attn_k (see unpermute_rows)."""
    return architecture in ("llama", "mistral")


def read_config(file: GgufFile) -> dict[str, Any]:
    """Keys and values as in config.json: hidden_size, num_key_value_heads, rope_theta, rope_scaling, ...

    Raises UserError for an architecture that is not known and for what no definition here can express.
    """
    architecture = file.required("general.architecture", str)
    if architecture not in ARCHITECTURES:
        raise UserError(
            f"{file.path}: architecture {architecture!r} is not supported; {nearest(architecture, list(ARCHITECTURES))}"
        )
    if file.value(f"{architecture}.expert_count", int, 0):
        raise UserError(f"{file.path}: this is a mixture of experts, which is not supported; take a dense model")
    heads = _positive(file, f"{architecture}.attention.head_count")
    hidden = _positive(file, f"{architecture}.embedding_length")
    window = file.value(f"{architecture}.attention.sliding_window", int)
    model_type = "mistral" if architecture == "llama" and window else ARCHITECTURES[architecture]
    return {
        "model_type": model_type,
        "hidden_size": hidden,
        "intermediate_size": _positive(file, f"{architecture}.feed_forward_length"),
        "num_hidden_layers": _positive(file, f"{architecture}.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": _positive(file, f"{architecture}.attention.head_count_kv", heads),
        "head_dim": _head_dim(file, architecture, hidden, heads),
        "vocab_size": file.tensor("token_embd.weight").shape[0],
        "max_position_embeddings": _positive(file, f"{architecture}.context_length"),
        "hidden_act": "silu",
        "rms_norm_eps": _shortest(file.required(f"{architecture}.attention.layer_norm_rms_epsilon", float)),
        "rope_theta": _shortest(file.value(f"{architecture}.rope.freq_base", float, 10000.0)),
        "rope_scaling": _rope_scaling(file, architecture),
        "sliding_window": window or None,
        "attention_bias": "blk.0.attn_q.bias" in file.tensors,
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "bos_token_id": file.value("tokenizer.ggml.bos_token_id", int),
        "eos_token_id": file.value("tokenizer.ggml.eos_token_id", int),
    }


def _positive(file: GgufFile, name: str, default: int | None = None) -> int:
    value: int = file.required(name, int) if default is None else file.value(name, int, default)
    if value < 1:
        raise UserError(f"{file.path}: metadata {name!r} is {value}; convert the model again")
    return value


def _shortest(value: float) -> float:
    """A float32 as the shortest decimal that rounds to it: 1e-05 again, as it was in config.json."""
    return float(str(np.float32(value)))


def _head_dim(file: GgufFile, architecture: str, hidden: int, heads: int) -> int:
    size = _positive(file, f"{architecture}.attention.key_length", max(hidden // heads, 1))
    rotated = _positive(file, f"{architecture}.rope.dimension_count", size)
    values = _positive(file, f"{architecture}.attention.value_length", size)
    if rotated != size or values != size:
        raise UserError(
            f"{file.path}: heads of {size} with {rotated} rotated dimensions and values of {values} are not supported"
        )
    return size


def _rope_scaling(file: GgufFile, architecture: str) -> dict[str, Any] | None:
    """As in config.json; llama.cpp writes Llama 3.1's scaling as a tensor of divisors and not as metadata."""
    if "rope_freqs.weight" in file.tensors:
        return _llama3_scaling(file, architecture)
    prefix = f"{architecture}.rope.scaling."
    unknown = [name for name in file.metadata if name.startswith(prefix) and name.removeprefix(prefix) not in _SCALING_KEYS]
    if unknown:
        raise UserError(f"{file.path}: metadata {', '.join(unknown)} are not supported; known: {', '.join(_SCALING_KEYS)}")
    old = file.value(f"{architecture}.rope.scale_linear", float, 1.0)
    kind = file.value(f"{prefix}type", str, "none")
    if kind == "none":
        return None if old == 1 else {"rope_type": "linear", "factor": old}
    factor = file.required(f"{architecture}.rope.scaling.factor", float)
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    if kind == "yarn":
        original = _positive(file, f"{architecture}.rope.scaling.original_context_length")
        return {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original}
    raise UserError(f"{file.path}: rope scaling {kind!r} is not supported; {nearest(kind, ['none', 'linear', 'yarn'])}")


def _llama3_scaling(file: GgufFile, architecture: str) -> dict[str, Any]:
    divisors = file.tensor("rope_freqs.weight").dequantize().reshape(-1)
    theta = file.value(f"{architecture}.rope.freq_base", float, 10000.0)
    scaling = {"rope_type": "llama3", "factor": float(divisors.max()), **_LLAMA3_SCALING}
    expected = llama3_divisors(theta, 2 * divisors.size, scaling)
    # The converter computes the divisors in float32.
    if not np.allclose(divisors, expected, rtol=1e-5, atol=0):
        raise UserError(
            f"{file.path}: rope_freqs.weight is not the rope scaling of Llama 3.1 and 3.2; use the safetensors model"
        )
    return scaling


def llama3_divisors(theta: float, head_dim: int, scaling: dict[str, Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """float64 [head_dim / 2]: by what Llama 3.1 divides each rotary frequency (transformers' rope_type llama3)."""
    wavelengths = 2 * math.pi * theta ** (np.arange(0, head_dim, 2) / head_dim)
    original, factor = scaling["original_max_position_embeddings"], scaling["factor"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    smooth = np.clip((original / wavelengths - low) / (high - low), 0, 1)
    return np.asarray(1 / ((1 - smooth) / factor + smooth))
