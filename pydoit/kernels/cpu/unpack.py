"""Reads packed weights as vectors of float32: one vector of adjacent output channels for each k."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydoit.kernels.cpu.emit import argument, constant, convert, load, reinterpret
from pydoit.kernels.cpu.weight_format import K_IN_WORD, WeightFormat, packed_tensors
from pydoit.tvm_compat import script


@dataclass(frozen=True)
class PackedWeights:
    """The arguments of a function that hold one packed weight matrix."""

    weight_format: WeightFormat
    depth: int
    """k of the matrix, without padding."""
    lanes: int
    tensors: dict[str, Any]
    """Buffers by the names of `packed_tensors`."""

    @classmethod
    def declare(cls, weight_format: WeightFormat, n: int, k: int, lanes: int) -> PackedWeights:
        """Declare the next arguments of the function that is being built."""
        wanted = packed_tensors(weight_format, n, k, lanes)
        return cls(weight_format, k, lanes, {name: argument(name, shape, dtype) for name, (shape, dtype) in wanted.items()})

    @property
    def panels(self) -> int:
        """Number of stored panels, an even one."""
        return int(self.tensors["weight"].shape[0])

    @property
    def in_word(self) -> int:
        """Values of k that `word` and `pairs` return."""
        return K_IN_WORD[self.weight_format.dtype]

    @property
    def group_size(self) -> int:
        """Values of k with the same scale; all where there are no groups."""
        return self.weight_format.group_size or self.depth

    def word(self, panel: Any, number: Any) -> list[Any]:
        """Return the `in_word` float32 vectors of word `number` in ascending k; float32 and bfloat16 only."""
        stored = load(self.tensors["weight"], [panel, number, 0], self.lanes)
        if self.weight_format.dtype == "float32":
            return [stored]
        shift, mask = constant(16, self.lanes, "uint32"), constant(0xFFFF0000, self.lanes, "uint32")
        return [reinterpret(bits, "float32", self.lanes) for bits in (stored << shift, stored & mask)]

    def pairs(self, panel: Any, number: Any) -> list[Any]:
        """Return the int32 vectors of word `number`, two int16 of adjacent k in each lane; int8 and int4 only."""
        if self.weight_format.dtype == "int8":
            stored = load(self.tensors["weight"], [panel, number, 0], 2 * self.lanes)
            return [reinterpret(convert(stored, "int16", 2 * self.lanes), "int32", self.lanes)]
        stored = script.bind(load(self.tensors["weight"], [panel, number, 0], self.lanes))
        mask = constant(0x000F000F, self.lanes, "uint32")
        shifted = [stored >> constant(4 * pair, self.lanes, "uint32") if pair else stored for pair in range(4)]
        return [reinterpret(bits & mask, "int32", self.lanes) for bits in shifted]

    def scale(self, panel: Any, group: Any) -> Any:
        """Return the scales of a group, or None."""
        return self._factor("scale", panel, group)

    def minimum(self, panel: Any, group: Any) -> Any:
        """Return the minima of a group, or None."""
        return self._factor("minimum", panel, group)

    def _factor(self, name: str, panel: Any, group: Any) -> Any:
        if name not in self.tensors:
            return None
        stored = load(self.tensors[name], [panel, group, 0], self.lanes)
        return stored if self.weight_format.scale_dtype == "float32" else convert(stored, "float32", self.lanes)
