"""cat: parts without elements vanish (rotary embeddings of whole heads leave such parts), element types are joined."""

from __future__ import annotations

from typing import Any

from pydoit.importers.torch_ops import converter
from pydoit.importers.torch_ops.graph import Graph, extents, positive


@converter("cat.default")
def cat(graph: Graph, parts: list[Any], axis: int) -> Any:
    """The parts one after another along the axis."""
    from tvm import relax

    kept = [part for part in parts if 0 not in extents(part)] or parts[-1:]
    kept = [graph.cast(part, graph.dtype()) for part in kept]
    if len(kept) == 1:
        return kept[0]
    return graph.emit(relax.op.concat(kept, axis=positive(axis, kept[0].ty.ndim)))
