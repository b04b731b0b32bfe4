"""Reads a checkpoint's tensors without running code from it: safetensors, or torch's weights-only loader."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from pydoit.errors import UserError

if TYPE_CHECKING:
    import torch

SUFFIXES = (".safetensors", ".pth", ".pt", ".bin")


def read(path: Path) -> dict[str, torch.Tensor]:
    """The state dict in `path`; raises UserError for a missing file, another format or a pickle with code."""
    import torch

    if not path.is_file():
        raise UserError(f"model.path: {path.name!r} is not in the model's folder{_present(path.parent)}")
    if path.suffix not in SUFFIXES:
        raise UserError(f"model.path: {path.name!r} is no checkpoint; use one of {', '.join(SUFFIXES)}")
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about pickle protocols that are refused anyway
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"model.path: {path.name!r} is refused: it is damaged or would run code when loaded ({reason}); "
            "save a plain state_dict, best as safetensors"
        ) from error
    state = loaded.get("state_dict", loaded) if isinstance(loaded, dict) else None
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise UserError(f"model.path: {path.name!r} holds no state_dict (names to tensors); save one")
    return state


def _read_safetensors(path: Path) -> dict[str, torch.Tensor]:
    import safetensors
    from safetensors.torch import load_file

    try:
        return dict(load_file(path))
    except safetensors.SafetensorError as error:
        raise UserError(f"model.path: {path.name!r} is no valid safetensors file ({error}); save it again") from error


def load_into(model: torch.nn.Module, path: Path) -> None:
    """Load the checkpoint into `model`; every name and shape must match."""
    try:
        model.load_state_dict(read(path), strict=True)
    except RuntimeError as error:
        lines = [line.strip() for line in str(error).splitlines()[1:]]
        raise UserError(f"model.path: {path.name!r} does not fit the model: {' '.join(lines)[:500]}") from error


def _present(folder: Path) -> str:
    found = sorted(child.name for child in folder.glob("*") if child.suffix in SUFFIXES)
    return f"; it has {', '.join(found)}" if found else ""
