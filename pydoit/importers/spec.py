"""What a recipe says of a model's own definition: the part of `[model]` that import and verify read."""

from __future__ import annotations

from typing import Literal

from pydoit.frozen import Frozen

Source = Literal["torch", "transformers", "onnx", "torchscript"]


class Dim(Frozen):
    """The bounds of a symbolic dimension, both included."""

    min: int = 1
    """Smallest extent that the library serves."""
    max: int
    """Largest extent that the library serves."""


class Input(Frozen):
    """One input of the model."""

    shape: tuple[int | str, ...]
    """Extent of each axis: a whole number, or the name of a symbolic dimension."""
    dtype: str
    """NumPy's name of the element type: float32, int64, bool, ..."""
    range: tuple[float, float] | None = None
    """Values of seeded random inputs: floats in [low, high), integers in low..high (default: -1..1; 0..1)."""


class ModelSpec(Frozen):
    """A model's definition; its files come from the fetch stage or a local folder."""

    source: Source
    """The importer."""
    inputs: dict[str, Input]
    """The inputs by the model's own names."""
    factory: str | None = None
    """torch: `module:callable`; called with the model's folder (or with nothing), returns a torch.nn.Module."""
    auto_class: str = "AutoModel"
    """transformers: the Auto class that builds the model."""
    weights: str | None = None
    """`random:SEED`; none: as the factory, folder or file has them."""
    outputs: tuple[str, ...] | None = None
    """The outputs to keep, by the model's own names, in this order; none: all of them."""
    dims: dict[str, Dim] = {}
    """The symbolic dimensions by name."""
    constants: dict[str, bool | int | float | str] = {}
    """Inputs of the original model that are bound to a value and so are no inputs of the library."""
    trusted: bool = False
    """torchscript: the recipe's author says that the file, which is code, may be run."""
    calibrate_batch_norm: int | None = None
    """Set batch-norm statistics from this many seeded random inputs (for random weights)."""

    @property
    def weight_seed(self) -> int | None:
        """The seed of `random:SEED`, or None."""
        return None if self.weights is None else int(self.weights.removeprefix("random:"))
