"""What the schedules know about the target: vector width and number of vector registers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydoit.target import vector_lanes, vector_registers


@dataclass(frozen=True)
class Machine:
    """A CPU as the schedules see it; nothing in it depends on the machine that compiles."""

    lanes: int
    """fp32 values in a vector register."""
    registers: int
    """Vector registers; a register tile, its operands included, has to fit."""

    @classmethod
    def of(cls, tvm_target: Any) -> Machine:
        """Describe a TVM target made by `pydoit.target.make_tvm_target`."""
        return cls(vector_lanes(tvm_target), vector_registers(tvm_target))
