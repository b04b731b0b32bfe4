"""Symbolic dimensions: concrete shapes for samples, and what a library checks of the shapes that it is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydoit.importers.spec import Dim, Input

_EXAMPLES = (251, 241, 239, 233, 131, 127, 113, 109, 61, 59, 53, 47, 31, 29, 23, 19, 17, 13, 11, 7, 5, 3, 2)


def extents_of_sample(dims: Mapping[str, Dim], seed: int, index: int) -> dict[str, int]:
    """The extents of sample number `index`: the smallest of all, then the largest of all, then seeded random ones."""
    from pydoit.random_tensors import integers

    if index < 2:
        return {name: dim.max if index else dim.min for name, dim in dims.items()}
    return {name: int(integers(seed, f"{name}[{index}]", (1,), dim.min, dim.max)[0]) for name, dim in dims.items()}


def extents_of_example(dims: Mapping[str, Dim]) -> dict[str, int]:
    """Extents within the bounds for tracing: different primes where they fit, so that nothing holds by accident.

    They are large, because whatever a model shrinks to one element (a convolution, a pooling) is taken for fixed.
    """
    examples: dict[str, int] = {}
    for name, dim in dims.items():
        fitting = [value for value in _EXAMPLES if dim.min <= value <= dim.max and value not in examples.values()]
        examples[name] = fitting[0] if fitting else (dim.min + dim.max + 1) // 2
    return examples


def with_extents(inputs: Mapping[str, Input], extents: Mapping[str, int]) -> dict[str, Input]:
    """`inputs` with numbers in place of the symbolic dimensions' names."""
    return {name: item.model_copy(update={"shape": static_shape(item, extents)}) for name, item in inputs.items()}


def static_shape(item: Input, extents: Mapping[str, int]) -> tuple[int, ...]:
    """An input's shape, with `extents` in place of the symbolic dimensions' names."""
    return tuple(extents[extent] if isinstance(extent, str) else extent for extent in item.shape)


def bounds_of(dims: Mapping[str, Dim]) -> dict[str, tuple[int, int]]:
    """Name -> (smallest, largest) extent."""
    return {name: (dim.min, dim.max) for name, dim in dims.items()}


def mismatch(
    shape: Sequence[int],
    declared: Sequence[int | str],
    bounds: Mapping[str, tuple[int, int]],
    extents: dict[str, int],
) -> str | None:
    """Say why a shape is not the declared one, or None; `extents` collects the symbolic extents, one each for a call."""
    if len(shape) != len(declared):
        return f"has {len(shape)} axes, not {len(declared)}"
    for axis, (found, wanted) in enumerate(zip(shape, declared, strict=True)):
        if not isinstance(wanted, str):
            if found != wanted:
                return f"axis {axis} is {found}, not {wanted}"
            continue
        low, high = bounds[wanted]
        if not low <= found <= high:
            return f"axis {axis} ({wanted}) is {found}, not within {low}..{high}"
        if extents.setdefault(wanted, found) != found:
            return f"axis {axis} ({wanted}) is {found}, but {extents[wanted]} elsewhere"
    return None
