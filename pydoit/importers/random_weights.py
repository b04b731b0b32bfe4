"""Seeded random weights for architectures without free ones: equal on every machine, and outputs that differ."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pydoit import random_tensors
from pydoit.errors import UserError

if TYPE_CHECKING:
    import torch

_STATISTIC_BITS = 10  # float64 sums differ between machines in the last bits; 10 leading ones do not


def fill(model: torch.nn.Module, seed: int) -> None:
    """Overwrite every float tensor of the state dict from (seed, its name).

    Matrices and convolutions are uniform with He's variance 2 / fan_in (He et al., 2015), embeddings with variance 1;
    norms get weight 1, bias 0, running mean 0 and variance 1; other vectors (biases) get 0.
    """
    import torch

    norms = _norm_names(model)
    embeddings = {name for name, module in model.named_modules() if isinstance(module, torch.nn.Embedding)}
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                owner, _, leaf = name.rpartition(".")
                filled = values(seed, name, leaf, tuple(tensor.shape), owner in norms, owner in embeddings)
                tensor.copy_(torch.from_numpy(filled))


def values(
    seed: int, name: str, leaf: str, shape: tuple[int, ...], is_norm: bool, is_embedding: bool, first: int = 0
) -> NDArray[np.float32]:
    """The values of the tensor called `name`, whose last part is `leaf`; of a matrix `shape` may be rows from `first` on."""
    if len(shape) < 2:
        one = is_norm and leaf in ("weight", "running_var")
        return np.full(shape, 1.0 if one else 0.0, dtype=np.float32)
    variance = 1.0 if is_embedding else 2.0 / math.prod(shape[1:])
    bound = math.sqrt(3.0 * variance)
    return random_tensors.uniform(seed, name, shape, -bound, bound, first * math.prod(shape[1:]))


def _norm_names(model: torch.nn.Module) -> set[str]:
    """Modules whose class says that they normalize (nn.BatchNorm2d, nn.LayerNorm, LlamaRMSNorm, ...)."""
    return {name for name, module in model.named_modules() if "norm" in type(module).__name__.lower()}


def calibrate_batch_norm(model: torch.nn.Module, batches: list[dict[str, NDArray[np.generic]]]) -> None:
    """Set every batch norm's statistics to those of its input over `batches`, in float64, rounded to 10 bits.

    Without this, a deep net of random weights saturates and gives one output for all inputs. `model` stays float32.
    """
    import torch

    merged = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    arguments = {name: _as_double(torch.from_numpy(array)) for name, array in merged.items()}
    normalizers = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d)
    layers = [module for module in model.modules() if isinstance(module, normalizers)]
    hooks = [layer.register_forward_pre_hook(_set_statistics) for layer in layers]
    model.double()
    try:
        with torch.no_grad():
            model(**arguments)
    except (RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"model.calibrate_batch_norm: the model does not take {len(batches)} inputs stacked on their first axis "
            f"({reason}); correct the inputs or leave it out"
        ) from error
    finally:
        for hook in hooks:
            hook.remove()
        model.float()


def _set_statistics(layer: torch.nn.Module, arguments: tuple[torch.Tensor, ...]) -> None:
    axes = [axis for axis in range(arguments[0].dim()) if axis != 1]
    mean = arguments[0].mean(axes)
    variance = arguments[0].var(axes, unbiased=False)
    for buffer, value in ((layer.running_mean, mean), (layer.running_var, variance)):
        buffer.copy_(_round(value.clamp_min(1e-6) if buffer is layer.running_var else value))


def _round(values: torch.Tensor) -> torch.Tensor:
    mantissa, exponent = values.frexp()
    return (mantissa * 2**_STATISTIC_BITS).round().ldexp(exponent - _STATISTIC_BITS)


def _as_double(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor
