"""Compiles the C++ around oneDNN to an object file, and links it and oneDNN into a library that finds it beside itself."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydoit.errors import StageError
from pydoit.kernels.onednn.emit import cpp_source
from pydoit.kernels.onednn.site import Call, Site
from pydoit.tools import compiler

DISTRIBUTION = "onednn-cpu-gomp"
"""The distribution on PyPI that holds oneDNN, built for libgomp."""
LIBRARY = "libdnnl.so.3"
"""What lies beside lib.so."""
REMEDY = "pip install 'doit-modelbuild[onednn]'"


def library_path() -> Path:
    """oneDNN's library of the installed distribution; raises StageError without it."""
    try:
        files = importlib.metadata.files(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == LIBRARY:
            return Path(str(file.locate())).resolve()
    raise StageError(f"compile: this module calls oneDNN, which is not installed; {REMEDY}")


def build_object(sites: Mapping[str, Site], calls: Sequence[Call], folder: Path) -> Path:
    """Write an object file with the functions of `sites`; its bytes do not depend on `folder`."""
    headers = _headers()
    (folder / "onednn.cc").write_text(cpp_source(sites, calls), encoding="utf-8")
    hidden = [f"-ffile-prefix-map={headers}=include", "-fvisibility=hidden"]
    run(["-c", "-fPIC", "-O2", "-std=c++17", *hidden, f"-I{headers}", "onednn.cc", "-o", "onednn.o"], folder)
    return folder / "onednn.o"


def link_options(library: Path) -> list[str]:
    """Options for the linker: oneDNN is looked up in the folder of the library that is made."""
    return [
        "-Wl,--no-as-needed", f"-L{library.parent}", f"-l:{LIBRARY}", "-Wl,--as-needed",
        f"-L{_headers().parent / 'lib'}", "-ltvm_ffi", "-Wl,--enable-new-dtags,-rpath,$ORIGIN",
    ]  # fmt: skip


def _headers() -> Path:
    tvm_ffi = importlib.util.find_spec("tvm_ffi")
    assert tvm_ffi is not None
    assert tvm_ffi.origin is not None
    return Path(tvm_ffi.origin).parent / "include"


def run(arguments: list[str], folder: Path) -> None:
    """Run the C++ compiler in `folder`; raises StageError with its first error."""
    path = compiler()
    if path is None:
        raise StageError("compile: there is no C++ compiler; install g++ or set CXX")
    result = subprocess.run([path, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        lines = [line for line in result.stderr.splitlines() if "error" in line] or ["it failed"]
        raise StageError(f"compile: the C++ compiler says {lines[0][:300]}; its log has more")
