"""What a recipe says of a language model: the values that its stages read, and what follows from them."""

from __future__ import annotations

from typing import Literal

from pydoit.frozen import Frozen
from pydoit.models.operators import CacheShape
from pydoit.target import ResolvedTarget


class CacheSpec(Frozen):
    """The paged cache of keys and values."""

    tokens: int
    """Capacity over all sequences."""
    sequences: int
    """Most sequences at a time."""
    page_size: int
    """Tokens of a page."""
    prefill_chunk: int
    """Most tokens of a prompt that one call takes."""
    dtype: str | None = None
    """Element type; None: that of the computation."""


class WeightSpec(Frozen):
    """How matrices are kept."""

    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    """Element type of what is not quantized."""
    scheme: Literal["int8", "int4"] | None = None
    """Weight-only quantization."""
    group_size: int | None = None
    """Elements that share a scale; None: a whole row (int8), 32 (int4)."""
    symmetric: bool = True
    """No zero point."""
    exclude: tuple[str, ...] = ()
    """Patterns (fnmatch) of parameters that are left as they are."""


class LanguageSpec(Frozen):
    """A language model as its stages see it; its files come from fetch, a config of the workspace as an input file."""

    source: Literal["gguf", "transformers"]
    """Format of the checkpoint."""
    weights: str | None = None
    """`random:SEED`, or None for the checkpoint's own."""
    cache: CacheSpec
    """The paged cache."""
    kept: WeightSpec
    """How weights are kept."""
    target: ResolvedTarget
    """What the library is compiled for."""
    matmul: Literal["auto", "tvm", "triton"] = "auto"
    """Who computes products with matrices on a GPU."""

    @property
    def weight_seed(self) -> int | None:
        """The seed of `random:SEED`, or None."""
        return None if self.weights is None else int(self.weights.removeprefix("random:"))

    @property
    def cache_shape(self) -> CacheShape:
        """The cache with whole pages and its element type."""
        cache = self.cache
        size = cache.page_size
        return CacheShape(
            tokens=-(-cache.tokens // size) * size,
            sequences=cache.sequences,
            page_size=size,
            prefill_chunk=min(cache.prefill_chunk, cache.tokens),
            dtype=cache.dtype or self.kept.precision,
        )
