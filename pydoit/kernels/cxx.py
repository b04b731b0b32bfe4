"""The C++ compiler for what is linked into a library beside TVM's code, and where tvm-ffi's headers and libraries lie."""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Sequence
from pathlib import Path

from pydoit.errors import StageError
from pydoit.tools import compiler


def run_compiler(arguments: Sequence[str], folder: Path) -> None:
    """Run the C++ compiler in `folder`; raises StageError with its first error, or where there is none."""
    path = compiler()
    if path is None:
        raise StageError("compile: there is no C++ compiler; install g++ or set CXX")
    result = subprocess.run([path, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        lines = [line for line in result.stderr.splitlines() if "error" in line] or ["it failed"]
        raise StageError(f"compile: the C++ compiler says {lines[0][:300]}; its log has more")


def ffi_folder() -> Path:
    """Folder of tvm-ffi, with `include` and `lib`; found without importing it."""
    tvm_ffi = importlib.util.find_spec("tvm_ffi")
    assert tvm_ffi is not None
    assert tvm_ffi.origin is not None
    return Path(tvm_ffi.origin).parent
