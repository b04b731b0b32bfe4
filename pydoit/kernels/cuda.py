"""Machine code for NVIDIA GPUs on machines that have none: DLight schedules, nvcc, Triton functions linked in."""

from __future__ import annotations

import contextlib
import ctypes
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydoit.errors import Deferred, StageError
from pydoit.kernels.cxx import ffi_folder, run_compiler
from pydoit.tools import cuda_toolkit

_DRIVER_FUNCTIONS = (
    "cuDeviceGetName", "cuFuncSetAttribute", "cuGetErrorName", "cuGetErrorString", "cuLaunchKernelEx", "cuModuleGetFunction",
    "cuModuleLoadData", "cuModuleUnload", "cuTensorMapEncodeTiled",
)  # fmt: skip
_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE


def find_toolkit() -> Path:
    """CUDA's folder; raises Deferred where there is none."""
    toolkit = cuda_toolkit()
    if toolkit is None:
        needs = "needs the CUDA toolkit (nvcc and headers, no GPU) to compile for this target; install it or set CUDA_HOME"
        raise Deferred(needs)
    return toolkit


def prepare(toolkit: Path, folder: Path) -> None:
    """Let TVM load its CUDA runtime in this process; call it before TVM is imported.

    Where libcuda.so.1 is missing, TVM 0.27 writes CUDA source into the library instead of machine code and says nothing.
    A stand-in whose functions report that there is no device is enough to compile.
    """
    os.environ["PATH"] = f"{toolkit / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    os.environ["TVM_CUDA_COMPILE_MODE"] = "nvcc"
    runtime = next(iter(sorted((toolkit / "lib64").glob("libcudart.so.*"))), None)
    if runtime is None:
        raise Deferred(f"needs libcudart.so of the CUDA toolkit in {toolkit.name}; install the runtime package")
    ctypes.CDLL(str(runtime), mode=ctypes.RTLD_GLOBAL)
    try:
        ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
    except OSError:
        ctypes.CDLL(str(_stand_in(folder)), mode=ctypes.RTLD_GLOBAL)


def _stand_in(folder: Path) -> Path:
    source, library = folder / "driver.c", folder / "libcuda.so.1"
    source.write_text("".join(f"int {name}(void) {{ return {_NO_DEVICE}; }}\n" for name in _DRIVER_FUNCTIONS))
    run_compiler(["-x", "c", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", source.name, "-o", library.name], folder)
    return library


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder for intermediate files; nothing of its name reaches the library."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def schedule_module(module: Any, target: Any) -> tuple[Any, dict[str, int]]:
    """Schedule every TIR function by DLight's rules for GPUs."""
    from pydoit.tvm_compat import dlight, tirx

    gpu = dlight.gpu
    rules = (gpu.Matmul(), gpu.GEMV(), gpu.Reduction(), gpu.GeneralReduction(), gpu.Fallback())
    with target:
        module = dlight.ApplyDefaultSchedule(*rules)(module)
    return module, {"functions": sum(isinstance(function, tirx.PrimFunc) for _, function in module.functions_items())}


def export(module: Any, target: Any, arch: str, toolkit: Path, folder: Path, library: Path) -> dict[str, Any]:
    """Compile a scheduled module with its Triton functions to `library`; raises StageError if it holds no machine code."""
    from pydoit.kernels.triton.build import build_object
    from pydoit.kernels.triton.launch import functions_of
    from pydoit.tvm_compat import tvm

    functions = functions_of(module)
    addons: list[str] = []
    report: list[dict[str, Any]] = []
    if functions:
        built, report = build_object(functions, arch, folder, toolkit / "include")
        addons = [str(built)]
    with target, tvm.transform.PassContext(config={"relax.backend.use_cuda_graph": True}):
        compiled = tvm.compile(module, target=target)
        linked = [f"-L{toolkit / 'lib64'}", "-lcudart", f"-L{ffi_folder() / 'lib'}", "-ltvm_ffi"]
        compiled.export_library(str(library), addons=addons, options=linked)
    if _holds_source(library):
        raise StageError("compile: the library holds CUDA source instead of machine code; check the CUDA toolkit")
    return {"triton": report}


def _holds_source(library: Path) -> bool:
    """Whether TVM embedded CUDA source, which the machine that loads the library would have to compile."""
    return b"__global__" in library.read_bytes()
