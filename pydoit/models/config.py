"""Decoder architectures: a transformers config.json (or what GGUF metadata say of the same) as one typed value."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pydoit.errors import UserError
from pydoit.frozen import Frozen
from pydoit.nearest import nearest

Architecture = Literal["llama", "mistral", "qwen2", "qwen3"]
ARCHITECTURES: tuple[str, ...] = ("llama", "mistral", "qwen2", "qwen3")
ROPE_TYPES = ("default", "linear", "llama3", "yarn")


class Rope(Frozen):
    """Rotary position embedding: frequencies and their scaling (Su et al., 2021; scaling as transformers defines it)."""

    theta: float
    """Base of the frequencies."""
    type: Literal["default", "linear", "llama3", "yarn"] = "default"
    """How the frequencies are scaled for long contexts."""
    factor: float = 1.0
    """By how much the context is longer than what the model was trained on first."""
    low_frequency_factor: float = 1.0
    """llama3: below it a frequency is divided by `factor`."""
    high_frequency_factor: float = 4.0
    """llama3: above it a frequency stays as it is."""
    original_context: int = 8192
    """llama3, yarn: tokens of the first training."""
    beta_fast: float = 32.0
    """yarn: rotations above which a frequency stays as it is."""
    beta_slow: float = 1.0
    """yarn: rotations below which a frequency is divided by `factor`."""
    attention_factor: float | None = None
    """yarn: by what cosines and sines are multiplied; None: 0.1 ln(factor) + 1."""

    def frequencies(self, head_dim: int) -> NDArray[np.float32]:
        """Angle for each position step, float32 of [head_dim / 2]."""
        exponent = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
        plain = (1.0 / np.power(np.float32(self.theta), exponent)).astype(np.float32)
        if self.type == "linear":
            return np.asarray(plain / np.float32(self.factor), np.float32)
        if self.type == "llama3":
            return self._llama3(plain)
        if self.type == "yarn":
            return self._yarn(plain, head_dim)
        return np.asarray(plain, np.float32)

    @property
    def magnitude(self) -> float:
        """By what cosines and sines are multiplied."""
        if self.type != "yarn":
            return 1.0
        if self.attention_factor is not None:
            return self.attention_factor
        return 0.1 * math.log(self.factor) + 1.0 if self.factor > 1 else 1.0

    def _llama3(self, plain: NDArray[np.float32]) -> NDArray[np.float32]:
        low, high = self.low_frequency_factor, self.high_frequency_factor
        wavelength = 2 * math.pi / plain
        smooth = (self.original_context / wavelength - low) / (high - low)
        between = (1 - smooth) * plain / self.factor + smooth * plain
        scaled = np.where(wavelength > self.original_context / low, plain / self.factor, between)
        return np.where(wavelength < self.original_context / high, plain, scaled).astype(np.float32)

    def _yarn(self, plain: NDArray[np.float32], head_dim: int) -> NDArray[np.float32]:
        def dimension(rotations: float) -> float:
            return head_dim * math.log(self.original_context / (rotations * 2 * math.pi)) / (2 * math.log(self.theta))

        low = max(math.floor(dimension(self.beta_fast)), 0)
        high = min(math.ceil(dimension(self.beta_slow)), head_dim - 1)
        ramp = np.clip((np.arange(head_dim // 2) - low) / max(high - low, 1e-3), 0, 1)
        return (plain / self.factor * ramp + plain * (1 - ramp)).astype(np.float32)


class DecoderConfig(Frozen):
    """A Llama-like decoder: RMSNorm, rotary positions, grouped queries, SwiGLU."""

    architecture: Architecture
    """Family; decides names in checkpoints, biases and norms."""
    hidden: int
    """Width of the residual stream."""
    intermediate: int
    """Width of the feed-forward layer."""
    layers: int
    """Number of decoder layers."""
    heads: int
    """Query heads."""
    kv_heads: int
    """Key and value heads; divides `heads`."""
    head_dim: int
    """Width of a head."""
    vocabulary: int
    """Rows of the embedding."""
    norm_epsilon: float
    """Added to the mean square in RMSNorm."""
    rope: Rope
    """Rotary position embedding."""
    context: int
    """Longest sequence that the model was made for, in tokens."""
    windows: tuple[int | None, ...]
    """Sliding window of each layer in tokens, None where it attends to everything before."""
    tied: bool
    """The output head is the embedding."""
    qkv_bias: bool = False
    """Query, key and value projections have biases."""
    output_bias: bool = False
    """The attention's output projection has a bias."""
    qk_norm: bool = False
    """Queries and keys are normalized head by head (Qwen3)."""

    @property
    def qkv_width(self) -> int:
        """Rows of the fused query, key and value projection."""
        return (self.heads + 2 * self.kv_heads) * self.head_dim

    @property
    def parameters(self) -> int:
        """Number of weights."""
        attention = self.hidden * (self.qkv_width + self.heads * self.head_dim)
        layer = attention + 3 * self.hidden * self.intermediate + 2 * self.hidden
        return self.layers * layer + self.hidden * (1 + self.vocabulary * (1 if self.tied else 2))


def read_values(path: Path) -> Mapping[str, Any]:
    """The values of a transformers `config.json`; raises UserError for a file that is none."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"model.config: {path.name} cannot be read ({error}); give a transformers config.json") from error
    if not isinstance(values, dict):
        raise UserError(f"model.config: {path.name} holds no table; give a transformers config.json")
    return values


def decoder_config(values: Mapping[str, Any]) -> DecoderConfig:
    """From the values of a transformers config; raises UserError that names the key which is wrong or not supported."""
    architecture = values.get("model_type")
    if architecture not in ARCHITECTURES:
        raise UserError(f'model_type "{architecture}" is not supported; {nearest(str(architecture), ARCHITECTURES)}')
    hidden, heads, layers = (_whole(values, key) for key in ("hidden_size", "num_attention_heads", "num_hidden_layers"))
    kv_heads = _whole(values, "num_key_value_heads", heads)
    head_dim = _whole(values, "head_dim", hidden // heads)
    if heads % kv_heads:
        raise UserError(f"num_attention_heads {heads} is no multiple of num_key_value_heads {kv_heads}; correct the config")
    if head_dim % 2:
        raise UserError(f"head_dim {head_dim} is odd, rotary positions need pairs; correct the config")
    if values.get("hidden_act", "silu") != "silu":
        raise UserError(f'hidden_act "{values["hidden_act"]}" is not supported; only "silu" is')
    if values.get("mlp_bias"):
        raise UserError("mlp_bias is not supported; use a model without biases in its feed-forward layers")
    bias = bool(values.get("attention_bias", False))
    context = _whole(values, "max_position_embeddings", 2048)
    return DecoderConfig(
        architecture=architecture,
        hidden=hidden,
        intermediate=_whole(values, "intermediate_size"),
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocabulary=_whole(values, "vocab_size"),
        norm_epsilon=float(values.get("rms_norm_eps", 1e-6)),
        rope=_rope(values, context),
        context=context,
        windows=_windows(values, architecture, layers),
        tied=bool(values.get("tie_word_embeddings", False)),
        qkv_bias=bias or architecture == "qwen2",
        output_bias=bias and architecture in ("llama", "qwen3"),
        qk_norm=architecture == "qwen3",
    )


def _whole(values: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = values.get(key)
    if value is None and default is not None:
        value = default
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**31:
        raise UserError(f"{key} is {value!r}; it must be a positive whole number")
    return value


def _rope(values: Mapping[str, Any], context: int) -> Rope:
    scaling = {**(values.get("rope_scaling") or {}), **(values.get("rope_parameters") or {})}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind not in ROPE_TYPES:
        raise UserError(f'rope_type "{kind}" is not supported; known: {", ".join(ROPE_TYPES)}')
    if float(scaling.get("partial_rotary_factor", values.get("partial_rotary_factor", 1.0))) != 1.0:
        raise UserError("partial_rotary_factor is not supported; only whole heads are rotated")
    given = {
        "theta": scaling.get("rope_theta", values.get("rope_theta", 10000.0)),
        "type": kind,
        "factor": scaling.get("factor"),
        "low_frequency_factor": scaling.get("low_freq_factor"),
        "high_frequency_factor": scaling.get("high_freq_factor"),
        "original_context": scaling.get("original_max_position_embeddings", context),
        "beta_fast": scaling.get("beta_fast"),
        "beta_slow": scaling.get("beta_slow"),
        "attention_factor": scaling.get("attention_factor"),
    }
    return Rope.model_validate({key: value for key, value in given.items() if value is not None})


def _windows(values: Mapping[str, Any], architecture: str, layers: int) -> tuple[int | None, ...]:
    window = values.get("sliding_window")
    if architecture.startswith("qwen") and not values.get("use_sliding_window", False):
        window = None
    if architecture == "llama" or window is None:
        return (None,) * layers
    size = _whole(values, "sliding_window")
    kinds = values.get("layer_types")
    if kinds is not None and len(kinds) == layers:
        return tuple(size if kind == "sliding_attention" else None for kind in kinds)
    full = int(values.get("max_window_layers", 0)) if architecture.startswith("qwen") else 0
    return tuple(None if layer < full else size for layer in range(layers))
