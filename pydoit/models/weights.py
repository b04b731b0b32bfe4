"""Streams a checkpoint into the library's layout, some rows at a time, so that memory does not grow with the model."""

from __future__ import annotations

import math
import os
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from pydoit.models.checkpoint import ALL, Checkpoint
from pydoit.models.config import DecoderConfig
from pydoit.models.operators import Operators
from pydoit.models.parameters import Parameter, parameters
from pydoit.weight_file import Piece

PART_BYTES = 1 << 28
"""Float32 bytes that are packed at once; rows of more than that are packed in parts."""
ROW_UNIT = 128
"""Rows of a part are a multiple of this: whole panels for every kernel, whole counters of random values."""
IN_FLIGHT_BYTES = 2 * PART_BYTES
"""Float32 bytes of the parts that are worked on at the same time; a larger one is worked on alone."""


@dataclass(frozen=True)
class Part:
    """Rows of a parameter that are packed at once."""

    parameter: Parameter
    """With the extents of the part."""
    rows: slice
    """Those of the source."""
    first: Mapping[str, int]
    """Suffix of a tensor's name -> where the part begins on its first axis."""

    @property
    def bytes(self) -> int:
        return 4 * math.prod(self.parameter.shape)


def described_weights(config: DecoderConfig, operators: Operators) -> list[dict[str, Any]]:
    """Name, shape and dtype of every tensor of model.safetensors."""
    return [
        {"name": f"{parameter.name}.{suffix}", "shape": list(shape), "dtype": dtype}
        for parameter in parameters(config)
        for suffix, (shape, dtype) in operators.tensors(parameter).items()
    ]


def packed_weights(config: DecoderConfig, operators: Operators, checkpoint: Checkpoint) -> Iterator[Piece]:
    """Pieces of those tensors, in the order in which they are ready; NumPy works on several at a time."""
    waiting = [part for parameter in parameters(config) for part in _parts(parameter, operators)][::-1]
    running: dict[Future[dict[str, NDArray[Any]]], Part] = {}
    guard = threading.Lock()

    def make(part: Part) -> dict[str, NDArray[Any]]:
        sources = [_read(checkpoint, part, source, guard) for source in part.parameter.sources]
        return operators.pack(part.parameter, sources)

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        while waiting or running:
            while waiting and _fits(waiting[-1], list(running.values())):
                part = waiting.pop()
                running[pool.submit(make, part)] = part
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                part, packed = running.pop(future), future.result()
                for suffix, first in part.first.items():
                    yield Piece(f"{part.parameter.name}.{suffix}", packed[suffix], first)
                # Neither name may keep the arrays alive while the next ones are made.
                del future, packed


def _parts(parameter: Parameter, operators: Operators) -> Iterator[Part]:
    """The parameter, or parts of its rows where it is one matrix of the checkpoint (the largest are)."""
    count, *rest = parameter.shape
    step = count
    if rest and len(parameter.sources) == 1:
        step = max(1, PART_BYTES // (4 * math.prod(rest)) // ROW_UNIT) * ROW_UNIT
    first: dict[str, int] = defaultdict(int)
    for start in range(0, count, step):
        size = min(step, count - start)
        part = replace(parameter, shape=(size, *rest))
        tensors = operators.tensors(part)
        rows = ALL if size == count else slice(start, start + size)
        yield Part(part, rows, {suffix: first[suffix] for suffix in tensors})
        for suffix, (shape, _) in tensors.items():
            first[suffix] += shape[0]


def _fits(part: Part, running: list[Part]) -> bool:
    return not running or sum(item.bytes for item in (*running, part)) <= IN_FLIGHT_BYTES


def _read(checkpoint: Checkpoint, part: Part, source: str, guard: threading.Lock) -> Any:
    """The file's own quantized blocks where it has some, else float32."""
    with guard:
        blocks = checkpoint.blocks(source, part.rows) if part.parameter.kind != "vector" else None
    return checkpoint.read(source, part.rows) if blocks is None else blocks
