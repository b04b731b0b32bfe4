"""PyTorch models: a factory's nn.Module, exported by torch.export and translated to Relax."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from numpy.typing import NDArray
from torch import nn

from pydoit.dims import extents_of_example
from pydoit.errors import ModelBuildError, StageError, UserError
from pydoit.importers import (
    import_report,
    random_weights,
    torch_decompositions,
    torch_graph,
    torch_ops,
    torch_report,
    torch_tree,
)
from pydoit.importers.imported import Imported, finish
from pydoit.importers.spec import ModelSpec
from pydoit.objects import did_you_mean, load_object
from pydoit.random_tensors import picture_like, random_sample

if TYPE_CHECKING:
    from pydoit.importers import Reference

Builder = Callable[[ModelSpec, Path], nn.Module]


class NamedOutputs(nn.Module):  # type: ignore[misc]
    """Calls the model with its inputs in the order of `inputs`, and its constants; returns the chosen outputs as a tuple.

    The inputs are positional, because torch.export takes no symbolic dimensions for keyword arguments of any name.
    """

    def __init__(self, model: nn.Module, inputs: Sequence[str], constants: dict[str, Any]) -> None:
        super().__init__()
        self.model = model
        self.inputs = tuple(inputs)
        self.constants = constants
        self.outputs: tuple[str, ...] = ()

    def named(self, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """Every output by name."""
        arguments = torch_tree.nest(dict(zip(self.inputs, inputs, strict=True)), argument_names(self.model))
        return dict(torch_tree.named_outputs(self.model(**arguments, **self.constants)))

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        named = self.named(*inputs)
        return tuple(named[name] for name in self.outputs)


def build(spec: ModelSpec, folder: Path) -> nn.Module:
    """Call the recipe's factory; raises UserError where it is missing or returns something else."""
    if spec.factory is None:
        raise UserError('model.factory: source = "torch" needs one; add factory = "module:callable"')
    factory = load_object(spec.factory, "model.factory")
    torch.manual_seed(0)
    model = factory(folder) if _takes_argument(factory) else factory()
    if not isinstance(model, nn.Module):
        raise UserError(f"model.factory: {spec.factory!r} returns {type(model).__name__}; return a torch.nn.Module")
    return model


def load(spec: ModelSpec, folder: Path, builder: Builder = build) -> Imported:
    """Export the model with its declared static shapes and translate it; parameters keep their state_dict names."""
    model, samples = prepare(spec, folder, builder)
    program = _program(model, samples, _dynamic_shapes(spec, samples))
    _refuse_mutation(program)
    missing = torch_report.unsupported(program, _known())
    if missing:
        raise import_report.error_of(missing)
    module = _translate(program)
    kinds = torch.export.graph_signature.InputKind
    signature = program.graph_signature.input_specs
    inputs = list(samples)
    stored = [item for item in signature if item.kind is kinds.PARAMETER]
    variables = dict(zip([item.target for item in stored], module["main"].params[len(inputs) :], strict=True))
    names = {str(target): str(target).removeprefix("model.") for target in variables}
    state = {names[str(target)]: program.state_dict[target].detach().numpy() for target in variables}
    return finish(module, inputs, model.outputs, state, {names[str(t)]: var for t, var in variables.items()}, spec)


def _dynamic_shapes(spec: ModelSpec, samples: dict[str, torch.Tensor]) -> dict[str, tuple[dict[int, Any], ...]] | None:
    """What torch.export wants to know of symbolic dimensions; None where all are static."""
    if not spec.dims:
        return None
    symbols = {name: torch.export.Dim(name, min=dim.min, max=dim.max) for name, dim in spec.dims.items()}
    shapes = [spec.inputs[name].shape for name in samples]
    return {"inputs": tuple({a: symbols[e] for a, e in enumerate(shape) if isinstance(e, str)} for shape in shapes)}


def unsupported(spec: ModelSpec, folder: Path, builder: Builder = build) -> list[import_report.Unsupported]:
    """Every operator of the model that cannot be imported; raises StageError where torch.export does not get that far."""
    model, samples = prepare(spec, folder, builder)
    return torch_report.unsupported(_program(model, samples, _dynamic_shapes(spec, samples)), _known())


def _program(model: NamedOutputs, samples: dict[str, torch.Tensor], dynamic_shapes: Any) -> torch.export.ExportedProgram:
    """The exported program with saved buffers as parameters and without assertions."""
    _buffers_to_parameters(model)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch 2.13 uses its own deprecated LeafSpec
        warnings.filterwarnings("ignore", "The tensor attributes", UserWarning)  # recurrent modules flatten their weights
        program = _export(model, samples, dynamic_shapes)
    torch_graph.remove_assertions(program)
    return program


def _export(model: nn.Module, samples: dict[str, torch.Tensor], dynamic_shapes: Any) -> torch.export.ExportedProgram:
    try:
        program = torch.export.export(model, tuple(samples.values()), dynamic_shapes=dynamic_shapes, strict=False)
        return program.run_decompositions(torch_decompositions.table(_known()))
    except ModelBuildError:
        raise
    except Exception as error:  # torch.export's errors share no base below Exception
        raise torch_report.export_error(error) from error


def _translate(program: Any) -> Any:
    """The exported program as Relax; what TVM's importer raises becomes one line."""
    from tvm.relax.frontend.torch import from_exported_program

    # TVM 0.27 copies every parameter into an attribute of `main`, which nobody reads and doubles the memory
    program.named_parameters = lambda: iter(())
    try:
        return from_exported_program(
            program, keep_params_as_input=True, run_ep_decomposition=False, custom_convert_map=torch_ops.convert_map()
        )
    except ModelBuildError:
        raise
    except Exception as error:  # TVM's importer raises what it happens to meet
        reason = next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)
        raise StageError(f"model: TVM's PyTorch importer fails ({reason}); write that part of the model otherwise") from error


def _refuse_mutation(program: Any) -> None:
    """A library has no state: a model that changes a buffer or an input while it runs gives other results each time."""
    kinds = torch.export.graph_signature.OutputKind
    changed = [
        str(item.target) for item in program.graph_signature.output_specs
        if item.kind in (kinds.BUFFER_MUTATION, kinds.USER_INPUT_MUTATION)
    ]  # fmt: skip
    if changed:
        raise UserError(f"model: forward changes {', '.join(changed)}; return the new value as an output instead")


def reference(spec: ModelSpec, folder: Path, builder: Builder = build) -> Reference:
    """The model in eager float32."""
    model, _ = prepare(spec, folder, builder)

    def run(inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        with torch.no_grad():
            results = model(*(torch.from_numpy(inputs[name]) for name in model.inputs))
        return {name: result.numpy() for name, result in zip(model.outputs, results, strict=True)}

    return run


def prepare(spec: ModelSpec, folder: Path, builder: Builder) -> tuple[NamedOutputs, dict[str, torch.Tensor]]:
    """The model as it is verified and exported, with one seeded input by name in the order of its `forward`."""
    model = builder(spec, folder).float().eval().requires_grad_(False)
    names = _input_order(model, spec)
    inputs = {name: spec.inputs[name] for name in names}
    if spec.weight_seed is not None:
        random_weights.fill(model, spec.weight_seed)
    extents = extents_of_example(spec.dims)
    if spec.calibrate_batch_norm:
        batches = [picture_like(inputs, spec.weight_seed or 0, i, extents) for i in range(spec.calibrate_batch_norm)]
        random_weights.calibrate_batch_norm(model, batches)
    sample = {n: torch.from_numpy(a) for n, a in random_sample(inputs, 0, 0, extents).items()}
    named = NamedOutputs(model, names, dict(spec.constants))
    named.outputs = _output_names(named, sample, spec.outputs)
    return named, sample


def argument_names(model: nn.Module) -> list[str]:
    """The named arguments of `forward`."""
    parameters = inspect.signature(model.forward).parameters
    return [n for n, p in parameters.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]


def _input_order(model: nn.Module, spec: ModelSpec) -> list[str]:
    """Declared inputs in the order of `forward`, so that their order in the recipe does not matter."""
    by_name = argument_names(model)
    owners = {name: torch_tree.parameter_of(name, by_name) for name in spec.inputs}
    for name, owner in owners.items():
        if by_name and owner not in by_name:  # many models also take **kwargs and ignore them
            raise UserError(f"model.inputs.{name}: the model takes no input {name!r}{did_you_mean(name, by_name)}")
    for name in spec.constants:
        if by_name and name not in by_name:
            raise UserError(f"model.constants.{name}: the model takes no input {name!r}{did_you_mean(name, by_name)}")
    parameters = inspect.signature(model.forward).parameters
    for name in by_name:
        needed = parameters[name].default is inspect.Parameter.empty
        if needed and name not in owners.values() and name not in spec.constants:
            raise UserError(f"model.inputs: the model also needs the input {name!r}; add [model.inputs.{name}]")
    known = [n for argument in by_name for n in spec.inputs if owners[n] == argument]
    return known + sorted(n for n in spec.inputs if n not in known)


def _output_names(model: NamedOutputs, sample: dict[str, torch.Tensor], wanted: tuple[str, ...] | None) -> tuple[str, ...]:
    try:
        with torch.no_grad():
            known = list(model.named(*sample.values()))
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError, KeyError) as error:
        declared = ", ".join(f"{name} {str(t.dtype)[6:]} {list(t.shape)}" for name, t in sample.items())
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(
            f"model.inputs: the model does not accept {declared} ({reason}); correct shape, dtype or range"
        ) from error
    if not known:
        raise UserError("model.outputs: the model returns no tensor; return a tensor, a tuple or a dict of them")
    for name in wanted or ():
        if name not in known:
            raise UserError(f"model.outputs: the model has no output {name!r}{did_you_mean(name, known)}")
    return wanted or tuple(known)


def _buffers_to_parameters(model: nn.Module) -> None:
    """Saved float buffers (batch-norm statistics) become parameters: TVM would embed buffers in the code."""
    saved = set(model.state_dict())
    for path, module in model.named_modules():
        for name, buffer in list(module.named_buffers(recurse=False)):
            if buffer.is_floating_point() and f"{path}.{name}" in saved:
                delattr(module, name)
                module.register_parameter(name, nn.Parameter(buffer, requires_grad=False))


def _known() -> set[str]:
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

    return {str(name) for name in ExportedProgramImporter().convert_map} | set(torch_ops.convert_map())


def _takes_argument(factory: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD, item.VAR_POSITIONAL) for item in parameters)
