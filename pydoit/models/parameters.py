"""The parameters of a decoder: each with its shape, its kind and the tensors of a checkpoint that it is made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pydoit.models.config import DecoderConfig

Kind = Literal["linear", "gated", "embedding", "vector"]


@dataclass(frozen=True)
class Parameter:
    """One parameter of the compiled decoder; a packed one is several tensors of the library, all under its name."""

    name: str
    """Name in the library, e.g. `layers.0.qkv`."""
    kind: Kind
    """`linear`: y = x W^T; `gated`: gate and up projections, interleaved; `embedding`: rows to look up; `vector`."""
    shape: tuple[int, ...]
    """Of a matrix [output, input] channels, of a vector [length]."""
    sources: tuple[str, ...]
    """Tensors of a transformers checkpoint, put together along their first axis."""


def parameters(config: DecoderConfig) -> Iterator[Parameter]:
    """All parameters in the order of the computation; a tied embedding serves as the head too and comes last."""
    width = config.heads * config.head_dim
    if not config.tied:
        yield Parameter("embedding", "embedding", (config.vocabulary, config.hidden), ("model.embed_tokens.weight",))
    for layer in range(config.layers):
        here, there = f"layers.{layer}", f"model.layers.{layer}"
        projections = tuple(f"{there}.self_attn.{name}_proj" for name in "qkv")
        yield _vector(f"{here}.attention_norm", config.hidden, f"{there}.input_layernorm.weight")
        yield _linear(f"{here}.qkv", config.qkv_width, config.hidden, *(f"{name}.weight" for name in projections))
        if config.qkv_bias:
            yield _vector(f"{here}.qkv_bias", config.qkv_width, *(f"{name}.bias" for name in projections))
        if config.qk_norm:
            yield _vector(f"{here}.q_norm", config.head_dim, f"{there}.self_attn.q_norm.weight")
            yield _vector(f"{here}.k_norm", config.head_dim, f"{there}.self_attn.k_norm.weight")
        yield _linear(f"{here}.output", config.hidden, width, f"{there}.self_attn.o_proj.weight")
        if config.output_bias:
            yield _vector(f"{here}.output_bias", config.hidden, f"{there}.self_attn.o_proj.bias")
        yield _vector(f"{here}.feed_forward_norm", config.hidden, f"{there}.post_attention_layernorm.weight")
        gate_up = (f"{there}.mlp.gate_proj.weight", f"{there}.mlp.up_proj.weight")
        yield Parameter(f"{here}.gate_up", "gated", (2 * config.intermediate, config.hidden), gate_up)
        yield _linear(f"{here}.down", config.hidden, config.intermediate, f"{there}.mlp.down_proj.weight")
    yield _vector("norm", config.hidden, "model.norm.weight")
    head = "model.embed_tokens.weight" if config.tied else "lm_head.weight"
    yield _linear("head", config.vocabulary, config.hidden, head)


def checkpoint_shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor that a transformers checkpoint of this decoder holds, with its shape."""
    kv_width = config.kv_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {}
    for parameter in parameters(config):
        rows = {"gated": (config.intermediate,) * 2}.get(parameter.kind, parameter.shape[:1])
        if len(parameter.sources) == 3:
            rows = (config.heads * config.head_dim, kv_width, kv_width)
        for source, count in zip(parameter.sources, rows, strict=True):
            shapes[source] = (count, *parameter.shape[1:])
    return shapes


def gguf_name(source: str) -> str:
    """What llama.cpp calls a tensor of a transformers checkpoint (gguf-py's tensor_mapping)."""
    if source in _GGUF_NAMES:
        return _GGUF_NAMES[source]
    _, _, layer, *rest = source.split(".")
    module, leaf = ".".join(rest[:-1]), rest[-1]
    return f"blk.{layer}.{_GGUF_LAYER_NAMES[module]}.{leaf}"


_GGUF_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_GGUF_LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def _linear(name: str, rows: int, columns: int, *sources: str) -> Parameter:
    return Parameter(name, "linear", (rows, columns), sources)


def _vector(name: str, length: int, *sources: str) -> Parameter:
    return Parameter(name, "vector", (length,), sources)
