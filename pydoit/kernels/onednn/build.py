"""Compiles the C++ around oneDNN to an object file, and links it and oneDNN into a library that finds it beside itself."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydoit.errors import StageError
from pydoit.kernels.cxx import ffi_folder, run_compiler
from pydoit.kernels.onednn.emit import cpp_source
from pydoit.kernels.onednn.site import Call, Site
from pydoit.tools import ONEDNN, ONEDNN_REMEDY

LIBRARY = "libdnnl.so.3"
"""What lies beside lib.so."""


def library_path() -> Path:
    """oneDNN's library of the installed distribution; raises StageError without it."""
    try:
        files = importlib.metadata.files(ONEDNN) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == LIBRARY:
            return Path(str(file.locate())).resolve()
    raise StageError(f"compile: this module calls oneDNN, which is not installed; {ONEDNN_REMEDY}")


def build_object(sites: Mapping[str, Site], calls: Sequence[Call], folder: Path) -> Path:
    """Write an object file with the functions of `sites`; its bytes do not depend on `folder`."""
    headers = ffi_folder() / "include"
    (folder / "onednn.cc").write_text(cpp_source(sites, calls), encoding="utf-8")
    hidden = [f"-ffile-prefix-map={headers}=include", "-fvisibility=hidden"]
    run_compiler(["-c", "-fPIC", "-O2", "-std=c++17", *hidden, f"-I{headers}", "onednn.cc", "-o", "onednn.o"], folder)
    return folder / "onednn.o"


def link_options(library: Path) -> list[str]:
    """Options for the linker: oneDNN is looked up in the folder of the library that is made."""
    return [
        "-Wl,--no-as-needed", f"-L{library.parent}", f"-l:{LIBRARY}", "-Wl,--as-needed",
        f"-L{ffi_folder() / 'lib'}", "-ltvm_ffi", "-Wl,--enable-new-dtags,-rpath,$ORIGIN",
    ]  # fmt: skip
