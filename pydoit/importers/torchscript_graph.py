"""Runs a TorchScript graph operator by operator in Python, so that torch.export can trace it in any version of torch.

Control flow is decided while it runs: by constants, shapes and the numbers that the module keeps. Where it depends on a
tensor's value, torch.export refuses it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from pydoit.errors import UserError

_PYTHON: dict[str, Callable[..., Any]] = {
    "aten::__contains__": lambda items, item: item in items,
    "aten::__getitem__": lambda items, index: items[index],
    "aten::__is__": lambda left, right: left is right,
    "aten::__isnot__": lambda left, right: left is not right,
    "aten::__not__": lambda value: not value,
    "aten::_convolution": lambda *arguments: torch.ops.aten.convolution(*arguments[:9]),  # the rest chooses cuDNN's ways
    "aten::append": lambda items, item: items.append(item) or items,
    "aten::format": lambda text, *values: str(text).format(*values),
    "aten::len": len,
    "aten::list": list,
    "aten::keys": lambda items: list(items.keys()),
    "aten::values": lambda items: list(items.values()),
    "aten::items": lambda items: list(items.items()),
    "prim::data": lambda tensor: tensor,
    "prim::device": lambda tensor: tensor.device,
    "prim::dtype": lambda tensor: tensor.dtype,
    "prim::is_cuda": lambda tensor: tensor.is_cuda,
    "prim::layout": lambda tensor: tensor.layout,
    "prim::max": lambda *values: max(*values),
    "prim::min": lambda *values: min(*values),
    "prim::ListConstruct": lambda *items: list(items),
    "prim::TupleConstruct": lambda *items: items,
    "prim::TupleIndex": lambda items, index: items[index],
    "prim::DictConstruct": lambda *items: dict(zip(items[::2], items[1::2], strict=True)),
    "prim::NumToTensor": torch.tensor,
    "prim::Uninitialized": lambda: None,
    "prim::unchecked_cast": lambda value: value,
    "prim::unchecked_unwrap_optional": lambda value: value,
    "aten::_unwrap_optional": lambda value: value,
}


class Interpreter:
    """Runs an inlined graph over the attributes of its module."""

    def __init__(self, read: Callable[[str], Any], changed: Mapping[str, Any]) -> None:
        self.read = read
        """Gives an attribute of the module by its path."""
        self.attributes: dict[str, Any] = dict(changed)
        """Attributes by path as the run leaves them; the given ones have these values at the start."""

    def run(self, graph: Any, arguments: Mapping[str, Any]) -> Any:
        """The result of the graph; `arguments` are named as in its signature, without `self`."""
        values: dict[str, Any] = {}
        for item in graph.inputs():
            name = item.debugName()
            values[name] = _Path("") if not values else arguments[name.partition(".")[0]]
        self._block(graph, values)
        results = [values[item.debugName()] for item in graph.outputs()]
        return results[0] if len(results) == 1 else tuple(results)

    def _block(self, block: Any, values: dict[str, Any]) -> None:
        for node in block.nodes():
            names = [item.debugName() for item in node.outputs()]
            results = self._node(node, [values[item.debugName()] for item in node.inputs()], values)
            values.update(zip(names, results if len(names) != 1 else [results], strict=False))

    def _node(self, node: Any, inputs: list[Any], values: dict[str, Any]) -> Any:
        kind = node.kind()
        if kind == "prim::Constant":
            return node.output().toIValue()
        if kind == "prim::GetAttr":
            return self._attribute(inputs[0].child(node.s("name")))
        if kind == "prim::SetAttr":
            self.attributes[inputs[0].child(node.s("name")).text] = inputs[1]
            return ()
        if kind == "prim::If":
            return self._if(node, inputs[0], values)
        if kind == "prim::Loop":
            return self._loop(node, inputs, values)
        if kind in ("prim::TupleUnpack", "prim::ListUnpack"):
            return inputs[0] if node.outputsSize() != 1 else inputs[0][0]
        if kind == "prim::RaiseException":
            raise ValueError(str(inputs[0]) or "the module raises an exception")
        if kind in _PYTHON:
            return _PYTHON[kind](*inputs)
        operator = _operator(node)
        if operator is None:
            place = " ".join(node.sourceRange().split())
            raise UserError(f"model: TorchScript's {kind} is not supported ({place[:200]}); write it otherwise")
        keywords = [item.name for item in operator._schema.arguments if item.kwarg_only]  # noqa: SLF001 - the only description
        plain = len(operator._schema.arguments) - len(keywords)  # noqa: SLF001
        return operator(*inputs[:plain], **dict(zip(keywords, inputs[plain:], strict=True)))

    def _attribute(self, path: _Path) -> Any:
        if path.text in self.attributes:
            return self.attributes[path.text]
        value = self.read(path.text)
        return path if isinstance(value, torch.nn.Module) else value

    def _if(self, node: Any, condition: Any, values: dict[str, Any]) -> Any:
        block = list(node.blocks())[0 if condition else 1]
        self._block(block, values)
        results = [values[item.debugName()] for item in block.outputs()]
        return results[0] if len(results) == 1 else results

    def _loop(self, node: Any, inputs: list[Any], values: dict[str, Any]) -> Any:
        trips, condition, *carried = inputs
        body = next(iter(node.blocks()))
        names = [item.debugName() for item in body.inputs()]
        step = 0
        while condition and step < trips:
            values.update(zip(names, [step, *carried], strict=True))
            self._block(body, values)
            condition, *carried = [values[item.debugName()] for item in body.outputs()]
            step += 1
        return carried[0] if len(carried) == 1 else carried


def _operator(node: Any) -> Any:
    """The overload that the node's schema names: torch's own choice by arguments takes whole numbers for truth values."""
    namespace, _, name = node.kind().partition("::")
    schema = node.schema()
    if namespace == "prim" or schema.startswith("("):
        return None
    overload = schema.partition("(")[0].partition(".")[2] or "default"
    return getattr(getattr(getattr(torch.ops, namespace), name, None), overload, None)


class _Path:
    """A submodule by its path from the root."""

    def __init__(self, text: str) -> None:
        self.text = text

    def child(self, name: str) -> _Path:
        return _Path(f"{self.text}.{name}" if self.text else name)


def changed_attributes(graph: Any) -> list[str]:
    """Paths of the attributes that the graph assigns, in the order of their first assignment."""
    found: dict[str, None] = {}
    paths: dict[str, str] = {}

    def walk(block: Any) -> None:
        for node in block.nodes():
            if node.kind() == "prim::GetAttr":
                owner = paths.get(next(iter(node.inputs())).debugName(), "")
                paths[node.output().debugName()] = f"{owner}.{node.s('name')}" if owner else node.s("name")
            elif node.kind() == "prim::SetAttr":
                owner = paths.get(next(iter(node.inputs())).debugName(), "")
                found[f"{owner}.{node.s('name')}" if owner else node.s("name")] = None
            for inner in node.blocks():
                walk(inner)

    walk(graph)
    return list(found)
