"""Decoder architectures: a transformers config.json (or what GGUF metadata say of the same) as one typed value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydoit.errors import UserError
from pydoit.frozen import Frozen
from pydoit.models.config_keys import flag, number, whole
from pydoit.models.rope import Rope, read_rope
from pydoit.nearest import nearest

Architecture = Literal["llama", "mistral", "qwen2", "qwen3"]
ARCHITECTURES: tuple[str, ...] = ("llama", "mistral", "qwen2", "qwen3")
MOST_LAYERS = 1024
"""More are a damaged file; Llama 3.1 405B has 126."""
FULL, SLIDING = "full_attention", "sliding_attention"
_QWEN = {"num_key_value_heads": 32, "max_position_embeddings": 32768, "sliding_window": 4096, "max_window_layers": 28}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": {"max_position_embeddings": 2048},
    "mistral": {"num_key_value_heads": 8, "max_position_embeddings": 131072, "sliding_window": 4096},
    "qwen2": _QWEN,
    "qwen3": {**_QWEN, "head_dim": 128},
}
"""What transformers takes for keys that a config leaves out."""


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
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"model.config: {path.name} cannot be read ({error}); give a transformers config.json") from error
    if not isinstance(values, dict):
        raise UserError(f"model.config: {path.name} holds no table; give a transformers config.json")
    return values


def decoder_config(values: Mapping[str, Any]) -> DecoderConfig:
    """From the values of a transformers config; raises UserError that names the key which is wrong or not supported."""
    architecture = values.get("model_type")
    if architecture not in ARCHITECTURES:
        raise UserError(f'model_type "{architecture}" is not supported; {nearest(str(architecture), ARCHITECTURES)}')
    values = {**_DEFAULTS[architecture], **values}
    _refuse(values, architecture)
    layers = whole(values, "num_hidden_layers", most=MOST_LAYERS)
    hidden, heads = whole(values, "hidden_size"), whole(values, "num_attention_heads")
    kv_heads = whole(values, "num_key_value_heads", heads)
    if heads % kv_heads:
        raise UserError(f"num_attention_heads {heads} is no multiple of num_key_value_heads {kv_heads}; correct the config")
    bias = flag(values, "attention_bias")
    context = whole(values, "max_position_embeddings")
    return DecoderConfig(
        architecture=architecture,
        hidden=hidden,
        intermediate=whole(values, "intermediate_size"),
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=_head_dim(values, architecture, hidden, heads),
        vocabulary=whole(values, "vocab_size"),
        norm_epsilon=number(values, "rms_norm_eps", 1e-6),
        rope=read_rope(values, context),
        context=context,
        windows=_windows(values, architecture, layers),
        tied=flag(values, "tie_word_embeddings"),
        qkv_bias=bias or architecture == "qwen2",
        output_bias=bias and architecture in ("llama", "qwen3"),
        qk_norm=architecture == "qwen3",
    )


def _refuse(values: Mapping[str, Any], architecture: str) -> None:
    """Raise UserError for what a config asks for and no decoder here does."""
    if values.get("hidden_act", "silu") != "silu":
        raise UserError(f'hidden_act "{values["hidden_act"]}" is not supported; only "silu" is')
    if flag(values, "mlp_bias"):
        raise UserError("mlp_bias is not supported; use a model without biases in its feed-forward layers")
    if architecture == "mistral" and flag(values, "attention_bias"):
        raise UserError('attention_bias does not go with model_type "mistral"; use a model without biases')
    if values.get("quantization_config") is not None:
        raise UserError("quantization_config: checkpoints that are quantized already are not supported; use the original one")
    own = values.get("auto_map")
    if isinstance(own, Mapping) and "AutoModelForCausalLM" in own:
        raise UserError(f'auto_map names code of its own, "{own["AutoModelForCausalLM"]}", which is not run; use another model')


def _head_dim(values: Mapping[str, Any], architecture: str, hidden: int, heads: int) -> int:
    if hidden % heads and (values.get("head_dim") is None or architecture == "llama"):
        raise UserError(f"hidden_size {hidden} is no multiple of num_attention_heads {heads}; correct the config")
    size = whole(values, "head_dim", hidden // heads)
    if size % 2:
        raise UserError(f"head_dim {size} is odd, rotary positions need pairs; correct the config")
    return size


def _windows(values: Mapping[str, Any], architecture: str, layers: int) -> tuple[int | None, ...]:
    """The sliding window of each layer, from sliding_window, max_window_layers and layer_types."""
    is_qwen = architecture.startswith("qwen")
    is_used = flag(values, "use_sliding_window") if is_qwen else values.get("sliding_window") is not None
    window = whole(values, "sliding_window") if is_used and values.get("sliding_window") is not None else None
    if architecture == "llama" and window is not None:
        raise UserError('sliding_window does not go with model_type "llama"; remove it, or use "mistral"')
    full = whole(values, "max_window_layers", least=0) if is_qwen else 0
    usual = tuple(FULL if window is None or layer < full else SLIDING for layer in range(layers))
    kinds = values.get("layer_types")
    kinds = usual if kinds is None else _layer_types(kinds, layers)
    if kinds != usual and (not is_qwen or window is None):
        raise UserError(
            f'layer_types does not agree with sliding_window {window} of model_type "{architecture}"; correct the config'
        )
    return tuple(window if kind == SLIDING else None for kind in kinds)


def _layer_types(kinds: Any, layers: int) -> tuple[str, ...]:
    if not isinstance(kinds, list) or len(kinds) != layers:
        raise UserError(f"layer_types must list {layers} kinds, one for each of num_hidden_layers; correct the config")
    for kind in kinds:
        if kind not in (FULL, SLIDING):
            raise UserError(f"layer_types: {kind!r} is not supported; known: {FULL}, {SLIDING}")
    return tuple(kinds)
