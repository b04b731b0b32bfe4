"""compile: scheduled TIR and Relax become lib.so; the same module and records give the same bytes everywhere."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydoit.frozen import Frozen
from pydoit.keys import pretty
from pydoit.profiling import FILE
from pydoit.target import ResolvedTarget, make_tvm_target
from pydoit.tools import ONEDNN
from pydoit.worker import progress

TOOLS = ("apache-tvm", "apache-tvm-ffi", "c++")
READS = {"optimize": ("module.json",), "tune": ("records.json",)}


class Spec(Frozen):
    """What the code is generated for."""

    target: ResolvedTarget
    """Kind and arch; the number of threads does not change the code."""
    onednn: bool = False
    """Whether the module may call oneDNN."""


def tools(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """The tools that this target takes beside `TOOLS`."""
    if spec["target"]["kind"] == "cuda":
        return ("triton", "nvcc", "ptxas")
    return (ONEDNN,) if spec["onednn"] else ()


def run(spec: Spec, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Write lib.so, which exports the module's functions, oneDNN's library where it calls that, and costs.json."""
    if spec.target.kind == "cuda":
        return _run_cuda(spec, inputs, out)
    from pydoit.kernels.apply import schedule_module
    from pydoit.kernels.lowering import compile_module, dispatched
    from pydoit.kernels.memory_plan import MemoryPlan
    from pydoit.profiling.costs import document, entry_costs
    from pydoit.records import read_records
    from pydoit.tvm_compat import load_json, relax

    module = load_json((inputs["optimize"] / "module.json").read_text(encoding="utf-8"))
    records = read_records(inputs["tune"] / "records.json")
    target = make_tvm_target(spec.target)
    started = time.perf_counter()
    with target:
        module = relax.transform.RewriteDataflowReshape()(relax.transform.LegalizeOps()(module))
        entries = entry_costs(dispatched(module))
    progress("schedule functions")
    module, summary = schedule_module(module, target, records.decisions(spec.target.arch))
    scheduled = time.perf_counter()
    progress(f"generate code for {summary['functions']} functions")
    plan = MemoryPlan()
    summary["onednn"] = export(module, compile_module(module, target, plan), out)
    with target:
        (out / FILE).write_bytes(pretty(document(entries, dispatched(module), plan.bytes)))
    return {**summary, "planned_bytes": plan.bytes, "live_bytes": plan.live_bytes, **_measured(started, scheduled, out)}


def export(module: Any, compiled: Any, out: Path) -> int:
    """Write the library with the functions of oneDNN that `module` calls; return how many calls there are."""
    from pydoit.kernels.onednn import build
    from pydoit.kernels.onednn.site import calls_of, sites_of

    sites = sites_of(module)
    if not sites:
        compiled.export_library(str(out / "lib.so"))
        return 0
    calls = list(calls_of(module))
    library = build.library_path()
    with tempfile.TemporaryDirectory() as folder:
        built = build.build_object(sites, calls, Path(folder))
        compiled.export_library(str(out / "lib.so"), addons=[str(built)], options=build.link_options(library))
    shutil.copyfile(library, out / build.LIBRARY)
    return len(calls)


def _run_cuda(spec: Spec, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    from pydoit.kernels import cuda

    toolkit = cuda.find_toolkit()
    with cuda.scratch() as folder:
        cuda.prepare(toolkit, folder)
        from pydoit.profiling.costs import document, entry_costs
        from pydoit.tvm_compat import load_json, relax

        module = load_json((inputs["optimize"] / "module.json").read_text(encoding="utf-8"))
        target = make_tvm_target(spec.target)
        started = time.perf_counter()
        with target:
            module = relax.transform.RewriteDataflowReshape()(relax.transform.LegalizeOps()(module))
        entries = entry_costs(module)
        progress("schedule functions")
        module, summary = cuda.schedule_module(module, target)
        (out / FILE).write_bytes(pretty(document(entries, module, {})))
        scheduled = time.perf_counter()
        progress(f"generate machine code for {summary['functions']} functions")
        report = cuda.export(module, target, spec.target.arch, toolkit, folder, out / "lib.so")
    return {**summary, **report, **_measured(started, scheduled, out)}


def _measured(started: float, scheduled: float, out: Path) -> dict[str, Any]:
    return {
        "schedule_seconds": round(scheduled - started, 3),
        "codegen_seconds": round(time.perf_counter() - scheduled, 3),
        "library_bytes": (out / "lib.so").stat().st_size,
    }
