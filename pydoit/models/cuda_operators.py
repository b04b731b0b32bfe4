"""Operators of a decoder on NVIDIA GPUs: Triton for attention and the cache, TVM's GEMV, matmul and fusion for the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydoit.kernels.cpu.weight_format import Quantized, dequantize
from pydoit.kernels.triton.choice import Choices, Product
from pydoit.kernels.triton.launch import Registry
from pydoit.models.config import DecoderConfig
from pydoit.models.operators import Decisions, Tensors
from pydoit.models.parameters import Parameter
from pydoit.models.spec import LanguageSpec
from pydoit.runtime.exchange import numpy_dtype

SPLITS = 16
"""Parts of a context that decode attention works on at the same time."""


class CudaOperators:
    """See `pydoit.models.operators.Operators`; matrices are [output, input] as in the checkpoint."""

    def __init__(self, config: DecoderConfig, spec: LanguageSpec, decisions: Decisions | None = None) -> None:
        self._config = config
        self._cache = spec.cache_shape
        self._choices = Choices(spec.target.arch, spec.matmul, decisions)
        self.activation: str = spec.kept.precision
        self.registry = Registry()

    def finish(self, module: Any) -> Any:
        return self.registry.attach(module)

    def stage(self, inputs: list[Any]) -> list[Any]:
        """Copies; whatever reads a caller's tensor directly could not be captured."""
        from tvm.relax.frontend import nn

        results = [nn.Tensor.placeholder(list(item.shape), "int32") for item in inputs]
        copies = _call_packed(self.registry.symbol("stage_inputs"), inputs, results)
        return [copies[index] for index in range(len(inputs))]

    def tensors(self, parameter: Parameter) -> Tensors:
        return {"weight": (parameter.shape, self.activation)}

    def pack(self, parameter: Parameter, sources: list[Any]) -> dict[str, NDArray[Any]]:
        kept = numpy_dtype(self.activation)
        arrays = [_plain(source).astype(kept) for source in sources]
        return {"weight": arrays[0] if len(arrays) == 1 else np.concatenate(arrays)}

    def embed(self, parameter: Parameter, tensors: Mapping[str, Any], tokens: Any) -> Any:
        from tvm.relax.frontend import nn

        return nn.op.take(tensors["weight"], tokens, axis=0)

    def rotation(self, positions: Any) -> Any:
        from pydoit.models.rotation import rotation

        return rotation(positions, self._config)

    def rms_norm(self, x: Any, weight: Any) -> Any:
        from tvm.relax.frontend import nn

        return nn.op.rms_norm(x, weight, axes=[-1], epsilon=self._config.norm_epsilon)

    def linear(
        self, parameter: Parameter, tensors: Mapping[str, Any], x: Any, *, bias: Any = None, residual: Any = None
    ) -> Any:
        from tvm.relax.frontend import nn

        if self._provider(parameter, x) == "triton":
            return self._tiled(parameter, tensors, x, bias=bias, residual=residual)
        result = self._product(x, tensors)
        for item in (bias, residual):
            result = result if item is None else result + nn.op.astype(item, "float32")
        return nn.op.astype(result, self.activation)

    def gated(self, parameter: Parameter, tensors: Mapping[str, Any], x: Any) -> Any:
        from tvm.relax.frontend import nn

        from pydoit.tvm_compat import te, tirx

        if self._provider(parameter, x, gated=True) == "triton":
            return self._tiled(parameter, tensors, x, gated=True)
        both = nn.op.astype(self._product(x, tensors), self.activation)
        width = parameter.shape[0] // 2

        def gate(source: Any) -> Any:
            def value(row: Any, column: Any) -> Any:
                opened = source[row, column].astype("float32")
                up = source[row, column + width].astype("float32")
                return (opened * tirx.sigmoid(opened) * up).astype(self.activation)

            return te.compute((source.shape[0], width), value, name="silu_gate")

        return nn.op.tensor_expr_op(gate, "silu_gate", [both])

    def head_norms(self, qkv: Any, q_norm: Any, k_norm: Any) -> Any:
        from pydoit.models.head_norms import head_norms

        return head_norms(qkv, q_norm, k_norm, self._config)

    def rope_append(self, qkv: Any, rotation: Any, places: Any, tables: Any, cache: Any, *, shared: bool) -> tuple[Any, Any]:
        from tvm.relax.frontend import nn

        symbol = self.registry.symbol("rope_append", **self._heads(), table=self._cache.pages, shared=shared)
        q = nn.Tensor.placeholder([qkv.shape[0], self._config.heads * self._config.head_dim], self.activation)
        return nn.op.extern(symbol, [qkv, rotation, places, tables, cache], q), cache

    def attention(self, q: Any, places: Any, tables: Any, cache: Any, *, shared: bool, window: int | None) -> Any:
        from tvm.relax.frontend import nn

        config, heads = self._config, self._heads()
        out = nn.Tensor.placeholder(list(q.shape), self.activation)
        if shared:
            symbol = self.registry.symbol("paged_prefill", **heads, window=window)
            return nn.op.extern(symbol, [q, places, tables, cache], out)
        symbol = self.registry.symbol("paged_decode", **heads, table=self._cache.pages, window=window, splits=SPLITS)
        sums = nn.Tensor.placeholder([q.shape[0], config.heads, SPLITS, config.head_dim], "float32")
        maxima = nn.Tensor.placeholder([q.shape[0], config.heads, SPLITS, 2], "float32")
        return _call_packed(symbol, [q, places, tables, cache], [out, sums, maxima])[0]

    def logits(self, parameter: Parameter, tensors: Mapping[str, Any], x: Any) -> Any:
        if self._provider(parameter, x) == "triton":
            return self._tiled(parameter, tensors, x, out_dtype="float32")
        return self._product(x, tensors)

    def _tiled(
        self,
        parameter: Parameter,
        tensors: Mapping[str, Any],
        x: Any,
        *,
        bias: Any = None,
        residual: Any = None,
        gated: bool = False,
        out_dtype: str | None = None,
    ) -> Any:
        """The product of several rows on tensor cores."""
        from tvm.relax.frontend import nn

        out_dtype = out_dtype or self.activation
        product = self._product_of(parameter, gated=gated)
        symbol = self.registry.symbol(
            "matmul", n=product.n, k=product.k, tiles=[asdict(tile) for tile in self._choices.tiles(product)],
            dtype=self.activation, out_dtype=out_dtype, bias=bias is not None, residual=residual is not None, gated=gated,
        )  # fmt: skip
        given = [x, tensors["weight"], *(item for item in (bias, residual) if item is not None)]
        return nn.op.extern(symbol, given, nn.Tensor.placeholder([x.shape[0], product.n], out_dtype))

    def _provider(self, parameter: Parameter, x: Any, *, gated: bool = False) -> str:
        return self._choices.provider(self._product_of(parameter, gated=gated), x.shape[0])

    def _product_of(self, parameter: Parameter, *, gated: bool = False) -> Product:
        n, k = parameter.shape
        return Product(n // 2 if gated else n, k, gated, self.activation)

    def _product(self, x: Any, tensors: Mapping[str, Any]) -> Any:
        """x W^T, summed and given in float32."""
        from tvm.relax.frontend import nn

        return nn.op.matmul(x, nn.op.permute_dims(tensors["weight"]), out_dtype="float32")

    def _heads(self) -> dict[str, Any]:
        config = self._config
        return {"heads": config.heads, "kv_heads": config.kv_heads, "width": config.head_dim,
                "page_size": self._cache.page_size, "dtype": self.activation, "cache_dtype": self._cache.dtype}  # fmt: skip


def _plain(source: Any) -> NDArray[np.float32]:
    return dequantize(source) if isinstance(source, Quantized) else source


def _call_packed(symbol: str, arguments: list[Any], results: list[Any]) -> Any:
    """Call an exported function with several results; TVM 0.27's `nn.op.extern` passes their types in a way it refuses."""
    from tvm.relax.frontend import nn

    from pydoit.tvm_compat import relax

    expressions = relax.Tuple([argument._expr for argument in arguments])  # noqa: SLF001 - nn has no other door
    types = [result._expr.ty for result in results]  # noqa: SLF001
    call = relax.op.call_dps_packed(symbol, expressions, types)
    return nn.wrap_nested(relax.BlockBuilder.current().emit(call), name=symbol)
