"""Compiles Triton functions for an architecture, with no GPU present, to one object file that a library links."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydoit.errors import StageError
from pydoit.kernels.triton.launch import Launch, TritonFunction, compute_capability, cpp_source, cubin_name
from pydoit.tools import compiler


def compile_launch(launch: Launch, arch: str) -> Any:
    """The compiled kernel: `.asm["cubin"]`, `.metadata`."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = launch.kernel.arg_names
    signature = {name: "constexpr" if name in launch.constants else launch.types[name] for name in names}
    constants = {(names.index(name),): value for name, value in launch.constants.items()}
    # Pointers come from allocators that align to 256 bytes, which vector loads rely on.
    aligned = {(names.index(name),): [["tt.divisibility", 16]] for name, kind in launch.types.items() if kind.startswith("*")}
    source = ASTSource(fn=launch.kernel, signature=signature, constexprs=constants, attrs=aligned)
    options = {"num_warps": launch.warps, "num_stages": launch.stages, "enable_fp_fusion": True}
    return triton.compile(source, target=GPUTarget("cuda", compute_capability(arch), 32), options=options)


def build_object(
    functions: Sequence[TritonFunction], arch: str, folder: Path, include: Path
) -> tuple[Path, list[dict[str, Any]]]:
    """Write an object file with the machine code of `functions` and their launchers; also registers and spills of each.

    `include` is CUDA's folder of headers. The bytes do not depend on `folder`.
    """
    os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")
    os.environ["TRITON_DISABLE_LINE_INFO"] = "1"  # paths of this machine would be in the code
    compiled: dict[tuple[str, int], Any] = {}
    report = []
    assembly = []
    for function in functions:
        for index, launch in enumerate(function.launches):
            kernel = compiled[function.symbol, index] = compile_launch(launch, arch)
            name = cubin_name(function.symbol, index)
            (folder / f"{name}.cubin").write_bytes(kernel.asm["cubin"])
            assembly.append(_embed(name))
            report.append({"kernel": name, "bytes": len(kernel.asm["cubin"]), "shared_bytes": int(kernel.metadata.shared)})
    (folder / "launchers.cc").write_text(cpp_source(list(functions), compiled), encoding="utf-8")
    (folder / "cubins.S").write_text("".join(assembly), encoding="utf-8")
    tvm_ffi = importlib.util.find_spec("tvm_ffi")
    assert tvm_ffi is not None
    assert tvm_ffi.origin is not None
    headers = Path(tvm_ffi.origin).parent / "include"
    common = ["-c", "-fPIC", "-O2"]
    _run([*common, "-std=c++17", f"-I{headers}", f"-I{include}", "launchers.cc", "-o", "launchers.o"], folder)
    _run([*common, "cubins.S", "-o", "cubins.o"], folder)
    _run(["-r", "-nostdlib", "launchers.o", "cubins.o", "-o", "triton_functions.o"], folder)
    return folder / "triton_functions.o", report


def _embed(name: str) -> str:
    symbol = f"__tvm_ffi__cubin_{name}"
    return (
        f'.section .rodata\n.balign 64\n.globl {symbol}\n.hidden {symbol}\n{symbol}:\n.incbin "{name}.cubin"\n'
        f'.globl {symbol}_end\n.hidden {symbol}_end\n{symbol}_end:\n.section .note.GNU-stack,"",@progbits\n'
    )


def _run(arguments: list[str], folder: Path) -> None:
    path = compiler()
    if path is None:
        raise StageError("compile: there is no C++ compiler; install g++ or set CXX")
    result = subprocess.run([path, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        lines = [line for line in result.stderr.splitlines() if "error" in line] or ["it failed"]
        raise StageError(f"compile: the C++ compiler says {lines[0][:300]}; its log has more")
