"""Rounds a decoder's matrices layer by layer: each sees the calibration tokens through the layers rounded before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pydoit.errors import UserError
from pydoit.kernels.cpu.weight_format import Quantized, WeightFormat, dequantize
from pydoit.models.config import DecoderConfig
from pydoit.models.formats import weight_format
from pydoit.models.gptq import Compensated, compensate
from pydoit.models.parameters import Parameter, parameters
from pydoit.models.spec import WeightSpec

if TYPE_CHECKING:
    import torch

    Pieces = list[torch.Tensor]


@dataclass(frozen=True)
class Rounded:
    """A parameter's rounded matrix."""

    parameter: Parameter
    format: WeightFormat
    compensated: Compensated

    def blocks(self, sizes: Mapping[str, int]) -> dict[str, Quantized]:
        """By name of the checkpoint's tensor; `sizes` are their rows."""
        whole, first, found = self.compensated.quantized, 0, {}
        for source in self.parameter.sources:
            rows = slice(first, first + sizes[source])
            minimum = None if whole.minimum is None else whole.minimum[rows]
            found[source] = Quantized(whole.values[rows], whole.scale[rows], minimum)
            first = rows.stop
        return found


def round_layers(model: Any, config: DecoderConfig, kept: WeightSpec, pieces: Sequence[Any]) -> Iterator[Rounded]:
    """Every int4 matrix of a transformers model's layers, in the order of the computation; the model is changed with them.

    `pieces` are int64 token ids [tokens], all of one length. Raises UserError where their inputs are not finite.
    """
    import torch

    given = torch.stack([torch.as_tensor(piece, dtype=torch.int64) for piece in pieces])
    layers = model.model.layers
    with torch.inference_mode():
        arguments = _arguments(model, layers, given[:1])
        hidden = list(model.model.embed_tokens(given).split(1))
        for index, layer in enumerate(layers):
            run = partial(_outputs, layer, hidden, arguments[index])
            chosen = dict(_int4(config, kept, index))
            hessians = _hessians({parameter: _modules(model, parameter)[0] for parameter in chosen}, run)
            for parameter, form in chosen.items():
                yield _rounded(_modules(model, parameter), parameter, form, hessians.pop(parameter))
            hidden = run()


def _arguments(model: Any, layers: Sequence[Any], tokens: torch.Tensor) -> list[dict[str, Any]]:
    """What each layer is called with beside the hidden states: positions and masks, the same for all pieces."""
    found: list[dict[str, Any]] = []

    def note(_module: Any, _arguments: Any, named: dict[str, Any]) -> None:
        found.append(named)

    hooks = [layer.register_forward_pre_hook(note, with_kwargs=True) for layer in layers]
    try:
        model.model(input_ids=tokens, use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def _int4(config: DecoderConfig, kept: WeightSpec, layer: int) -> Iterator[tuple[Parameter, WeightFormat]]:
    for parameter in parameters(config):
        if parameter.kind in ("linear", "gated") and parameter.name.startswith(f"layers.{layer}."):
            chosen = weight_format(parameter, kept)
            if chosen.dtype == "int4":
                yield parameter, chosen


def _modules(model: Any, parameter: Parameter) -> list[Any]:
    return [model.get_submodule(source.removesuffix(".weight")) for source in parameter.sources]


def _rounded(modules: list[Any], parameter: Parameter, chosen: WeightFormat, hessian: torch.Tensor) -> Rounded:
    import torch

    weights = torch.cat([module.weight for module in modules]).numpy()
    try:
        found = compensate(chosen, weights, hessian)
    except UserError as error:
        raise UserError(f"quantization: {parameter.name}: {error}") from error
    rounded = torch.from_numpy(dequantize(found.quantized))
    for module, part in zip(modules, rounded.split([len(module.weight) for module in modules]), strict=True):
        module.weight.data = part.contiguous()
    return Rounded(parameter, chosen, found)


def _hessians(modules: Mapping[Parameter, Any], run: Callable[[], Any]) -> dict[Parameter, torch.Tensor]:
    """X^T X of the inputs X that each module gets in a run, float64; products of a piece are float32."""
    found: dict[Parameter, Any] = {}

    def add(parameter: Parameter, _module: Any, arguments: Any) -> None:
        rows = arguments[0].flatten(0, -2)
        found[parameter] = found.get(parameter, 0.0) + (rows.T @ rows).double()

    hooks = [module.register_forward_pre_hook(partial(add, parameter)) for parameter, module in modules.items()]
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    return found


def _outputs(layer: Any, pieces: Pieces, arguments: Mapping[str, Any]) -> Pieces:
    """A layer's hidden states, piece by piece; transformers before 5 returns them in a tuple."""
    found = (layer(piece, **arguments) for piece in pieces)
    return [result[0] if isinstance(result, tuple) else result for result in found]
