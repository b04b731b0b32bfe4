"""TorchScript archives (.jit, .pt): run by our interpreter under torch.export; hidden state becomes inputs and outputs."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from numpy.typing import NDArray
from torch import nn

from pydoit.errors import UserError
from pydoit.importers import torch as torch_importer
from pydoit.importers import torch_tree
from pydoit.importers.import_report import Unsupported
from pydoit.importers.imported import Imported
from pydoit.importers.spec import ModelSpec
from pydoit.importers.torchscript_graph import Interpreter, changed_attributes
from pydoit.random_tensors import random_sample

if TYPE_CHECKING:
    from pydoit.importers import Reference

SUFFIXES = (".jit", ".pt", ".pth", ".ts", ".torchscript")


class ScriptedModel(nn.Module):  # type: ignore[misc]
    """A TorchScript module as an ordinary one, with the same names of parameters.

    A tensor that its `forward` assigns to an attribute is an input and an output of that attribute's name (dots become
    underscores). Other assigned values, such as counters, have their initial value in every call.
    """

    def __init__(self, scripted: Any) -> None:
        super().__init__()
        self.scripted = (scripted,)  # in a tuple: no submodule, so that its parameters are registered once
        self.graph = (scripted.inlined_graph,)
        for name, value in scripted.named_parameters():
            _register(self, name, nn.Parameter(value.detach(), requires_grad=False))
        for name, value in scripted.named_buffers():
            _register(self, name, value.detach())
        self.state = {name.replace(".", "_"): name for name in state_of(scripted)}
        arguments = [item.name for item in scripted.forward.schema.arguments[1:]]
        optional = {item.name: item.default_value for item in scripted.forward.schema.arguments if item.has_default_value()}
        self.optional = optional

        def forward(**inputs: Any) -> Any:
            return self.interpret(inputs)

        forward.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=optional.get(name, inspect.Parameter.empty))
                for name in [*arguments, *self.state]
            ]
        )
        self.forward = forward

    def interpret(self, inputs: dict[str, Any]) -> Any:
        """The outputs by name, the state's new values among them."""
        state = {path: inputs[name] for name, path in self.state.items()}
        arguments = {**self.optional, **{name: value for name, value in inputs.items() if name not in self.state}}
        interpreter = Interpreter(self._read, state)
        result = dict(torch_tree.named_outputs(interpreter.run(self.graph[0], arguments)))
        return {**result, **{name: interpreter.attributes[path] for name, path in self.state.items()}}

    def _read(self, path: str) -> Any:
        value: Any = self
        for name in path.split("."):
            value = getattr(value, name, None)
            if value is None:
                break
        if isinstance(value, torch.Tensor):
            return value
        return _get(self.scripted[0], path)


def build(spec: ModelSpec, folder: Path) -> nn.Module:
    """The archive in the folder; raises UserError where it is not trusted, damaged, or keeps state that is not declared."""
    scripted = _load(spec, folder)
    undeclared = [name for name in state_of(scripted) if name.replace(".", "_") not in spec.inputs]
    if undeclared:
        raise UserError(f"model.inputs: the module keeps state between calls; {_proposal(scripted, spec, undeclared)}")
    return ScriptedModel(scripted)


def load(spec: ModelSpec, folder: Path) -> Imported:
    """Import through torch.export."""
    return torch_importer.load(spec, folder, build)


def unsupported(spec: ModelSpec, folder: Path) -> list[Unsupported]:
    """Every operator of the model that cannot be imported."""
    return torch_importer.unsupported(spec, folder, build)


def reference(spec: ModelSpec, folder: Path) -> Reference:
    """TorchScript's own runtime in float32; the state is set before each call and read after it."""
    named, _ = torch_importer.prepare(spec, folder, build)
    scripted = _load(spec, folder)
    state = {name.replace(".", "_"): name for name in state_of(scripted)}
    numbers = {name: _get(scripted, name) for name in changed_attributes(scripted.inlined_graph) if name not in state.values()}

    def run(inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        tensors = {name: torch.from_numpy(array) for name, array in inputs.items()}
        for name, value in numbers.items():
            _set(scripted, name, value)
        for name, path in state.items():
            _set(scripted, path, tensors.pop(name))
        with torch.no_grad():
            results = dict(torch_tree.named_outputs(scripted(**tensors, **spec.constants)))
        results |= {name: _get(scripted, path) for name, path in state.items()}
        return {name: results[name].numpy() for name in named.outputs}

    return run


def state_of(scripted: Any) -> list[str]:
    """Paths of the tensors that `forward` assigns to attributes."""
    return [name for name in changed_attributes(scripted.inlined_graph) if isinstance(_get(scripted, name), torch.Tensor)]


def _load(spec: ModelSpec, folder: Path) -> Any:
    if not spec.trusted:
        raise UserError("model.trusted: a TorchScript file is a program; set model.trusted = true if you trust its author")
    files = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES)
    if len(files) != 1:
        listed = ", ".join(path.name for path in files) or "none"
        raise UserError(f"model.path: expected one TorchScript file ({', '.join(SUFFIXES)}) in the folder, found {listed}")
    try:
        return torch.jit.load(str(files[0]), map_location="cpu").eval().float()
    except (RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"model.path: {files[0].name!r} is no TorchScript archive ({reason}); save it by torch.jit") from error


def _proposal(scripted: Any, spec: ModelSpec, undeclared: list[str]) -> str:
    """What to declare: the shapes that the state has after a call without it."""
    sample = {name: torch.from_numpy(array) for name, array in random_sample(spec.inputs, 0, 0).items()}
    try:
        with torch.no_grad():
            scripted(**sample, **spec.constants)
    except (RuntimeError, ValueError, TypeError) as error:
        reason = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
        return f"declare {', '.join(undeclared)} as inputs, and make the others fit (a call fails: {reason})"
    found = {name: _get(scripted, name) for name in undeclared}
    tables = [
        f"[model.inputs.{n.replace('.', '_')}] shape = {list(v.shape)}, dtype = {str(v.dtype)[6:]!r}" for n, v in found.items()
    ]
    return "declare it as inputs, which are also outputs of the same name: " + "; ".join(tables)


def _register(root: nn.Module, path: str, value: torch.Tensor) -> None:
    *owners, leaf = path.split(".")
    module = root
    for owner in owners:
        if not hasattr(module, owner):
            module.add_module(owner, nn.Module())
        module = getattr(module, owner)
    if isinstance(value, nn.Parameter):
        module.register_parameter(leaf, value)
    else:
        module.register_buffer(leaf, value)


def _get(root: Any, path: str) -> Any:
    for name in path.split("."):
        root = getattr(root, name)
    return root


def _set(root: Any, path: str, value: Any) -> None:
    owner, _, leaf = path.rpartition(".")
    setattr(_get(root, owner) if owner else root, leaf, value)
