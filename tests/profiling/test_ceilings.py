"""The program that measures a CPU's ceilings compiles for CPUs other than the one at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from pydoit.kernels.cxx import run_compiler
from pydoit.profiling.cpu_ceilings import SOURCE


@pytest.mark.parametrize("arch", ["x86-64", "haswell", "skylake-avx512", "sapphirerapids"])
def test_it_compiles_for(arch: str, tmp_path: Path) -> None:
    run_compiler(["-O1", f"-march={arch}", "-std=c++17", "-pthread", "-c", str(SOURCE), "-o", "ceilings.o"], tmp_path)
    assert (tmp_path / "ceilings.o").stat().st_size > 1000
