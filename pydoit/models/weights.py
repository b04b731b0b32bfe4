"""Streams a checkpoint into the library's layout: one parameter at a time, so that memory does not grow with the model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from numpy.typing import NDArray

from pydoit.models.checkpoint import Checkpoint
from pydoit.models.config import DecoderConfig
from pydoit.models.operators import Operators
from pydoit.models.parameters import Parameter, parameters


def described_weights(config: DecoderConfig, operators: Operators) -> list[dict[str, Any]]:
    """Name, shape and dtype of every tensor of model.safetensors, in the order in which `packed_weights` makes them."""
    return [
        {"name": f"{parameter.name}.{suffix}", "shape": list(shape), "dtype": dtype}
        for parameter in parameters(config)
        for suffix, (shape, dtype) in operators.tensors(parameter).items()
    ]


def packed_weights(
    config: DecoderConfig, operators: Operators, checkpoint: Checkpoint
) -> Iterator[tuple[str, NDArray[Any]]]:
    """Names and values, a parameter after the other."""
    for parameter in parameters(config):
        packed = operators.pack(parameter, [_read(checkpoint, parameter, source) for source in parameter.sources])
        for suffix in operators.tensors(parameter):
            yield f"{parameter.name}.{suffix}", packed[suffix]


def _read(checkpoint: Checkpoint, parameter: Parameter, source: str) -> Any:
    """The file's own quantized blocks where it has some, else float32."""
    blocks = checkpoint.blocks(source) if parameter.kind != "vector" else None
    return checkpoint.read(source) if blocks is None else blocks
