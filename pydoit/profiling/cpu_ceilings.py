"""Measures what this machine's CPUs can do: a small C++ program, and a chain of kernels that compute next to nothing."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from pydoit.errors import StageError
from pydoit.measure import sample_of

SOURCE = Path(__file__).with_name("ceilings.cc")
LARGEST_BYTES = 512 << 20
"""Working set that no cache holds."""
TIMEOUT_SECONDS = 300
LINKS = 64
SAMPLES = 200


def speeds(folder: Path, threads: int) -> dict[str, Any]:
    """`bandwidth`, `copy`, `flops` and `fork_seconds` of that many threads; raises StageError without a C++ compiler."""
    from pydoit.kernels.cxx import run_compiler

    program = folder / "ceilings"
    run_compiler(["-O3", "-march=native", "-std=c++17", "-pthread", str(SOURCE), "-o", str(program)], folder)
    command = [str(program), str(threads), str(LARGEST_BYTES)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS)
        found: dict[str, Any] = json.loads(done.stdout)
    except (ValueError, subprocess.SubprocessError) as error:
        raise StageError(f"calibrate: the measuring program failed ({error}); its log has more") from error
    return found


def call_seconds(folder: Path, threads: int) -> float:
    """Seconds from one kernel's call to the next that cannot be avoided, while work is handed to all threads."""
    import numpy as np

    from pydoit.runtime import library
    from pydoit.runtime.exchange import to_tensor

    library.set_threads(threads)
    path = folder / "chain.so"
    _compile_chain(path, threads)
    machine = library.open_machine(path)
    data = to_tensor(np.zeros(threads, np.float32), library.tvm_ffi())
    function = machine["main"]
    return min(sample_of(lambda: function(data), 1) for _ in range(SAMPLES)) / 1000.0 / LINKS


def _compile_chain(path: Path, threads: int) -> None:
    """A library whose `main` calls one parallel kernel again and again."""
    from pydoit.kernels.lowering import compile_module
    from pydoit.target import ResolvedTarget, make_tvm_target, resolve_arch
    from pydoit.tvm_compat import relax, te

    data = te.placeholder((threads,), "float32", "data")
    summed = te.compute((threads,), lambda i: data[i] + 1.0, "sum")
    function = te.create_prim_func([data, summed])
    builder = relax.BlockBuilder()
    given = relax.Var("data", relax.TensorType((threads,), "float32"))
    with builder.function("main", [given]):
        link = builder.add_func(_parallel(function), "link")
        value = given
        for _ in range(LINKS):
            value = builder.emit(relax.call_tir(link, [value], relax.TensorType((threads,), "float32")))
        builder.emit_func_output(value)
    target = make_tvm_target(ResolvedTarget(kind="cpu", arch=resolve_arch("cpu", "native")))
    with target:
        compile_module(builder.get(), target).export_library(str(path))


def _parallel(function: Any) -> Any:
    from pydoit.tvm_compat import Schedule

    schedule = Schedule(function)
    schedule.parallel(schedule.get_loops(schedule.get_sblock("sum"))[0])
    return schedule.mod["main"].without_attr("global_symbol").with_attr("tirx.is_scheduled", True)
