"""The door to TVM's runtime: tvm_ffi and libtvm_runtime, without the compiler and without importing torch."""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import os
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pydoit.errors import UserError

_CPU = 1  # DLPack's kDLCPU
_POOLED_ALLOCATOR = 2
_loads = itertools.count()
_BIG_CORES = 1  # runtime.config_threadpool's affinity mode


@cache
def tvm_ffi() -> Any:
    """The tvm_ffi module with TVM's runtime library loaded.

    tvm_ffi 0.1.14 imports torch when it is installed (for an old Windows conflict and a faster DLPack of torch
    tensors): seconds and hundreds of megabytes that a model does not need, so torch is hidden meanwhile.
    """
    if "tvm_ffi" in sys.modules or "torch" in sys.modules:
        import tvm_ffi as module
    else:
        sys.modules["torch"] = None  # type: ignore[assignment]
        try:
            import tvm_ffi as module
        finally:
            del sys.modules["torch"]
    _load_runtime_library()
    return module


def _load_runtime_library() -> None:
    if "tvm" in sys.modules:
        return
    package = importlib.util.find_spec("tvm")
    if package is None or not package.submodule_search_locations:
        raise ImportError("apache-tvm is not installed: it holds libtvm_runtime, which runs the model")
    library = Path(package.submodule_search_locations[0]) / "lib" / "libtvm_runtime.so"
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


def load_module(library: Path) -> Any:
    """A library built by TVM; raises UserError for a file that is none, or none for this machine.

    libgomp's threads, which libraries that call oneDNN use, wait for the next loop in a loop of their own, by default for
    up to 20 ms: on a machine with other work they take that time from whom they wait for. A fraction of one still spans what
    lies between two layers.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "4000")
    try:
        return tvm_ffi().load_module(_fresh_spelling(library))
    except RuntimeError as error:
        reason = str(error).splitlines()[0].rpartition(f"{library.name}: ")[2]
        raise UserError(f"{library}: the library cannot be loaded ({reason}); build or copy it again") from error


def _fresh_spelling(library: Path) -> str:
    """The path in a spelling that no library was loaded by before.

    dlopen takes a path that it has seen for the library that it loaded then, even if that was rebuilt meanwhile; for one
    that it has not seen it looks at the file.
    """
    detour = "".join("./" if bit == "1" else "/" for bit in f"{next(_loads):b}")
    return f"{library.parent}/{detour}{library.name}"


def start_machine(module: Any) -> Any:
    """Start the Relax virtual machine of a loaded library on the CPU; functions are looked up by machine["main"]."""
    machine = module["vm_load_executable"]()
    machine["vm_initialization"](_CPU, 0, _POOLED_ALLOCATOR)
    return machine


def open_machine(library: Path) -> Any:
    """Load lib.so and start its virtual machine."""
    return start_machine(load_module(library))


def prepare(module: Any, weights: Sequence[Any], threads: int) -> None:
    """Let a library that calls oneDNN make its primitives and pack its weights, so that the first call need not."""
    if module.implements_function("onednn_prepare", query_imports=True):
        use_threads(module, threads)
        module.get_function("onednn_prepare", query_imports=True)(list(weights))


def use_threads(module: Any, count: int) -> None:
    """Tell a library that calls oneDNN how many threads it may take (0: one for each usable CPU); others take TVM's."""
    if module.implements_function("onednn_set_threads", query_imports=True):
        module.get_function("onednn_set_threads", query_imports=True)(count or len(os.sched_getaffinity(0)))


def set_threads(count: int) -> None:
    """Use `count` threads (0: one for each CPU that the process may use) in TVM's pool of the calling thread.

    TVM's default is half the CPUs, for hyper-threading. It also pins threads, the caller's too, to the first cores,
    which slows down everything else in the process: not done unless TVM_BIND_THREADS asks for it.
    The pool is made once for each thread and can shrink but not grow.
    """
    if count < 0:
        raise UserError(f"threads is {count}; give at least 1, or 0 for one on each usable CPU")
    cpus = sorted(os.sched_getaffinity(0))
    count = count or len(cpus)
    os.environ.setdefault("TVM_BIND_THREADS", "0")
    chosen = [str(cpus[index % len(cpus)]) for index in range(count)]
    tvm_ffi().get_global_func("runtime.config_threadpool")(_BIG_CORES, count, chosen)
