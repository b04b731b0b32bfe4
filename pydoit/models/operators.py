"""What a target must be able to compute for a decoder: the one interface between definitions and kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pydoit.models.config import DecoderConfig
    from pydoit.models.parameters import Parameter

Tensors = Mapping[str, tuple[tuple[int, ...], str]]
"""Suffix of a tensor's name -> its shape and dtype."""

Decisions = Mapping[str, Mapping[str, Any]]
"""Key of a tuning record -> what was found best."""


@dataclass(frozen=True)
class CacheShape:
    """Extents of the paged KV cache of one layer: [pages, 2, kv_heads, page_size, head_dim], keys first."""

    tokens: int
    """Capacity over all sequences; a multiple of `page_size`."""
    sequences: int
    """Sequences at a time."""
    page_size: int
    """Tokens of a page."""
    prefill_chunk: int
    """Most tokens of a prompt that one call takes."""
    dtype: str
    """Element type of keys and values."""

    @property
    def pages(self) -> int:
        return self.tokens // self.page_size

    def extents(self, config: DecoderConfig) -> tuple[int, ...]:
        """Shape of one layer's cache."""
        return (self.pages, 2, config.kv_heads, self.page_size, config.head_dim)


class Operators(Protocol):
    """Kernels of a target; every method but `tensors` and `pack` emits into the current block builder.

    `rows` of activations is 1 (decode), or a variable: sequences (batched decode) or tokens of a prompt (prefill).
    `shared`: the rows belong to one sequence, whose page table is the only row of `tables`; else row r has table row r.
    """

    activation: str
    """dtype of the residual stream."""

    def finish(self, module: Any) -> Any:
        """The module with what its kernels need when it is compiled."""

    def stage(self, inputs: list[Any]) -> list[Any]:
        """The step's inputs as the kernels read them: tokens, positions, places, tables."""

    def tensors(self, parameter: Parameter) -> Tensors:
        """The tensors that hold a parameter."""

    def pack(self, parameter: Parameter, sources: list[Any]) -> dict[str, NDArray[Any]]:
        """Values of `tensors` from those of `parameter.sources`: float32 arrays, or quantized blocks of the file."""

    def embed(self, parameter: Parameter, tensors: Mapping[str, Any], tokens: Any) -> Any:
        """Rows of the embedding (or of a head, where they are tied): int32 [rows] -> [rows, hidden]."""

    def rotation(self, positions: Any) -> Any:
        """Cosines, then sines of all angles: int32 [rows] -> float32 [rows, head_dim]."""

    def rms_norm(self, x: Any, weight: Any) -> Any:
        """x / sqrt(mean(x^2) + epsilon) * weight over the last axis."""

    def linear(
        self, parameter: Parameter, tensors: Mapping[str, Any], x: Any, *, bias: Any = None, residual: Any = None
    ) -> Any:
        """x W^T (+ bias) (+ residual): [rows, k] -> [rows, n]."""

    def gated(self, parameter: Parameter, tensors: Mapping[str, Any], x: Any) -> Any:
        """silu(x G^T) * (x U^T): [rows, k] -> [rows, n / 2]."""

    def head_norms(self, qkv: Any, q_norm: Any, k_norm: Any) -> Any:
        """RMSNorm of every query and key head of [rows, (heads + 2 kv_heads) head_dim]; values stay."""

    def rope_append(self, qkv: Any, rotation: Any, places: Any, tables: Any, cache: Any, *, shared: bool) -> tuple[Any, Any]:
        """Rotate queries and keys, write keys and values into the cache; return queries and the cache."""

    def attention(self, q: Any, places: Any, tables: Any, cache: Any, *, shared: bool, window: int | None) -> Any:
        """Causal attention over the cache: row at place p sees 0..p, the last `window` of them."""

    def logits(self, parameter: Parameter, tensors: Mapping[str, Any], x: Any) -> Any:
        """The head: float32 [rows, vocabulary]."""
