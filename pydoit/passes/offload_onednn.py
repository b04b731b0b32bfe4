"""OffloadOneDnn: convolutions and matrix products, with what follows them, become calls of oneDNN."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydoit.errors import UserError
from pydoit.kernels.onednn import choice
from pydoit.kernels.onednn.choice import Provider
from pydoit.kernels.onednn.site import PostOp, Registry, Site
from pydoit.passes.dependence import WeightDependence, count_uses, weight_params
from pydoit.passes.matching import is_call, is_tensor, same_shape, uniform_value
from pydoit.passes.narrow_casts import MOVEMENTS, NarrowCasts, narrow_source
from pydoit.tvm_compat import PyExprMutator, mutator, relax

OPERATORS = {"relax.nn.conv2d": "conv2d", "relax.matmul": "matmul"}
PROVIDERS = ("auto", "onednn", "tvm")
PRECISIONS = ("float32", "bfloat16")
INFINITY = float("inf")


@dataclass(frozen=True)
class OffloadOneDnn:
    """Rewrite conv2d (NHWC, OHWI) and matmul, their bias, sums with equal extents and activations to one call each.

    Run it between ConvertLayout and PackWeights, which packs what is left for TVM. Weights stay plain here; the library
    packs them when it is loaded, as oneDNN wants them on the machine that runs it. Only float32 operators are taken.
    """

    conv2d: Provider = "auto"
    """Who computes convolutions: `onednn`, `tvm`, or `auto`: as the tuning records say."""
    matmul: Provider = "auto"
    """Who computes matrix products."""
    precision: str = "float32"
    """`bfloat16`: operands are rounded to it, sums stay in float32; between such calls values stay in bfloat16."""

    def __post_init__(self) -> None:
        """Raises UserError for a provider or precision that does not exist."""
        for name, value, known in (("conv2d", self.conv2d, PROVIDERS), ("matmul", self.matmul, PROVIDERS),
                                   ("precision", self.precision, PRECISIONS)):  # fmt: skip
            if value not in known:
                raise UserError(f'OffloadOneDnn: {name} = "{value}" is unknown; use one of {", ".join(known)}')

    def __call__(self, module: Any) -> Any:
        """Return the module with calls of oneDNN; `pydoit.kernels.onednn.site.sites_of` lists what they compute."""
        if self.conv2d == self.matmul == "tvm":
            return module
        registry = Registry.of(module)
        for name, function in module.functions_items():
            if not isinstance(function, relax.Function):
                continue
            chains = {chain.end: chain for chain in find_chains(function) if self._takes(chain)}
            if chains:
                if self.precision == "bfloat16":
                    _narrow_results(function, chains)
                rewriter = _Rewriter(module, chains, registry, self.precision)
                rewritten = rewriter.visit_expr(function)
                rewriter.builder_.update_func(name, rewritten)
                module = rewriter.builder_.get()
        return registry.attach(relax.transform.DeadCodeElimination()(module))

    def _takes(self, chain: Chain) -> bool:
        site = chain.site(self.precision)
        return choice.takes(site, self.conv2d if site.operator == "conv2d" else self.matmul)


@dataclass
class Chain:
    """An operator and the bindings behind it that one call computes too."""

    call: Any
    """The convolution or product."""
    end: Any
    """The variable of the last binding."""
    type: Any
    """The last binding's type."""
    bias: Any = None
    post_ops: list[PostOp] = field(default_factory=list)
    added: list[Any] = field(default_factory=list)
    """The other operands of sums, in their order."""
    has_weights: bool = True
    """Whether the right operand is made of weights alone."""
    steps: list[Any] = field(default_factory=list)
    """The bindings behind the operator's own."""
    start: Any = None
    """The variable of the operator's own binding."""
    out_dtype: str = "float32"
    """Element type of the result; no part of what records are kept by."""

    @property
    def is_batched(self) -> bool:
        """Whether both operands are data: a product for each of several matrices."""
        return self.call.op.name == "relax.matmul" and not self.has_weights

    def site(self, precision: str) -> Site:
        """What is computed, at a precision."""
        data, weight = self.call.args
        operator = OPERATORS[self.call.op.name]
        more: dict[str, Any] = {}
        if operator == "conv2d":
            attrs = self.call.attrs
            more = {
                "strides": _integers(attrs.strides), "padding": _integers(attrs.padding),
                "dilation": _integers(attrs.dilation), "groups": int(attrs.groups),
            }  # fmt: skip
        has_bias, post_ops = self.bias is not None, tuple(self.post_ops)
        return Site(operator, precision, "", _extents(data), _extents(weight), has_bias, post_ops, **more)


def find_chains(function: Any) -> list[Chain]:
    """The operators of a function that oneDNN can compute, each binding in one chain at most."""
    uses = count_uses(function)
    constant = _constant(function)
    chains: list[Chain] = []
    for block in function.body.blocks:
        if not isinstance(block, relax.DataflowBlock):
            continue
        bindings = [binding for binding in block.bindings if isinstance(binding, relax.VarBinding)]
        readers = {var: binding for binding in bindings for var in _read(binding.value)}
        bound = {binding.var: binding.value for binding in bindings}
        claimed: set[Any] = set()
        # From the end: of two operators whose sum is taken, the later one takes it, where the other is known already.
        for binding in reversed(bindings):
            if _is_served(binding.value, constant):
                chain = Chain(binding.value, binding.var, binding.var.ty, start=binding.var)
                chain.has_weights = constant.holds(binding.value.args[1])
                _extend(chain, uses, readers, claimed, _Terms(constant, bound.get))
                chains.append(chain)
    return chains[::-1]


def _constant(function: Any) -> WeightDependence:
    bound = {binding.var: getattr(binding, "value", None) for block in function.body.blocks for binding in block.bindings}
    return WeightDependence(weight_params(function), bound.get)


def _is_served(value: Any, constant: WeightDependence) -> bool:
    if not isinstance(value, relax.Call) or getattr(value.op, "name", "") not in OPERATORS:
        return False
    data, weight = value.args
    if not (is_tensor(value, "float32") and is_tensor(data, "float32") and is_tensor(weight, "float32")):
        return False
    if value.op.name == "relax.nn.conv2d":
        attrs = value.attrs
        layouts = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout)
        return layouts == ("NHWC", "OHWI", "NHWC") and all(isinstance(size, int) for size in _extents(weight))
    if len(weight.ty.shape) == 2:
        return len(data.ty.shape) >= 2
    ranks = {len(data.ty.shape), len(weight.ty.shape)}
    leading = zip(_extents(data)[:-2], _extents(weight)[:-2], strict=False)
    return len(ranks) == 1 and min(ranks) >= 3 and not constant.holds(weight) and all(one == other for one, other in leading)


@dataclass(frozen=True)
class _Terms:
    """What is known of the operands beside a chain."""

    constant: WeightDependence
    lookup: Any


def _extend(chain: Chain, uses: Mapping[Any, int], readers: Mapping[Any, Any], claimed: set[Any], terms: _Terms) -> None:
    """Take the bindings behind an operator, as long as each is the only reader of the one before."""
    while uses.get(chain.end, 0) == 1 and chain.end in readers:
        binding = readers[chain.end]
        if binding.var in claimed or not _absorb(chain, binding, terms):
            return
        claimed.add(binding.var)
        chain.steps.append(binding)
        chain.end, chain.type = binding.var, binding.var.ty


def _absorb(chain: Chain, binding: Any, terms: _Terms) -> bool:
    value = binding.value
    if not isinstance(value, relax.Call) or not is_tensor(binding.var, "float32"):
        return False
    if is_call(value, "reshape"):
        # Rows of a product with a matrix; its extents are those of the last binding.
        rows = chain.call.op.name == "relax.matmul" and len(chain.call.args[1].ty.shape) == 2
        return rows and _last(binding.var) == _last(chain.end)
    if not same_shape(binding.var, chain.end):
        return False
    if is_call(value, "add"):
        other = value.args[1] if value.args[0].same_as(chain.end) else value.args[0]
        return _absorb_sum(chain, other, terms)
    post_op = _elementwise(value, chain.end, terms)
    if post_op is None:
        return False
    if chain.post_ops and chain.post_ops[-1].name == post_op.name == "clip":
        last = chain.post_ops.pop()
        post_op = PostOp("clip", max(last.alpha, post_op.alpha), min(max(last.beta, post_op.alpha), post_op.beta))
    chain.post_ops.append(post_op)
    return True


def _absorb_sum(chain: Chain, other: Any, terms: _Terms) -> bool:
    if not is_tensor(other, "float32"):
        return False
    if chain.bias is None and not chain.post_ops and _is_bias(other, chain.end) and terms.constant.holds(other):
        chain.bias = other
        return True
    if not same_shape(other, chain.end) or len(chain.added) == 2:
        return False
    chain.post_ops.append(PostOp("add"))
    chain.added.append(other)
    return True


def _is_bias(other: Any, result: Any) -> bool:
    *leading, last = _extents(other) or (0,)
    return isinstance(last, int) and last == _last(result) and all(size == 1 for size in leading)


_ACTIVATIONS = {
    "relax.nn.relu": "relu", "relax.nn.gelu": "gelu", "relax.nn.gelu_tanh": "gelu_tanh", "relax.nn.silu": "silu",
    "relax.sigmoid": "sigmoid", "relax.tanh": "tanh",
}  # fmt: skip


def _elementwise(value: Any, operand: Any, terms: _Terms) -> PostOp | None:
    """The post-op that computes a call of `operand`, None for one that oneDNN has not."""
    name = getattr(value.op, "name", "")
    if name in _ACTIVATIONS:
        return PostOp(_ACTIVATIONS[name], alpha=1.0 if name == "relax.nn.silu" else 0.0)
    if name == "relax.nn.leakyrelu":
        return PostOp("relu", alpha=float(value.attrs.alpha))
    if name == "relax.clip":
        low, high = (float(bound.value) for bound in value.args[1:])
        return PostOp("clip", low, high)
    if name not in ("relax.maximum", "relax.minimum", "relax.multiply") or len(value.args) != 2:
        return None
    other = value.args[1] if value.args[0].same_as(operand) else value.args[0]
    number = uniform_value(other, terms.lookup)
    if number is None:
        return None
    if name == "relax.multiply":
        return PostOp("linear", alpha=number)
    return PostOp("clip", number, INFINITY) if name == "relax.maximum" else PostOp("clip", -INFINITY, number)


@mutator
class _Rewriter(PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: Any, chains: Mapping[Any, Chain], registry: Registry, precision: str) -> None:
        super().__init__(module)
        self._chains = chains
        self._registry = registry
        self._precision = precision
        self._narrow = NarrowCasts(self.builder_, self.lookup_binding)

    def visit_var_binding_(self, binding: Any) -> None:
        """Bind the end of a chain to a call; what lies before it is left to dead code."""
        chain = self._chains.get(binding.var)
        if chain is None:
            super().visit_var_binding_(binding)
            return
        emit = self.builder_.emit if isinstance(binding.var, relax.DataflowVar) else self.builder_.emit_output
        self.set_var_remap(binding.var, emit(self._offloaded(chain)))

    def visit_call_(self, call: Any) -> Any:
        """Move casts behind what hands values on."""
        call = super().visit_call_(call)
        moved = self._narrow.moved(call) if self._precision == "bfloat16" else None
        return call if moved is None else moved

    def _offloaded(self, chain: Chain) -> Any:
        narrow = self._precision == "bfloat16"
        site = chain.site(self._precision)
        data, weight = (self.visit_expr(argument) for argument in chain.call.args)
        added = [self.visit_expr(other) for other in chain.added]
        arguments = [self._narrow.narrowed(value) if narrow else value for value in (data, weight)]
        if chain.bias is not None:
            bias = self.visit_expr(chain.bias)
            flat = bias if len(bias.ty.shape) == 1 else self.builder_.emit(relax.op.reshape(bias, [_last(bias)]))
            arguments.append(flat)
        if narrow:
            # A sum's operand that exists in bfloat16 is read so, any other one as it is.
            sources = [narrow_source(other, self.lookup_binding) for other in added]
            added = [other if source is None else source for other, source in zip(added, sources, strict=True)]
        arguments += added
        types = iter(str(other.ty.dtype) for other in added)
        post_ops = (replace(item, dtype=next(types)) if item.name == "add" else item for item in site.post_ops)
        site = replace(site, post_ops=tuple(post_ops), out_dtype=chain.out_dtype)
        result = relax.TensorType(chain.type.shape, site.out_dtype)
        call = relax.op.call_dps_packed(self._registry.symbol(site), relax.Tuple(arguments), result)
        return call if site.out_dtype == "float32" else relax.op.astype(self.builder_.emit(call), "float32")


def _narrow_results(function: Any, chains: Mapping[Any, Chain]) -> None:
    """Let results be bfloat16 that a call reads in it, as they are or moved; the others come from the sum in float32."""
    readers: dict[Any, list[Any]] = {}
    for block in function.body.blocks:
        for binding in block.bindings:
            for var in _read(getattr(binding, "value", None)):
                readers.setdefault(var, []).append(binding)
    taken = {var for chain in chains.values() for var in (*chain.call.args, *chain.added) if isinstance(var, relax.Var)}

    def is_read_narrow(var: Any) -> bool:
        moved = (item.var for item in readers.get(var, ()) if getattr(item.value.op, "name", "") in MOVEMENTS)
        return var in taken or any(is_read_narrow(result) for result in moved)

    for chain in chains.values():
        chain.out_dtype = "bfloat16" if is_read_narrow(chain.end) else "float32"


def _read(value: Any) -> Iterator[Any]:
    """The variables that a binding's value names directly."""
    if isinstance(value, relax.Call):
        yield from (argument for argument in value.args if isinstance(argument, relax.Var))


def _integers(values: Any) -> tuple[Any, ...]:
    return tuple(int(value) for value in values)


def _extents(tensor: Any) -> tuple[int | str, ...]:
    return tuple(int(size) if hasattr(size, "value") else str(size) for size in tensor.ty.shape)


def _last(tensor: Any) -> int | str:
    return (_extents(tensor) or (0,))[-1]
