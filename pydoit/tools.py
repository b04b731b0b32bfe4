"""Identities of what takes part in a build and is not ours: distributions, the C++ compiler, the CPU."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import mmap
import os
import platform
import shutil
import subprocess
from functools import cache
from pathlib import Path

from pydoit.digest import hash_bytes

CXX = "c++"
NVCC = "nvcc"
PTXAS = "ptxas"
PYTHON = "python"
LLVM = "llvm"
ONEDNN = "onednn-cpu-gomp"
"""The distribution on PyPI that holds oneDNN, built for libgomp."""
ONEDNN_REMEDY = "pip install 'doit-modelbuild[onednn]'"
ABSENT = "absent"

# What a worker may see of the environment; everything else is dropped, so that it cannot change a result.
PASSED = (
    "PATH", "HOME", "USER", "LOGNAME", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CUDA_HOME", "CUDA_VISIBLE_DEVICES",
    "XDG_CACHE_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "PIP_CERT",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
    "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_CONFIG_FILE", "PIP_NO_INDEX", "PIP_DEFAULT_TIMEOUT",
    "PIP_TRUSTED_HOST", "PIP_CACHE_DIR",
    "HF_HOME", "HF_TOKEN", "HF_ENDPOINT", "HF_HUB_OFFLINE",
    "MODELBUILD_TRACEBACK",
)  # fmt: skip
# Passed too, and part of the key, because they change what comes out.
KEYED = ("CXX", "CXXFLAGS", "LDFLAGS", "OPENBLAS_CORETYPE", "TRITON_DEFAULT_FP_FUSION")
# The same for every worker.
FIXED = {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TZ": "UTC", "PYTHONHASHSEED": "0", "TOKENIZERS_PARALLELISM": "false",
         "PYTHONDONTWRITEBYTECODE": "1", "SOURCE_DATE_EPOCH": "0"}  # fmt: skip
# libfaketime's, passed where it is in use, so that a check of reproducibility moves the workers' clock too.
CLOCK = ("FAKETIME", "LD_PRELOAD", "FAKETIME_DONT_FAKE_MONOTONIC", "DONT_FAKE_MONOTONIC", "FAKETIME_SHARED")


def worker_environment() -> dict[str, str]:
    """The environment of a worker process: the allowed variables and the fixed ones."""
    clock = CLOCK if os.environ.get("FAKETIME") else ()
    allowed = {name: os.environ[name] for name in (*PASSED, *KEYED, *clock) if name in os.environ}
    return {**allowed, **FIXED}


def keyed_environment() -> dict[str, str]:
    """The variables that change results and are set, for the action key."""
    return {name: os.environ[name] for name in KEYED if os.environ.get(name)}


@cache
def version(name: str) -> str:
    """Version of a distribution, of the C++ compiler for `c++`, of CUDA's for `nvcc`, Python's for `python`, or "absent"."""
    if name == CXX:
        return compiler_version()
    if name in (NVCC, PTXAS):
        return toolkit_version(name)
    if name == PYTHON:
        return platform.python_version()
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ABSENT


def compiler() -> str | None:
    """Path of the C++ compiler that links libraries: $CXX, or the first of g++, clang++, c++."""
    chosen = os.environ.get("CXX")
    names = [chosen] if chosen else ["g++", "clang++", "c++"]
    return next((path for path in map(shutil.which, names) if path), None)


@cache
def compiler_version() -> str:
    """First line of `c++ --version` and of its linker's; "absent" without a compiler."""
    path = compiler()
    if path is None:
        return ABSENT
    linker = _first_line([path, "-Wl,--version"])
    return f"{_first_line([path, '--version'])}; {linker}"


def cuda_toolkit() -> Path | None:
    """CUDA's folder, with nvcc and headers: $CUDA_HOME, that of nvcc, or /usr/local/cuda; None without one."""
    nvcc = shutil.which("nvcc")
    places = [os.environ.get("CUDA_HOME"), str(Path(nvcc).resolve().parents[1]) if nvcc else None, "/usr/local/cuda"]
    for place in places:
        if place and Path(place, "bin", NVCC).is_file() and Path(place, "include", "cuda_runtime.h").is_file():
            return Path(place)
    return None


@cache
def toolkit_version(name: str) -> str:
    """Release and build of nvcc or ptxas; "absent" without a toolkit."""
    toolkit = cuda_toolkit()
    if toolkit is None:
        return ABSENT
    try:
        result = subprocess.run([toolkit / "bin" / name, "--version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError):
        return ABSENT
    lines = [line.strip() for line in result.stdout.splitlines() if "release" in line or line.startswith("Build")]
    return "; ".join(lines) or ABSENT


@cache
def llvm_version() -> str:
    """Version of the LLVM inside TVM's compiler, read from the library's text, since importing TVM takes seconds."""
    spec = importlib.util.find_spec("tvm")
    places = spec.submodule_search_locations if spec is not None else None
    for place in places or ():
        for library in sorted(Path(place, "lib").glob("libtvm*.so")):
            with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                at = data.find(b"LLVM version ")
                if at >= 0:
                    return data[at : at + 64].partition(b"\0")[0].decode(errors="replace").split()[2]
    return ABSENT


def _first_line(command: list[str]) -> str:
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False,
                                env={**os.environ, "LC_ALL": "C"})  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ABSENT
    lines = (result.stdout or result.stderr).splitlines()
    return lines[0].strip() if lines else ABSENT


@cache
def cpu_name() -> str:
    """Model name of the CPU with its core count, the hardware that a measured time depends on."""
    name = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    return f"{name}, {os.cpu_count()} cores"


@cache
def gpu_names() -> str:
    """Model names of the NVIDIA GPUs as the driver tells them, or "absent"."""
    texts = [path.read_text(errors="replace") for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))]
    lines = [line for text in texts for line in text.splitlines() if line.startswith("Model:")]
    return ", ".join(line.partition(":")[2].strip() for line in lines) or ABSENT


@cache
def cpu_flags_digest() -> str:
    """Identity of the CPU's feature flags, from which `arch = "native"` follows."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return platform.machine()
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return hash_bytes(flags.encode())
