"""Plans the memory of intermediates: tensors that are never alive together share storages."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydoit.tvm_compat import IRModule, PyExprMutator, ir, mutator, relax, tirx, tvm


@dataclass(frozen=True)
class Lifetime:
    """A tensor's bytes and the bindings between which it is needed."""

    size: int
    born: int
    dies: int

    def meets(self, other: Lifetime) -> bool:
        """Whether both are needed at some binding."""
        return self.born <= other.dies and other.born <= self.dies


def share(lifetimes: Sequence[Lifetime]) -> list[int]:
    """A storage for each tensor, such that tensors in one storage never meet: the best of three greedy plans.

    Tensors come by size, or by how much is alive beside them; each goes into a storage that need not grow for it, with the
    shortest idle time around it or with the size nearest to its own. TVM 0.27's kernels take buffers that begin where
    their storage begins only, hence no offsets within one.
    Source: Pisarchyk and Lee 2020 (arXiv:2001.03288), greedy by size and by breadth for shared objects.
    """
    by_size = sorted(range(len(lifetimes)), key=lambda index: (-lifetimes[index].size, lifetimes[index].born, index))
    by_breadth = _by_breadth(lifetimes, by_size)
    plans = [
        _assigned(lifetimes, by_size, _idle),
        _assigned(lifetimes, by_size, _misfit),
        _assigned(lifetimes, by_breadth, _misfit),
    ]
    return min(plans, key=lambda plan: sum(storage_sizes(lifetimes, plan).values()))


def storage_sizes(lifetimes: Sequence[Lifetime], storages: Sequence[int]) -> dict[int, int]:
    """Bytes of each storage: those of its largest tensor."""
    sizes: dict[int, int] = {}
    for life, number in zip(lifetimes, storages, strict=True):
        sizes[number] = max(sizes.get(number, 0), life.size)
    return sizes


def _assigned(
    lifetimes: Sequence[Lifetime], order: Sequence[int], cost: Callable[[Sequence[Lifetime], Lifetime], int]
) -> list[int]:
    storages: list[list[Lifetime]] = []
    chosen: dict[int, int] = {}
    for index in order:
        mine = lifetimes[index]
        fitting = [number for number, held in enumerate(storages) if not any(mine.meets(other) for other in held)]
        costs = {number: (_growth(storages[number], mine), cost(storages[number], mine), number) for number in fitting}
        number = min(fitting, key=costs.__getitem__, default=len(storages))
        if number == len(storages):
            storages.append([])
        storages[number].append(mine)
        chosen[index] = number
    return [chosen[index] for index in range(len(lifetimes))]


def _by_breadth(lifetimes: Sequence[Lifetime], by_size: Sequence[int]) -> list[int]:
    """Tensors of the binding with most bytes alive first, the largest of each first."""
    alive = {step: [index for index in by_size if lifetimes[index].born <= step <= lifetimes[index].dies]
             for step in sorted({life.born for life in lifetimes})}  # fmt: skip
    widest = sorted(alive, key=lambda step: -sum(lifetimes[index].size for index in alive[step]))
    return list(dict.fromkeys(index for step in widest for index in alive[step]))


def _growth(held: Sequence[Lifetime], mine: Lifetime) -> int:
    """Bytes by which a storage would grow."""
    return max(0, mine.size - max(other.size for other in held))


def _idle(held: Sequence[Lifetime], mine: Lifetime) -> int:
    """Bindings between a tensor and its nearest neighbour in a storage."""
    return min(min(abs(mine.born - other.dies), abs(other.born - mine.dies)) for other in held)


def _misfit(held: Sequence[Lifetime], mine: Lifetime) -> int:
    """Bytes of a storage that a tensor would not use."""
    return abs(max(other.size for other in held) - mine.size)


@dataclass
class MemoryPlan:
    """Plans every Relax function of a module whose `call_tir` are rewritten, and keeps the figures.

    Tensors with symbolic extents, results of the function, and functions with branches are left to TVM's own planning.
    """

    bytes: dict[str, int] = field(default_factory=dict)
    """Function -> bytes of the storages and of what is allocated beside them with a known size."""
    live_bytes: dict[str, int] = field(default_factory=dict)
    """Function -> most bytes that are needed at a time: what no plan gets below."""

    def as_pass(self) -> Any:
        """A module pass for TVM's pipeline, behind CallTIRRewrite."""
        return tvm.transform.module_pass(lambda module, _context: self.plan(module), opt_level=0, name="PlanMemory")

    def plan(self, module: Any) -> Any:
        """Return the module with planned functions."""
        functions = dict(module.functions.items())
        for name, function in functions.items():
            if isinstance(function, relax.Function):
                functions[name] = self._planned(module, name.name_hint, function)
        return IRModule(functions, attrs=module.attrs)

    def _planned(self, module: Any, name: str, function: Any) -> Any:
        body = _Body(function)
        found = body.lifetimes()
        kept = list(found.values())
        storages = share(kept)
        sizes = storage_sizes(kept, storages)
        beside = sum(tensor_bytes(var.ty) for var in body.allocated if var not in found)
        self.bytes[name] = sum(sizes.values()) + beside
        self.live_bytes[name] = most_alive(kept) + beside
        return _Rewriter(module, dict(zip(found, storages, strict=True)), sizes).visit_expr(function) if found else function


def most_alive(lifetimes: Sequence[Lifetime]) -> int:
    """Most bytes that are needed at one binding."""
    steps = {life.born for life in lifetimes}
    return max((sum(life.size for life in lifetimes if life.born <= step <= life.dies) for step in steps), default=0)


class _Body:
    """The allocations of a function, and where each is used."""

    def __init__(self, function: Any) -> None:
        self.allocated: list[Any] = []
        """Variables of static tensors that the function allocates."""
        self._born: dict[Any, int] = {}
        self._dies: dict[Any, int] = {}
        self._owners: dict[Any, frozenset[Any]] = {}
        self._has_branch = False
        bindings = [binding for block in function.body.blocks for binding in block.bindings]
        for step, binding in enumerate(bindings):
            self._bind(step, binding.var, getattr(binding, "value", None))
        self._returned = {owner for var in _variables(function.body.body) for owner in self._owners.get(var, ())}

    def lifetimes(self) -> Mapping[Any, Lifetime]:
        """Those that can be planned, in their order."""
        if self._has_branch:
            return {}
        return {
            var: Lifetime(tensor_bytes(var.ty), self._born[var], self._dies[var])
            for var in self.allocated
            if var not in self._returned and tensor_bytes(var.ty)
        }

    def _bind(self, step: int, var: Any, value: Any) -> None:
        self._has_branch = self._has_branch or isinstance(value, relax.If | relax.Function)
        for used in _variables(value):
            for owner in self._owners.get(used, ()):
                self._dies[owner] = step
        if _is_allocation(value):
            self._owners[var] = frozenset({var})
            self._born[var] = self._dies[var] = step
            if tensor_bytes(var.ty):
                self.allocated.append(var)
        elif not _is_kernel(value):
            # A view, a tuple, or a function that may hand back what it was given.
            self._owners[var] = frozenset(owner for used in _variables(value) for owner in self._owners.get(used, ()))


def _is_allocation(value: Any) -> bool:
    return isinstance(value, relax.Call) and getattr(value.op, "name", "") == "relax.builtin.alloc_tensor"


def _is_kernel(value: Any) -> bool:
    """Whether it is a call that writes to its last arguments and gives nothing back."""
    if not isinstance(value, relax.Call) or not isinstance(value.op, ir.GlobalVar):
        return False
    return isinstance(value.ty, ir.TupleType) and not len(value.ty.fields)


def _variables(value: Any) -> Iterator[Any]:
    """The variables that an expression reads."""
    if isinstance(value, relax.Var):
        yield value
    elif isinstance(value, relax.Tuple):
        for item in value.fields:
            yield from _variables(item)
    elif isinstance(value, relax.TupleGetItem):
        yield from _variables(value.tuple_value)
    elif isinstance(value, relax.Call):
        for item in value.args:
            yield from _variables(item)


@mutator
class _Rewriter(PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: Any, storages: Mapping[Any, int], sizes: Mapping[int, int]) -> None:
        super().__init__(module)
        self._storages, self._sizes = storages, sizes
        self._made: dict[int, Any] = {}

    def visit_var_binding_(self, binding: Any) -> None:
        """Take a planned tensor from its storage, which is allocated before the first of them."""
        value = self.visit_expr(binding.value)
        number = self._storages.get(binding.var)
        if number is not None:
            kind = binding.var.ty
            value = relax.op.memory.alloc_tensor(self._storage(number), 0, kind.shape, str(kind.dtype))
        self.set_var_remap(binding.var, self.builder_.emit(value))

    def _storage(self, number: int) -> Any:
        if number not in self._made:
            size = relax.ShapeExpr([tirx.IntImm("int64", self._sizes[number])])
            self._made[number] = self.builder_.emit(relax.op.memory.alloc_storage(size, 0, "global", "uint8"))
        return self._made[number]


def tensor_bytes(kind: Any) -> int:
    """Bytes of a tensor type; 0 where an extent is symbolic, and for anything else."""
    shape = getattr(kind, "shape", None)
    if not isinstance(kind, relax.TensorType) or shape is None or not all(isinstance(size, tirx.IntImm) for size in shape):
        return 0
    return math.prod(int(size) for size in shape) * ((int(tvm.DataType(str(kind.dtype)).bits) + 7) // 8)
