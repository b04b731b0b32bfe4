"""The kernels and intermediates of an entry function, read from its IR."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydoit.tvm_compat import ir, relax, tirx

if TYPE_CHECKING:
    from pydoit.figures import Meter

_FUNCTION_CALLS = frozenset(("relax.call_tir", "relax.call_tir_inplace", "relax.call_dps_packed"))
_VIEWS = frozenset(("relax.reshape", "relax.memory.view", "relax.memory.ensure_zero_offset", "relax.vm.builtin.reshape"))
CACHE = "pages"
"""How the names of parameters end that are caches (`pydoit.models.decoder.Cache`)."""
LANGUAGE_INPUTS = 4
"""Tokens, positions, places, tables: what a language model's functions take before weights and caches."""
_FOREIGN = ("onednn_matmul", "onednn_conv2d")
_OVER_WEIGHT = frozenset(("relax.matmul", "relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d"))


@dataclass(frozen=True)
class Kernel:
    """One call in the entry function that computes something."""

    name: str
    flops: float
    read_bytes: int
    """Of all tensors that it reads, weights too."""
    weight_bytes: int
    """Of the weights and constants among them."""
    written_bytes: int
    dtype: str
    """Element type of its operands: the narrowest floating-point one, or of integers where there are no others."""
    weight_dtype: str = ""
    """Element type of the largest weight."""
    partial: bool = False
    """Whether it reads a cache, of which it may need a part only."""

    @property
    def moved_bytes(self) -> int:
        """Read and written."""
        return self.read_bytes + self.written_bytes


@dataclass(frozen=True)
class Tensor:
    """An intermediate or result: which kernel writes it, and the last one that needs it, as places in the order of kernels."""

    name: str
    bytes: int
    born: int
    dies: int


class Body:
    """The bindings of an entry function: which are kernels, which tensors are intermediates, how long each is alive."""

    def __init__(self, meter: Meter, functions: Mapping[str, Any], entry: Any) -> None:
        self._meter, self._functions = meter, functions
        self.kernels: list[Kernel] = []
        self.sizes: list[int] = []
        """Bytes of each intermediate."""
        self._born: list[int] = []
        self._dies: list[int] = []
        self._owner: dict[Any, frozenset[int]] = {}
        self._kernel_at: list[int] = []
        """Binding of each kernel."""
        attributes = entry.attrs or {}
        given = int(attributes["num_input"]) if "num_input" in attributes else self._inputs(entry)
        self._caches = {var for var in entry.params if var.name.endswith(CACHE)}
        self._weights = {var for var in entry.params[given:] if var not in self._caches}
        bindings = [binding for block in entry.body.blocks for binding in block.bindings]
        for step, binding in enumerate(bindings):
            self._bind(step, binding.var, getattr(binding, "value", None))
        # What the function returns is the caller's: it is alive to the end, and no plan can put anything else there.
        self._use(len(bindings), entry.body.body)

    def _inputs(self, entry: Any) -> int:
        """Inputs of a function that does not say how many it has: of a language model's those before the first weight."""
        places = [place for place, var in enumerate(entry.params) if var.name.endswith(CACHE)]
        return LANGUAGE_INPUTS if places else len(entry.params)

    def live_bytes(self) -> int:
        """Most bytes that are alive at a time."""
        changes: dict[int, int] = {}
        for size, born, dies in zip(self.sizes, self._born, self._dies, strict=True):
            changes[born] = changes.get(born, 0) + size
            changes[dies + 1] = changes.get(dies + 1, 0) - size
        most = alive = 0
        for step in sorted(changes):
            alive += changes[step]
            most = max(most, alive)
        return most

    def tensors(self) -> list[Tensor]:
        """What the kernels write, in their order; what the function returns is needed up to its end."""
        last = len(self.kernels) - 1
        found = []
        for number, (size, born, dies) in enumerate(zip(self.sizes, self._born, self._dies, strict=True)):
            # The binding at which it is last needed may be a view or the end: the kernel before that is the last to run.
            until = bisect_right(self._kernel_at, dies) - 1
            found.append(Tensor(self.kernels[number].name, size, bisect_right(self._kernel_at, born) - 1, min(until, last)))
        return found

    def _bind(self, step: int, var: Any, value: Any) -> None:
        self._use(step, value)
        called = _callee(value)
        if called is None or called in _VIEWS:
            self._owner[var] = frozenset(index for part in _variables(value) for index in self._owner.get(part, ()))
            if any(part in self._weights for part in _variables(value)):
                self._weights.add(var)
            return
        self.kernels.append(self._kernel(called, var, value))
        self._kernel_at.append(step)
        size = 0 if _is_in_place(value) else self._meter.bytes_of(var.ty)
        self._owner[var] = frozenset({len(self.sizes)})
        self.sizes.append(size)
        self._born.append(step)
        self._dies.append(step)

    def _use(self, step: int, value: Any) -> None:
        for var in _variables(value):
            for index in self._owner.get(var, ()):
                self._dies[index] = step

    def _kernel(self, called: str, var: Any, value: Any) -> Kernel:
        meter = self._meter
        operands = set(_variables(value))
        weights = [item for item in operands if item in self._weights or isinstance(item, ir.GenericConst)]
        function = self._functions.get(called)
        if isinstance(function, relax.Function):
            flops = self._group_flops(function)
        elif function is not None:
            flops = meter.function_flops(function)
        else:
            flops = self._operator_flops(called, var, value)
        reads = self._reads(function, value, operands)
        return Kernel(
            called,
            flops,
            read_bytes=sum(reads.values()),
            weight_bytes=sum(reads[item] for item in weights),
            written_bytes=meter.bytes_of(var.ty),
            dtype=_arithmetic(operands),
            weight_dtype=max((meter.bytes_of(item.ty), str(item.ty.dtype)) for item in weights)[1] if weights else "",
            partial=not self._caches.isdisjoint(operands),
        )

    def _reads(self, function: Any, value: Any, operands: Iterable[Any]) -> dict[Any, int]:
        """Bytes that are read of each operand: all of it, or what a TIR function's loops load where that is less."""
        found = {item: self._meter.bytes_of(item.ty) for item in operands}
        if not isinstance(function, tirx.PrimFunc):
            return found
        given = [item for argument in value.args[1:2] for item in _variables(argument)]
        loads = self._meter.function_loads(function)
        loaded: dict[Any, int] = {}
        for item, count in zip(given, loads, strict=False):
            if isinstance(item.ty, relax.TensorType):
                loaded[item] = loaded.get(item, 0) + count * width_of(str(item.ty.dtype))
        return {item: min(size, loaded[item]) if loaded.get(item) else size for item, size in found.items()}

    def _group_flops(self, function: Any) -> float:
        """Of a group of functions that FuseOps has made."""
        total = 0.0
        for block in function.body.blocks:
            for binding in block.bindings:
                called = _callee(binding.value)
                inner = self._functions.get(called) if called is not None else None
                if isinstance(inner, tirx.PrimFunc):
                    total += self._meter.function_flops(inner)
        return total

    def _operator_flops(self, name: str, var: Any, value: Any) -> float:
        """Of an operator that is not lowered: a multiplication and an addition for each pair, else one for each element."""
        made = float(self._meter.elements(var.ty))
        if name.startswith(_FOREIGN):
            return self._foreign_flops(name, made, value.args[1].fields)
        if name not in _OVER_WEIGHT:
            return made
        weight = value.args[1].ty
        if name == "relax.matmul":
            left = value.args[0].ty.shape
            return 2.0 * made * (self._meter.extent(left[len(left) - 1]) if left is not None else 1)
        layout = str(value.attrs.kernel_layout)
        channels = self._meter.extent(weight.shape[layout.index("O")]) if "O" in layout and weight.shape is not None else 1
        return 2.0 * made * self._meter.elements(weight) / max(1, channels)

    def _foreign_flops(self, name: str, made: float, operands: Any) -> float:
        """Of a function of oneDNN's: data [..., K] by anything, or a convolution with weights OHWI."""
        data, weights = operands[0].ty, operands[1].ty
        if name.startswith("onednn_matmul"):
            return 2.0 * made * self._meter.extent(data.shape[len(data.shape) - 1])
        return 2.0 * made * self._meter.elements(weights) / max(1, self._meter.extent(weights.shape[0]))


def _callee(value: Any) -> str | None:
    """Name of the function or operator that a binding calls; None for what computes nothing."""
    if not isinstance(value, relax.Call):
        return None
    name = getattr(value.op, "name", None)
    if name in _FUNCTION_CALLS:
        target = value.args[0]
        return str(getattr(target, "name_hint", None) or getattr(target, "global_symbol", name))
    return str(name or getattr(value.op, "name_hint", None) or "call")


def _is_in_place(value: Any) -> bool:
    """Whether all results of a call are tensors that it was given."""
    if getattr(value.op, "name", "") != "relax.call_tir_inplace":
        return False
    return all(int(place) >= 0 for place in value.attrs.inplace_indices)


def _variables(value: Any) -> Iterator[Any]:
    """The variables and constants that an expression reads."""
    if isinstance(value, relax.Var | ir.GenericConst):
        yield value
    elif isinstance(value, relax.Tuple):
        for item in value.fields:
            yield from _variables(item)
    elif isinstance(value, relax.TupleGetItem):
        yield from _variables(value.tuple_value)
    elif isinstance(value, relax.Call):
        for item in value.args:
            yield from _variables(item)
    elif isinstance(value, relax.MatchCast):
        yield from _variables(value.value)


def _arithmetic(operands: Iterable[Any]) -> str:
    """The element type in which a kernel that reads these multiplies: the narrowest floating-point one, else integer one."""
    found = {str(item.ty.dtype) for item in operands if isinstance(item.ty, relax.TensorType)}
    floating = sorted((name for name in found if "float" in name), key=lambda name: (width_of(name), name))
    integers = sorted((name for name in found if name.startswith(("int", "uint"))), key=lambda name: (width_of(name), name))
    return next(iter(floating or integers), "float32")


def width_of(dtype: str) -> int:
    """Bytes of an element."""
    digits = "".join(character for character in dtype.split("_")[0] if character.isdigit())
    return max(1, int(digits or 8) // 8)
