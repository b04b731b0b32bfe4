"""CPUs by name: their levels, their vector widths, which of them this machine is; for the runtime too, so without pydantic."""

from __future__ import annotations

import platform
from pathlib import Path

# /proc/cpuinfo flags that a level of the x86-64 psABI adds to the level below.
X86_LEVELS: tuple[tuple[str, frozenset[str]], ...] = (
    ("x86-64-v2", frozenset({"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"})),
    ("x86-64-v3", frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"})),
    ("x86-64-v4", frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"})),
)

# fp32 lanes of one vector register by LLVM's name of the CPU.
CPU_LANES: dict[str, int] = {
    **dict.fromkeys(("x86-64", "x86-64-v2", "nehalem", "westmere", "generic"), 4),
    **dict.fromkeys(("x86-64-v3", "haswell", "broadwell", "skylake", "alderlake", "raptorlake", "arrowlake"), 8),
    **dict.fromkeys(("znver1", "znver2", "znver3"), 8),
    **dict.fromkeys(("x86-64-v4", "skylake-avx512", "cascadelake", "cooperlake", "icelake-client"), 16),
    **dict.fromkeys(("icelake-server", "sapphirerapids", "emeraldrapids", "graniterapids"), 16),
    **dict.fromkeys(("znver4", "znver5"), 16),
}


def native_arch(flags: frozenset[str]) -> str:
    """Return the highest x86-64 level whose flags are all in `flags`, "generic" on other machines."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return "generic"
    best = "x86-64"
    for name, needed in X86_LEVELS:
        if not needed <= flags:
            break
        best = name
    return best


def runs_here(arch: str) -> bool:
    """Say whether this CPU's vectors are as wide as those of code for `arch`, a key of CPU_LANES."""
    return CPU_LANES[arch] <= CPU_LANES[native_arch(cpu_flags())]


def cpu_flags() -> frozenset[str]:
    """Return the CPU's feature flags as Linux names them; nothing where /proc/cpuinfo is missing."""
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return frozenset()
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("flags"):
            return frozenset(line.partition(":")[2].split())
    return frozenset()
