"""Cleans an exported graph before translation: assertions on values go, and what only they used."""

from __future__ import annotations

from typing import Any

_ASSERTIONS = frozenset({
    "_assert_async.default", "_assert_async.msg", "_assert_scalar.default", "_assert_tensor_metadata.default",
    "sym_constrain_range.default", "sym_constrain_range_for_size.default",
})  # fmt: skip


def remove_assertions(program: Any) -> None:
    """Erase checks of values, which a library without control flow cannot make; shapes and types are checked at import."""
    graph = program.graph_module.graph
    for node in reversed(list(graph.nodes)):
        if node.op == "call_function" and getattr(node.target, "__name__", "") in _ASSERTIONS and not node.users:
            graph.erase_node(node)
    # torch keeps a node with symbolic results in case it raises
    for node in reversed(list(graph.nodes)):
        if node.op == "call_function" and not node.users:
            graph.erase_node(node)
    program.graph_module.recompile()
