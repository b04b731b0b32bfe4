"""Compiles Triton functions for an architecture, with no GPU present, to one object file that a library links."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydoit.kernels.cxx import ffi_folder, run_compiler
from pydoit.kernels.triton.launch import Launch, TritonFunction, compute_capability, cpp_source, cubin_name


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
    headers = ffi_folder() / "include"
    common = ["-c", "-fPIC", "-O2"]
    run_compiler([*common, "-std=c++17", f"-I{headers}", f"-I{include}", "launchers.cc", "-o", "launchers.o"], folder)
    run_compiler([*common, "cubins.S", "-o", "cubins.o"], folder)
    run_compiler(["-r", "-nostdlib", "launchers.o", "cubins.o", "-o", "triton_functions.o"], folder)
    return folder / "triton_functions.o", report


def _embed(name: str) -> str:
    symbol = f"__tvm_ffi__cubin_{name}"
    return (
        f'.section .rodata\n.balign 64\n.globl {symbol}\n.hidden {symbol}\n{symbol}:\n.incbin "{name}.cubin"\n'
        f'.globl {symbol}_end\n.hidden {symbol}_end\n{symbol}_end:\n.section .note.GNU-stack,"",@progbits\n'
    )
