"""How scheduled functions become machine code: TVM's pipeline, with local buffers on the stack."""

from __future__ import annotations

from typing import Any

from pydoit.kernels.memory_plan import MemoryPlan
from pydoit.tvm_compat import IRModule, register_tir_pipeline, relax, s_tir_pipeline, structural_map, tirx, tvm

PIPELINE = "modelbuild"


def compile_module(module: Any, target: Any, plan: MemoryPlan | None = None) -> Any:
    """Compile a module of scheduled functions, and Relax if there is any; return what `export_library` writes.

    `plan` keeps the figures of the memory that intermediates take.
    """
    register_tir_pipeline(PIPELINE, _pipeline)
    if target.kind.name != "llvm":
        return tvm.compile(module, target=target, tir_pipeline=PIPELINE)
    return tvm.compile(module, target=target, tir_pipeline=PIPELINE, relax_pipeline=_lowering(target, plan or MemoryPlan()))


def _lowering(target: Any, plan: MemoryPlan) -> Any:
    """From scheduled functions to the virtual machine's calls.

    TVM's own pipeline for CPUs fuses once more, which the recipe's passes have decided, and undoes schedules. Sorts, scans
    and samplers are operators until here: only their dispatch lowers them.
    """
    transform = relax.transform
    passes = tvm.transform.Sequential([
        *_dispatching(),
        transform.RewriteDataflowReshape(),
        transform.ToNonDataflow(),
        transform.RemovePurityChecking(),
        transform.CallTIRRewrite(),
        plan.as_pass(),
        transform.StaticPlanBlockMemory(),
        transform.LowerAllocTensor(),
        transform.KillAfterLastUse(),
        transform.LowerRuntimeBuiltin(),
        transform.ComputePrimValue(),
        transform.VMShapeLower(),
        transform.AttachGlobalSymbol(),
    ])  # fmt: skip

    def lower(module: Any, _context: Any) -> Any:
        with target:
            return passes(module)

    return tvm.transform.module_pass(lower, opt_level=0, name="LowerToVirtualMachine")


def dispatched(module: Any) -> Any:
    """The module with sorts, scans and samplers as the functions that they become; needs the target as the current one."""
    return tvm.transform.Sequential(_dispatching())(module)


def _dispatching() -> list[Any]:
    return [relax.backend.DispatchSampling(), relax.backend.DispatchSortScan(), relax.transform.LegalizeOps()]


def _pipeline() -> tuple[Any, Any, Any]:
    """Return the passes on functions, on the host part and on the device part, as TVM expects them."""
    lower, finalize_host, finalize_device = s_tir_pipeline()
    keep = tvm.transform.module_pass(_keep_on_stack, opt_level=0, name="KeepLocalBuffersOnStack")
    return tvm.transform.Sequential([lower, keep]), finalize_host, finalize_device


def _keep_on_stack(module: Any, _context: Any) -> Any:
    """Mark local buffers of constant size so that they stay on the stack.

    TVM 0.27 turns them into calls of the runtime's allocator inside parallel loops, several a tile or row, and LLVM
    then writes the registers of a finished tile to memory for nobody. Drop this when TVM keeps small ones itself.
    """
    functions = {}
    for name, function in module.functions.items():
        if isinstance(function, tirx.PrimFunc):
            function = function.with_body(structural_map(function.body, (tirx.AllocBuffer, _mark)))  # noqa: PLW2901
        functions[name] = function
    return IRModule(functions, attrs=module.attrs)


def _mark(allocation: Any) -> Any:
    buffer = allocation.buffer
    constant = all(isinstance(size, tirx.IntImm) for size in buffer.shape)
    if not constant or buffer.scope() != "local":
        return allocation
    annotations = dict(allocation.annotations or {})
    return tirx.AllocBuffer(buffer, {**annotations, "disable_lower_builtin": tirx.IntImm("bool", 1)})
