"""What differs in two files that should be the same: sections and functions of a library, tensors, keys, or bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydoit.keys import changes

MOST = 20
"""Lines about one file."""


def differences(first: Path, second: Path) -> list[str]:
    """Lines about what differs, from coarse to fine; empty for equal files."""
    one, two = first.read_bytes(), second.read_bytes()
    if one == two:
        return []
    lines = list(_lines(first.suffix, one, two)) or [counted(one, two)]
    return [*lines[:MOST], *([f"and {len(lines) - MOST} more"] if len(lines) > MOST else [])]


def _lines(suffix: str, one: bytes, two: bytes) -> Iterator[str]:
    if one.startswith(b"\x7fELF") and two.startswith(b"\x7fELF"):
        from pydoit.reproduce.elf import elf_differences

        yield from elf_differences(one, two)
    elif suffix == ".safetensors":
        yield from _tensors(one, two)
    elif suffix == ".json":
        yield from (str(change) for change in changes({"": json.loads(one)}, {"": json.loads(two)}))


def _tensors(one: bytes, two: bytes) -> Iterator[str]:
    before, after = _parse(one), _parse(two)
    for name in sorted({*before, *after}):
        if before.get(name) == after.get(name):
            continue
        if name not in before or name not in after:
            yield f"tensor {name}: only one of the builds has it"
        elif before[name][0] != after[name][0]:
            yield f"tensor {name}: {before[name][0]} and {after[name][0]}"
        else:
            yield f"tensor {name}: {counted(before[name][1], after[name][1])}"


def _parse(data: bytes) -> dict[str, tuple[Any, bytes]]:
    """Name -> (dtype and shape, bytes) of a safetensors file."""
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    return {
        name: (f"{item['dtype']} {item['shape']}", data[start + item["data_offsets"][0] : start + item["data_offsets"][1]])
        for name, item in header.items()
    }


def counted(one: bytes, two: bytes) -> str:
    """How many bytes differ, and where the first is."""
    import numpy as np

    shared = min(len(one), len(two))
    unequal = np.frombuffer(one, np.uint8, shared) != np.frombuffer(two, np.uint8, shared)
    first = int(unequal.argmax()) if unequal.any() else shared
    sizes = (
        f"{np.count_nonzero(unequal)} of {len(one)} bytes differ"
        if len(one) == len(two)
        else f"{len(one)} and {len(two)} bytes"
    )
    return f"{sizes}, the first at offset {first:#x}"
