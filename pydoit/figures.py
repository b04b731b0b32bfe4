"""What a Relax module costs, read from its IR: kernels, FLOPs, bytes moved, memory of its intermediates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pydoit.bodies import Body, width_of
from pydoit.extents import evaluated
from pydoit.profiling.loops import loads_of
from pydoit.tvm_compat import estimate_tir_flops, ir, relax, structural_walk, tirx


@dataclass(frozen=True)
class Figures:
    """Of one call of an entry function; symbolic extents count with their upper bounds."""

    functions: int
    """Functions of the module, Relax and TIR."""
    nodes: int
    """Bindings of Relax functions and statements of TIR functions."""
    kernels: int
    """Calls of functions and, before they are lowered, of operators; views do not count."""
    flops: float
    """Arithmetic operations, as the IR writes them; TIR functions with symbolic loops count as none."""
    moved_bytes: int
    """Bytes of the tensors that kernels read and write, each tensor once a kernel."""
    live_bytes: int
    """Most bytes of intermediates that are alive at a time: what no memory plan gets below."""
    intermediate_bytes: int
    """Bytes of all intermediates: what a plan without reuse takes."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


@dataclass
class Meter:
    """Measures versions of one module: functions that did not change between two are not looked at again."""

    extents: Mapping[str, int] = field(default_factory=dict)
    """Upper bounds of symbolic extents by name."""
    entry: str = "main"
    _nodes: dict[Any, int] = field(default_factory=dict)
    _flops: dict[Any, float] = field(default_factory=dict)
    _loads: dict[Any, list[int]] = field(default_factory=dict)

    def figures(self, module: Any) -> Figures:
        """Figures of a module at any level between import and compile.

        Raises KeyError if it has no Relax function of the entry's name.
        """
        body = self.body(module)
        functions = dict(module.functions_items())
        return Figures(
            functions=len(functions),
            nodes=sum(self.nodes(function) for function in functions.values()),
            kernels=len(body.kernels),
            flops=sum(kernel.flops for kernel in body.kernels),
            moved_bytes=sum(kernel.moved_bytes for kernel in body.kernels),
            live_bytes=body.live_bytes(),
            intermediate_bytes=sum(body.sizes),
        )

    def body(self, module: Any) -> Body:
        """The kernels and intermediates of the entry function; raises KeyError where there is none."""
        named = {name.name_hint: function for name, function in module.functions_items()}
        entry = named.get(self.entry)
        if not isinstance(entry, relax.Function):
            raise KeyError(self.entry)
        return Body(self, named, entry)

    def nodes(self, function: Any) -> int:
        """Bindings of a Relax function or statements of a TIR function."""
        if isinstance(function, relax.Function):
            return sum(len(block.bindings) for block in function.body.blocks)
        if function not in self._nodes:
            statements: list[None] = []
            structural_walk(function, (tirx.Stmt, lambda _: statements.append(None)))
            self._nodes[function] = len(statements)
        return self._nodes[function]

    def function_flops(self, function: Any) -> float:
        """Operations of a TIR function."""
        if function not in self._flops:
            try:
                self._flops[function] = float(estimate_tir_flops(function.body))
            except Exception:  # noqa: BLE001 - TVM's estimate raises its internal errors on symbolic loops and intrinsics
                self._flops[function] = 0.0
        return self._flops[function]

    def function_loads(self, function: Any) -> list[int]:
        """Elements that a TIR function loads from each of its parameters."""
        if function not in self._loads:
            self._loads[function] = loads_of(function, self.extents)
        return self._loads[function]

    def bytes_of(self, kind: Any) -> int:
        """Bytes of a value of that type; 0 for one that is no tensor."""
        if isinstance(kind, ir.TupleType):
            return sum(self.bytes_of(item) for item in kind.fields)
        if not isinstance(kind, relax.TensorType) or kind.shape is None:
            return 0
        return self.elements(kind) * width_of(str(kind.dtype))

    def elements(self, kind: Any) -> int:
        """Elements of a tensor of that type."""
        shape = getattr(kind, "shape", None)
        return math.prod(self.extent(size) for size in shape) if shape is not None else 0

    def extent(self, size: Any) -> int:
        """An extent as a number; an expression of symbols by their bounds."""
        return evaluated(size, self.extents)
