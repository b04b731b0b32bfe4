"""What the code is compiled for: names of CPUs and GPUs, their vector widths, the TVM target made of them."""

from __future__ import annotations

import ctypes
import difflib
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from pydoit import cpus
from pydoit.cpus import CPU_LANES as CPU_LANES
from pydoit.errors import UserError
from pydoit.frozen import Frozen

KINDS = ("cpu", "cuda")


class ResolvedTarget(Frozen):
    """A target without "native" in it: the same value means the same code on every machine."""

    kind: str
    """"cpu" or "cuda"."""
    arch: str
    """LLVM's name of the CPU ("x86-64-v4", "sapphirerapids") or NVIDIA's of the GPU ("sm_90")."""
    threads: int = 0
    """Threads at run time, 0 for all; the library's bytes do not depend on it."""


def resolve_arch(kind: str, arch: str) -> str:
    """Turn `arch` into an explicit name; "native" is the highest x86-64 level that this CPU has.

    Raises UserError with the nearest match when kind or arch is unknown.
    """
    if kind not in KINDS:
        raise UserError(f'target kind "{kind}" is unknown; {_suggest(kind, KINDS)}')
    if kind == "cuda":
        return _resolve_cuda(arch)
    if arch == "native":
        return cpus.native_arch(cpus.cpu_flags())
    if arch not in CPU_LANES:
        raise UserError(f'target arch "{arch}" is unknown; {_suggest(arch, ("native", *CPU_LANES))}')
    return arch


def runs_here(target: ResolvedTarget) -> bool:
    """Say whether this machine can execute code for `target`: by vector width, or by the first GPU's compute capability."""
    if target.kind == "cuda":
        return _gpu_capability() >= _capability(target.arch)
    return cpus.runs_here(target.arch)


def _capability(arch: str) -> tuple[int, int]:
    """`sm_90` -> (9, 0)."""
    digits = re.sub(r"\D", "", arch)
    return int(digits[:-1]), int(digits[-1])


@cache
def _gpu_capability() -> tuple[int, int]:
    """Compute capability of the first GPU by the driver; (0, 0) without one."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0, 0
    device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
        return 0, 0
    driver.cuDeviceGetAttribute(ctypes.byref(major), 75, device)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
    driver.cuDeviceGetAttribute(ctypes.byref(minor), 76, device)
    return major.value, minor.value


def make_tvm_target(target: ResolvedTarget) -> Any:
    """Return the `tvm.target.Target` that code is generated for; it does not depend on the number of threads."""
    from pydoit.tvm_compat import Target

    if target.kind == "cuda":
        limits = {"max_threads_per_block": 1024, "thread_warp_size": 32, "max_shared_memory_per_block": 49152}
        host = {"kind": "llvm", "mcpu": "x86-64-v3"}
        return Target({"kind": "cuda", "arch": target.arch, **limits, "host": host})
    if target.arch == "generic":
        return Target({"kind": "llvm"})
    if target.arch == "x86-64-v4":
        # Our products by tiles ask at run time whether the machine has them; nothing else becomes tile code.
        return Target({"kind": "llvm", "mcpu": target.arch, "mattr": ["+amx-tile", "+amx-bf16"]})
    return Target({"kind": "llvm", "mcpu": target.arch})


def vector_lanes(tvm_target: Any) -> int:
    """Return the fp32 lanes of one vector register of a TVM target made by `make_tvm_target`."""
    return CPU_LANES.get(str(tvm_target.attrs.get("mcpu", "generic")), 4)


def vector_registers(tvm_target: Any) -> int:
    """Return how many vector registers code may count on: 32 with AVX-512, otherwise 16."""
    return 32 if vector_lanes(tvm_target) == 16 else 16


def _resolve_cuda(arch: str) -> str:
    if re.fullmatch(r"sm_\d{2,3}[af]?", arch):
        return arch
    raise UserError(f'target arch "{arch}" is no CUDA architecture; write it like "sm_90"')


def _suggest(name: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f'did you mean "{near[0]}"? ' if near else ""
    return f"{hint}known: {', '.join(known)}"


def lacking(stage: str, spec: Mapping[str, Any]) -> str:
    """What this machine lacks to run a stage with these values; empty when it can."""
    if stage not in ("verify", "profile"):
        return ""
    wanted = ResolvedTarget.model_validate(spec["target"] if "target" in spec else spec["model"]["target"])
    if runs_here(wanted):
        return ""
    return f"needs a {'GPU' if wanted.kind == 'cuda' else 'CPU'} that runs {wanted.arch} code"
