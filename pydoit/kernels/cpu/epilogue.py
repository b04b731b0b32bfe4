"""What happens to finished sums before they are stored: bias, residual, gated SiLU, and rows that end within a vector."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydoit.kernels.cpu.emit import conditional, load, store
from pydoit.kernels.vector_math import silu
from pydoit.tvm_compat import script, tirx


@dataclass(frozen=True)
class Epilogue:
    """Stores sums of one panel, or of a gate panel and an up panel, into a row of the result."""

    out: Any
    """float32 [rows, columns]"""
    lanes: int
    bias: Any = None
    """float32 [n] in the order of the packed channels, or None."""
    residual: Any = None
    gated: bool = False

    def store(self, row: Any, panel: Any, first: Any, second: Any) -> None:
        """Finish the vectors of panels `panel` and `panel + 1` (an even and the next one) of a row."""
        if self.gated:
            column = tirx.indexdiv(panel, 2) * self.lanes
            self._store(row, column, lambda index, lanes: silu(first(index, lanes)) * second(index, lanes))
            return
        self._store(row, panel * self.lanes, first)
        self._store(row, panel * self.lanes + self.lanes, second)

    def _store(self, row: Any, column: Any, value: Callable[[Any, int], Any]) -> None:
        columns = int(self.out.shape[1])

        def finish(offset: Any, lanes: int) -> None:
            result = value(offset, lanes)
            for operand, index in ((self.bias, [column + offset]), (self.residual, [row, column + offset])):
                if operand is not None:
                    result = result + load(operand, index, lanes)
            store(self.out, result, [row, column + offset], lanes)

        def rest() -> None:
            with script.serial(0, tirx.max(columns - column, 0)) as offset:
                finish(offset, 1)

        if columns % self.lanes == 0 and (columns // self.lanes) % 2 == 0:
            finish(0, self.lanes)
        else:
            conditional(column + self.lanes <= columns, lambda: finish(0, self.lanes), rest)
