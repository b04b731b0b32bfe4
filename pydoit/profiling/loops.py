"""How much of a scheduled TIR function's work runs in parallel and in vectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydoit.extents import evaluated
from pydoit.tvm_compat import ir, structural_walk, tirx

PARALLEL, VECTORIZED, THREAD = (
    int(kind) for kind in (tirx.ForKind.PARALLEL, tirx.ForKind.VECTORIZED, tirx.ForKind.THREAD_BINDING)
)
_PARTS = ("body", "block", "init", "then_case", "else_case")


@dataclass(frozen=True)
class Loops:
    """Of one function, each statement weighted with the times that it runs."""

    parallel: int
    """Iterations of the parallel loop that most of the work is under; 1 where most of it is under none."""
    parallel_share: float
    vector_share: float
    """Share of the work in vectorized loops or in calls of vector instructions; LLVM may vectorize more."""


@dataclass(frozen=True)
class _Leaf:
    times: int
    parallel: int
    vector: bool


def loops_of(function: Any, extents: Mapping[str, int]) -> Loops:
    """Read the loops of a scheduled PrimFunc; symbolic extents count with their upper bounds."""
    leaves = list(_leaves(function.body, _Leaf(1, 1, vector=False), extents))
    total = sum(leaf.times for leaf in leaves) or 1
    by_extent: dict[int, int] = {}
    for leaf in leaves:
        by_extent[leaf.parallel] = by_extent.get(leaf.parallel, 0) + leaf.times
    return Loops(
        parallel=max(by_extent, key=lambda extent: by_extent[extent], default=1),
        parallel_share=sum(leaf.times for leaf in leaves if leaf.parallel > 1) / total,
        vector_share=sum(leaf.times for leaf in leaves if leaf.vector) / total,
    )


def loads_of(function: Any, extents: Mapping[str, int]) -> list[int]:
    """For each parameter of a PrimFunc the elements that its loops load from it, repeated ones too; 0 for no buffer.

    A gather loads a few elements of a large table, which the table's size does not tell.
    """
    counts = [0] * len(function.params)
    for node, leaf in _statements(function.body, _Leaf(1, 1, vector=False), extents):
        loads: list[Any] = []
        structural_walk(node, (ir.TensorLoad, loads.append))
        for load in loads:
            for place, parameter in enumerate(function.params):
                if load.source.same_as(parameter):
                    counts[place] += leaf.times
    return counts


def _leaves(node: Any, around: _Leaf, extents: Mapping[str, int]) -> Iterator[_Leaf]:
    """The loops around each store or call below a statement."""
    for leaf_node, leaf in _statements(node, around, extents):
        yield _Leaf(leaf.times, leaf.parallel, leaf.vector or _is_wide(leaf_node))


def _statements(node: Any, around: _Leaf, extents: Mapping[str, int]) -> Iterator[tuple[Any, _Leaf]]:
    """The stores and calls below a statement, with the loops around each."""
    if isinstance(node, tirx.SeqStmt):
        for item in node.seq:
            yield from _statements(item, around, extents)
        return
    if isinstance(node, tirx.For):
        around = _inside(node, around, extents)
    elif isinstance(node, tirx.BufferStore | tirx.Evaluate):
        yield node, around
        return
    for part in _PARTS:
        child = getattr(node, part, None)
        if isinstance(child, tirx.Stmt):
            yield from _statements(child, around, extents)


def _inside(loop: Any, around: _Leaf, extents: Mapping[str, int]) -> _Leaf:
    times = max(1, evaluated(loop.extent, extents))
    kind = int(loop.kind)
    vector = around.vector or kind == VECTORIZED
    parallel = around.parallel * times if kind in (PARALLEL, THREAD) else around.parallel
    return _Leaf(around.times * times, parallel, vector)


def _is_wide(node: Any) -> bool:
    """Whether a leaf stores a vector or calls an instruction that does."""
    if isinstance(node, tirx.Evaluate):
        return isinstance(node.value, ir.Call)
    dtype = str(getattr(node.value.ty, "dtype", ""))
    return "x" in dtype or any(type(index).__name__ in ("Ramp", "Broadcast") for index in node.indices)
