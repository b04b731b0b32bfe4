"""Importers: a model's own format -> Relax with weights as parameters; one file a source."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydoit.errors import UserError
from pydoit.importers.spec import ModelSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from pydoit.importers.import_report import Unsupported
    from pydoit.importers.imported import Imported

    Reference = Callable[[dict[str, NDArray[Any]]], dict[str, NDArray[Any]]]

REFERENCES = {"torch": "torch", "transformers": "torch", "torchscript": "torch", "onnx": "onnxruntime"}
"""What each source's compiled model is compared with."""


def load(spec: ModelSpec, folder: Path) -> Imported:
    """Import the model whose files lie in `folder`."""
    return _module(spec).load(spec, folder)  # type: ignore[no-any-return]


def unsupported(spec: ModelSpec, folder: Path) -> list[Unsupported]:
    """Every operator of the model that cannot be imported, with its first use and what to try."""
    return _module(spec).unsupported(spec, folder)  # type: ignore[no-any-return]


def reference(spec: ModelSpec, folder: Path, kind: str | None = None) -> Reference:
    """A function from inputs by name to outputs by name that runs the original model in float32."""
    expected = REFERENCES[spec.source]
    if kind not in (None, expected):
        raise UserError(f"verify.reference: {kind!r} cannot run source {spec.source!r}; use {expected!r}")
    return _module(spec).reference(spec, folder)  # type: ignore[no-any-return]


def _module(spec: ModelSpec) -> Any:
    return importlib.import_module(f"pydoit.importers.{spec.source}")
