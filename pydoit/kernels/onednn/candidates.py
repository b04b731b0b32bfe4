"""One operator of a module with what follows it as a library of its own, computed by oneDNN or by TVM, to be timed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pydoit import lifting
from pydoit.errors import StageError
from pydoit.passes.info import Entry
from pydoit.passes.offload_onednn import Chain
from pydoit.passes.running import apply_pass
from pydoit.runtime import library as runtime_library
from pydoit.runtime.aligned import aligned
from pydoit.runtime.exchange import numpy_dtype, to_tensor
from pydoit.target import ResolvedTarget, make_tvm_target
from pydoit.tvm_compat import relax

BOUNDS = "tir_var_upper_bound"


def module_of(chain: Chain, function: Any) -> Any:
    """A module whose `main` computes a chain of `function`; operands that are made of weights alone are its weights."""
    bound = {binding.var: getattr(binding, "value", None) for block in function.body.blocks for binding in block.bindings}
    data, weight = chain.call.args
    operands = [data, weight, *chain.added] if chain.is_batched else [data, *chain.added, weight]
    operands += [] if chain.bias is None else [chain.bias]
    variables = [relax.Var(f"operand{index}", operand.ty) for index, operand in enumerate(operands)]
    place = {"data": 0, "weight": 1 if chain.is_batched else 1 + len(chain.added)}
    others = dict(zip(operands, variables, strict=True))
    inputs = len(operands) - (chain.bias is not None) - (not chain.is_batched)
    bounds = {BOUNDS: function.attrs[BOUNDS]} if BOUNDS in function.attrs else {}
    builder = relax.BlockBuilder()
    with builder.function("main", variables, attrs={"num_input": inputs, **bounds}):
        with builder.dataflow():
            operator = [variables[place["data"]], variables[place["weight"]]]
            value = builder.emit(relax.Call(chain.call.op, operator, chain.call.attrs))
            before = chain.start
            for step in chain.steps:
                arguments = [_operand(argument, before, value, others, bound) for argument in step.value.args]
                value = builder.emit(relax.Call(step.value.op, arguments, step.value.attrs))
                before = step.var
            result = builder.emit_output(value)
        builder.emit_func_output(result)
    return builder.get()


def _operand(argument: Any, before: Any, value: Any, others: Mapping[Any, Any], bound: Mapping[Any, Any]) -> Any:
    if argument.same_as(before):
        return value
    if argument in others:
        return others[argument]
    return bound[argument] if isinstance(argument, relax.Var) else argument


def compile_candidate(
    module: Any, order: Sequence[Entry], target: ResolvedTarget, decisions: Mapping[str, Mapping[str, Any]], folder: Path
) -> Any:
    """Compile a module by the passes of `order`; return a function that runs it on random data at the largest extents."""
    from pydoit.kernels.apply import schedule_module
    from pydoit.kernels.lowering import compile_module
    from pydoit.stages.compile import export

    tvm_target = make_tvm_target(target)
    with tvm_target:
        for use in order:
            module = apply_pass(use, module)
    main, _ = lifting.split(module)
    with tvm_target:
        main = relax.transform.RewriteDataflowReshape()(relax.transform.LegalizeOps()(main))
    scheduled, _ = schedule_module(main, tvm_target, decisions)
    folder.mkdir()
    export(scheduled, compile_module(scheduled, tvm_target), folder)
    return _bound(folder / "lib.so", main["main"], target.threads)


def _bound(library: Path, function: Any, threads: int) -> Any:
    runtime_library.set_threads(threads)
    ffi = runtime_library.tvm_ffi()
    loaded = runtime_library.load_module(library)
    machine = runtime_library.start_machine(loaded)
    largest = {str(name): int(bound) for name, bound in (function.attrs.get(BOUNDS) or {}).items()}
    random = np.random.default_rng(0)
    tensors = []
    for var in function.params:
        shape = [int(size) if hasattr(size, "value") else largest.get(str(size), 0) for size in var.ty.shape]
        if 0 in shape:
            raise StageError(f"an extent of {var.ty} has no upper bound")
        values = random.standard_normal(shape, dtype=np.float32).astype(numpy_dtype(str(var.ty.dtype)))
        tensors.append(to_tensor(aligned(values), ffi))
    runtime_library.prepare(loaded, tensors[int(function.attrs["num_input"]) :], threads)
    main = machine["main"]
    return lambda: main(*tensors)
