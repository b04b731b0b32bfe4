"""Streams a checkpoint into the library's layout, a few parameters at a time, so that memory does not grow with the model."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from numpy.typing import NDArray

from pydoit.models.checkpoint import Checkpoint
from pydoit.models.config import DecoderConfig
from pydoit.models.operators import Operators
from pydoit.models.parameters import Parameter, parameters

IN_FLIGHT_BYTES = 1 << 30
"""Float32 bytes of the parameters that are worked on at the same time; a larger one is worked on alone."""

Packed = dict[str, NDArray[Any]]


def described_weights(config: DecoderConfig, operators: Operators) -> list[dict[str, Any]]:
    """Name, shape and dtype of every tensor of model.safetensors."""
    return [
        {"name": f"{parameter.name}.{suffix}", "shape": list(shape), "dtype": dtype}
        for parameter in parameters(config)
        for suffix, (shape, dtype) in operators.tensors(parameter).items()
    ]


def packed_weights(config: DecoderConfig, operators: Operators, checkpoint: Checkpoint) -> Iterator[tuple[str, NDArray[Any]]]:
    """Names and values of those tensors, in the order in which they are ready; NumPy works on several at a time."""
    waiting = list(parameters(config))[::-1]
    running: dict[Future[Packed], Parameter] = {}
    guard = threading.Lock()

    def make(parameter: Parameter) -> Packed:
        sources = [_read(checkpoint, parameter, source, guard) for source in parameter.sources]
        return operators.pack(parameter, sources)

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        while waiting or running:
            while waiting and _fits(waiting[-1], list(running.values())):
                parameter = waiting.pop()
                running[pool.submit(make, parameter)] = parameter
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                parameter, packed = running.pop(future), future.result()
                for suffix in operators.tensors(parameter):
                    yield f"{parameter.name}.{suffix}", packed[suffix]


def _fits(parameter: Parameter, running: list[Parameter]) -> bool:
    return not running or 4 * sum(math.prod(item.shape) for item in (*running, parameter)) <= IN_FLIGHT_BYTES


def _read(checkpoint: Checkpoint, parameter: Parameter, source: str, guard: threading.Lock) -> Any:
    """The file's own quantized blocks where it has some, else float32."""
    with guard:
        blocks = checkpoint.blocks(source) if parameter.kind != "vector" else None
    return checkpoint.read(source) if blocks is None else blocks
