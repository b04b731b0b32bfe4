"""Operators of a decoder on CPUs: hand-written kernels for what costs time, float32 between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydoit.kernels.cpu.paging import Table
from pydoit.kernels.cpu.weight_format import WeightFormat, pack, pack_gated, packed_tensors
from pydoit.models.config import DecoderConfig
from pydoit.models.formats import concatenate, fit, weight_format
from pydoit.models.operators import Tensors
from pydoit.models.parameters import Parameter
from pydoit.models.spec import LanguageSpec
from pydoit.target import CPU_LANES


class CpuOperators:
    """See `pydoit.models.operators.Operators`; matrices lie in panels of output channels."""

    activation = "float32"

    def __init__(self, config: DecoderConfig, spec: LanguageSpec) -> None:
        self._config = config
        self._kept = spec.kept
        self._cache = spec.cache_shape
        self._target = spec.target
        self._lanes = CPU_LANES[spec.target.arch]
        self._kernels: dict[tuple[Any, ...], Any] = {}

    def finish(self, module: Any) -> Any:
        return module

    def stage(self, inputs: list[Any]) -> list[Any]:
        return inputs

    def tensors(self, parameter: Parameter) -> Tensors:
        if parameter.kind == "vector":
            return {"weight": (parameter.shape, "float32")}
        rows, columns = parameter.shape
        return packed_tensors(self._format(parameter), rows, columns, self._lanes)

    def pack(self, parameter: Parameter, sources: list[Any]) -> dict[str, NDArray[Any]]:
        if parameter.kind == "vector":
            return {"weight": np.concatenate(sources).astype(np.float32)}
        chosen = self._format(parameter)
        fitting = [fit(chosen, source) for source in sources]
        if parameter.kind == "gated":
            gate, up = fitting
            return pack_gated(chosen, gate, up, self._lanes)
        return pack(chosen, concatenate(fitting), self._lanes)

    def _format(self, parameter: Parameter) -> WeightFormat:
        return weight_format(parameter, self._kept)

    def embed(self, parameter: Parameter, tensors: Mapping[str, Any], tokens: Any) -> Any:
        from pydoit.kernels.cpu.embed import embed

        chosen, (n, k) = self._format(parameter), parameter.shape
        function = self._kernel(lambda rows: embed(chosen, rows, n, k, self._target), tokens, "embed", chosen, n, k)
        return self._call(function, "embed", [*tensors.values(), tokens], (tokens.shape[0], k))

    def rotation(self, positions: Any) -> Any:
        from pydoit.models.rotation import rotation

        return rotation(positions, self._config)

    def rms_norm(self, x: Any, weight: Any) -> Any:
        from pydoit.kernels.cpu.rms_norm import rms_norm

        width, epsilon = int(x.shape[1]), self._config.norm_epsilon
        function = self._kernel(lambda rows: rms_norm(rows, width, epsilon, self._target), x, "rms_norm", width)
        return self._call(function, "rms_norm", [x, weight], (x.shape[0], width))

    def linear(
        self, parameter: Parameter, tensors: Mapping[str, Any], x: Any, *, bias: Any = None, residual: Any = None
    ) -> Any:
        extra = [item for item in (bias, residual) if item is not None]
        epilogue = None if residual is None else "residual"
        function = self._linear(parameter, x, epilogue, has_bias=bias is not None)
        return self._call(function, "linear", [x, *tensors.values(), *extra], (x.shape[0], parameter.shape[0]))

    def gated(self, parameter: Parameter, tensors: Mapping[str, Any], x: Any) -> Any:
        function = self._linear(parameter, x, "silu_gate", has_bias=False)
        return self._call(function, "gated_linear", [x, *tensors.values()], (x.shape[0], parameter.shape[0] // 2))

    def _linear(self, parameter: Parameter, x: Any, epilogue: Any, *, has_bias: bool) -> Any:
        from pydoit.kernels.cpu.linear import linear

        chosen, (n, k) = self._format(parameter), parameter.shape

        def make(rows: Any) -> Any:
            return linear(chosen, rows, n, k, self._target, bias=has_bias, epilogue=epilogue)

        return self._kernel(make, x, "linear", chosen, n, k, epilogue, has_bias)

    def head_norms(self, qkv: Any, q_norm: Any, k_norm: Any) -> Any:
        from pydoit.models.head_norms import head_norms

        return head_norms(qkv, q_norm, k_norm, self._config)

    def rope_append(self, qkv: Any, rotation: Any, places: Any, tables: Any, cache: Any, *, shared: bool) -> tuple[Any, Any]:
        from tvm.relax.frontend import nn

        from pydoit.kernels.cpu.rope_append import rope_append

        config, shape = self._config, self._cache
        heads, size = (config.heads, config.kv_heads, config.head_dim), (shape.page_size, shape.pages, shape.dtype)
        table: Table = "shared" if shared else "row"

        def make(rows: Any) -> Any:
            return rope_append(rows, *heads, *size, self._target, table=table)

        function = self._kernel(make, qkv, "rope_append", table)
        q = nn.Tensor.placeholder([qkv.shape[0], config.heads * config.head_dim], "float32")
        kept = nn.Tensor.placeholder(list(shape.extents(config)), shape.dtype)
        # The cache is changed in place, the queries are a new tensor.
        arguments = [qkv, rotation, places, tables, cache]
        cache, q = nn.op.tensor_ir_inplace_op(function, "rope_append", arguments, [4, -1], [kept, q])
        return q, cache

    def attention(self, q: Any, places: Any, tables: Any, cache: Any, *, shared: bool, window: int | None) -> Any:
        from pydoit.kernels.cpu.paged_attention import paged_attention

        config, shape = self._config, self._cache
        heads, size = (config.heads, config.kv_heads, config.head_dim), (shape.page_size, shape.pages, shape.dtype)
        table: Table = "shared" if shared else "row"
        scale = config.head_dim**-0.5

        def make(rows: Any) -> Any:
            return paged_attention(rows, *heads, *size, self._target, table=table, window=window, scale=scale)

        function = self._kernel(make, q, "paged_attention", table, window)
        return self._call(function, "paged_attention", [q, places, tables, cache], tuple(q.shape))

    def logits(self, parameter: Parameter, tensors: Mapping[str, Any], x: Any) -> Any:
        return self.linear(parameter, tensors, x)

    def _kernel(self, make: Callable[[Any], Any], x: Any, *identity: Any) -> Any:
        """The function of that identity for the rows of `x`, made once; a symbolic extent is a variable of its own."""
        from pydoit.tvm_compat import tirx

        rows = x.shape[0]
        fixed = rows if isinstance(rows, int) else None
        key = (fixed, *identity)
        if key not in self._kernels:
            function = make(tirx.Var("rows", "int64") if fixed is None else fixed)
            self._kernels[key] = function.without_attr("global_symbol")
        return self._kernels[key]

    def _call(self, function: Any, name: str, arguments: list[Any], shape: tuple[Any, ...]) -> Any:
        from tvm.relax.frontend import nn

        return nn.op.tensor_ir_op(function, name, arguments, nn.Tensor.placeholder(list(shape), "float32"))
