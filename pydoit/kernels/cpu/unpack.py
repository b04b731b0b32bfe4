"""Reads packed weights as vectors of float32: one vector of adjacent output channels for each k."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydoit.kernels.cpu.emit import argument, constant, convert, load, reinterpret
from pydoit.kernels.cpu.weight_format import WeightFormat, packed_tensors
from pydoit.tvm_compat import tirx

K_IN_WORD = {"float32": 1, "bfloat16": 2, "int8": 1, "int4": 8}
"""Values of k in one vector of stored words."""


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
        """Values of k that `word` returns."""
        return K_IN_WORD[self.weight_format.dtype]

    @property
    def group_size(self) -> int:
        """Values of k with the same scale; all where there are no groups."""
        return self.weight_format.group_size or self.depth

    def word(self, panel: Any, number: Any) -> list[Any]:
        """Return the `in_word` vectors of word `number` in ascending k, without their scale."""
        stored = load(self.tensors["weight"], [panel, number, 0], self.lanes)
        dtype = self.weight_format.dtype
        if dtype == "float32":
            return [stored]
        if dtype == "int8":
            return [convert(stored, "float32", self.lanes)]
        if dtype == "bfloat16":
            shift, mask = constant(16, self.lanes, "uint32"), constant(0xFFFF0000, self.lanes, "uint32")
            return [reinterpret(bits, "float32", self.lanes) for bits in (stored << shift, stored & mask)]
        return [self._nibble(stored, number) for number in range(8)]

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

    def _nibble(self, stored: Any, number: int) -> Any:
        shifted = stored >> constant(4 * number, self.lanes, "uint32") if number else stored
        lowest = -8 if self.weight_format.symmetric else 0
        if self.lanes == 16:  # a permutation of a table looks at the low four bits alone: no mask, no conversion
            table = [tirx.const(float(lowest + value), "float32") for value in range(16)]
            return _permute(table, shifted)
        value = reinterpret(shifted & constant(15, self.lanes, "uint32"), "int32", self.lanes)
        return convert(value + constant(lowest, self.lanes, "int32"), "float32", self.lanes)


def _permute(table: list[Any], index: Any) -> Any:
    vector = tirx.Shuffle(table, [tirx.const(lane, "int32") for lane in range(16)])
    return tirx.call_llvm_pure_intrin("float32x16", "llvm.x86.avx512.permvar.sf.512", vector, reinterpret(index, "int32", 16))
