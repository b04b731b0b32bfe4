"""calibrate: what this machine can do at most; no part of a build."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydoit.frozen import Frozen
from pydoit.worker import progress

TOOLS = ("apache-tvm", "apache-tvm-ffi", "c++")
READS: Mapping[str, tuple[str, ...]] = {}


class Spec(Frozen):
    """What is measured."""

    kind: Literal["cpu", "cuda"] = "cpu"
    """CPUs or the first GPU."""
    threads: int = 1
    """Threads that share the work, on CPUs."""


def run(spec: Spec, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """The ceilings, as `pydoit.profiling.ceilings` describes them; raises Deferred where there is no such device."""
    if spec.kind == "cuda":
        from pydoit.profiling.gpu_ceilings import measure

        progress("bandwidth, arithmetic and launches of the GPU")
        return measure()
    from pydoit.profiling.cpu_ceilings import call_seconds, speeds

    progress("bandwidth and arithmetic of the CPUs")
    found = speeds(out, spec.threads)
    progress("calls of kernels")
    return {**found, "call_seconds": call_seconds(out, spec.threads)}
