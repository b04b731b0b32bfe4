"""The decoder in relax.frontend.nn: prefill, decode, batched decode and scoring over a paged KV cache."""

from __future__ import annotations

from typing import Any

from tvm.relax.frontend import nn

from pydoit.models.config import DecoderConfig
from pydoit.models.operators import CacheShape, Operators
from pydoit.models.parameters import Parameter, parameters
from pydoit.tvm_compat import IRModule

FUNCTIONS = ("prefill", "score", "decode", "batch_decode")
"""What the library exports.

Each takes tokens, positions, places (int32 [rows]) and page tables (int32 [sequences, pages]), then caches and weights,
which are parameters. A place is a position counted from the first page of the table. prefill: tokens of one sequence ->
logits of the last one; score: -> logits of all; decode: one sequence, one token; batch_decode: one token of each.
"""


class Packed(nn.Module):  # type: ignore[misc]
    """One parameter as the tensors that its target keeps it in."""

    def __init__(self, parameter: Parameter, operators: Operators) -> None:
        self.parameter = parameter
        self.suffixes = []
        for suffix, (shape, dtype) in operators.tensors(parameter).items():
            self.suffixes.append(suffix)
            setattr(self, suffix, nn.Parameter(shape, dtype))

    @property
    def tensors(self) -> dict[str, Any]:
        """The tensors by suffix."""
        return {suffix: getattr(self, suffix) for suffix in self.suffixes}

    @property
    def only(self) -> Any:
        """The tensor of a parameter that is a vector."""
        return getattr(self, "weight")  # noqa: B009 - set by name above


class Layer(nn.Module):  # type: ignore[misc]
    """Attention and feed-forward layer, each normalized before and added to the residual stream."""

    def __init__(self, index: int, config: DecoderConfig, operators: Operators, owned: dict[str, Packed]) -> None:
        self.config = config
        self.operators = operators
        self.window = config.windows[index]
        for name, packed in owned.items():
            setattr(self, name, packed)

    def forward(self, x: Any, rotation: Any, step: Step, cache: Any) -> Any:
        """The residual stream after this layer: [rows, hidden]."""
        use = self.operators
        normed = use.rms_norm(x, self.attention_norm.only)
        bias = self.qkv_bias.only if self.config.qkv_bias else None
        qkv = use.linear(self.qkv.parameter, self.qkv.tensors, normed, bias=bias)
        if self.config.qk_norm:
            qkv = use.head_norms(qkv, self.q_norm.only, self.k_norm.only)
        q, cache = use.rope_append(qkv, rotation, step.places, step.tables, cache, shared=step.shared)
        attended = use.attention(q, step.places, step.tables, cache, shared=step.shared, window=self.window)
        bias = self.output_bias.only if self.config.output_bias else None
        x = use.linear(self.output.parameter, self.output.tensors, attended, bias=bias, residual=x)
        normed = use.rms_norm(x, self.feed_forward_norm.only)
        gated = use.gated(self.gate_up.parameter, self.gate_up.tensors, normed)
        return use.linear(self.down.parameter, self.down.tensors, gated, residual=x)


class Step:
    """The inputs of one call: which token stands at which position, and where in which pages it lies."""

    def __init__(self, tokens: Any, positions: Any, places: Any, tables: Any, *, shared: bool) -> None:
        self.tokens = tokens
        self.positions = positions
        self.places = places
        self.tables = tables
        self.shared = shared


class Decoder(nn.Module):  # type: ignore[misc]
    """All layers with their caches; a method is an exported function."""

    def __init__(self, config: DecoderConfig, operators: Operators, cache: CacheShape) -> None:
        self.config = config
        self.operators = operators
        owned: dict[str, dict[str, Packed]] = {}
        for parameter in parameters(config):
            owner, _, leaf = parameter.name.rpartition(".")
            owned.setdefault(owner, {})[leaf] = Packed(parameter, operators)
        for name, packed in owned.pop("").items():
            setattr(self, name, packed)
        self.layers = nn.ModuleList(
            [Layer(index, config, operators, owned[f"layers.{index}"]) for index in range(config.layers)]
        )
        self.caches = nn.ModuleList([Cache(cache, config) for _ in range(config.layers)])

    def prefill(self, tokens: Any, positions: Any, places: Any, tables: Any) -> Any:
        x = self._normed([tokens, positions, places, tables], shared=True, last_only=True)
        return self.operators.logits(self.head.parameter, self.head.tensors, x)

    def score(self, tokens: Any, positions: Any, places: Any, tables: Any) -> Any:
        x = self._normed([tokens, positions, places, tables], shared=True)
        return self.operators.logits(self.head.parameter, self.head.tensors, x)

    def decode(self, tokens: Any, positions: Any, places: Any, tables: Any) -> Any:
        x = self._normed([tokens, positions, places, tables], shared=False)
        return self.operators.logits(self.head.parameter, self.head.tensors, x)

    def batch_decode(self, tokens: Any, positions: Any, places: Any, tables: Any) -> Any:
        return self.decode(tokens, positions, places, tables)

    def _normed(self, inputs: list[Any], *, shared: bool, last_only: bool = False) -> Any:
        step = Step(*self.operators.stage(inputs), shared=shared)
        table = self.head if self.config.tied else self.embedding
        x = self.operators.embed(table.parameter, table.tensors, step.tokens)
        rotation = self.operators.rotation(step.positions)
        for layer, cache in zip(self.layers, self.caches, strict=True):
            x = layer(x, rotation, step, cache.pages)
        if last_only:
            x = _last_row(x)
        return self.operators.rms_norm(x, self.norm.only)


class Cache(nn.Module):  # type: ignore[misc]
    """Keys and values of one layer; a parameter, because calls change it in place."""

    def __init__(self, shape: CacheShape, config: DecoderConfig) -> None:
        self.pages = nn.Parameter(shape.extents(config), shape.dtype)


def build_module(config: DecoderConfig, operators: Operators, cache: CacheShape) -> tuple[IRModule, list[dict[str, Any]]]:
    """The Relax module of `FUNCTIONS`, and name, shape and dtype of the parameters that each takes after its inputs."""

    def inputs(rows: int | str, sequences: int | str) -> dict[str, Any]:
        return {
            "tokens": nn.spec.Tensor([rows], "int32"),
            "positions": nn.spec.Tensor([rows], "int32"),
            "places": nn.spec.Tensor([rows], "int32"),
            "tables": nn.spec.Tensor([sequences, cache.pages], "int32"),
            "$": {"param_mode": "plain", "effect_mode": "none"},
        }

    decoder = Decoder(config, operators, cache)
    prompt, one, batch = inputs("tokens", 1), inputs(1, 1), inputs("sequences", "sequences")
    specs = {"prefill": prompt, "score": prompt, "decode": one, "batch_decode": batch}
    module, named, _ = decoder.export_tvm(spec=specs, allow_extern=True)
    bounds = {"tokens": cache.prefill_chunk, "sequences": cache.sequences}
    for name in FUNCTIONS:
        function = module[name].with_attr("tir_var_upper_bound", bounds)
        if name == "batch_decode":
            # A CUDA graph for each number of sequences that occurs.
            function = function.with_attr("relax.rewrite_cuda_graph.capture_symbolic_vars", ["sequences"])
        module.update_func(module.get_global_var(name), function)
    described = [{"name": name, "shape": [int(size) for size in item.shape], "dtype": str(item.dtype)} for name, item in named]
    return operators.finish(module), described


def _last_row(x: Any) -> Any:
    """[rows, width] -> [1, width]."""
    from pydoit.tvm_compat import te

    def last(source: Any) -> Any:
        rows, width = source.shape
        return te.compute((1, width), lambda _, column: source[rows - 1, column], name="last_row")

    return nn.op.tensor_expr_op(last, "last_row", [x])
