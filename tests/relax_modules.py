"""Small Relax modules for the tests of passes and kernels, and a way to run them on numpy arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pydoit.kernels.apply import schedule_module
from pydoit.kernels.lowering import compile_module
from pydoit.target import ResolvedTarget, make_tvm_target
from pydoit.tvm_compat import IRModule, relax, tirx, tvm

TARGET = make_tvm_target(ResolvedTarget(kind="cpu", arch="x86-64-v3"))
LANES = 8


def module_of(
    build: Callable[..., Any], inputs: dict[str, tuple[int, ...]], weights: dict[str, tuple[int, ...]] | None = None
) -> Any:
    """A module whose `main` computes `build(*inputs, *weights)`, all float32; weights are marked as such."""
    shapes = {**inputs, **(weights or {})}
    variables = [relax.Var(name, relax.TensorType(shape, "float32")) for name, shape in shapes.items()]
    builder = relax.BlockBuilder()
    with builder.function("main", variables, attrs={"num_input": len(inputs)}):
        with builder.dataflow():
            result = builder.emit_output(build(*variables))
        builder.emit_func_output(result)
    return builder.get()


def blocks_of(inputs: dict[str, tuple[int, ...]], *parts: Callable[..., Any]) -> Any:
    """A module with a dataflow block for each part, and a binding between them that keeps TVM from joining them.

    A part takes the inputs and the results of the parts before it; `main` returns what each computes, and the first input negated for each gap.
    """
    values = [relax.Var(name, relax.TensorType(shape, "float32")) for name, shape in inputs.items()]
    builder, between = relax.BlockBuilder(), []
    with builder.function("main", list(values)):
        for part in parts:
            if len(values) > len(inputs):
                between.append(builder.emit(relax.op.negative(values[0])))
            with builder.dataflow():
                values.append(builder.emit_output(part(*values)))
        builder.emit_func_output(relax.Tuple([*values[len(inputs) :], *between]))
    return builder.get()


def run_pass(apply: Callable[[Any], Any], module: Any) -> Any:
    """The module after a pass; the given one stays as it was."""
    with TARGET:
        return apply(IRModule(dict(module.functions.items()), attrs=module.attrs))


def operators(module: Any) -> list[str]:
    """Names of the operators of `main` in their order; a call of a TIR function is `call_tir`."""
    bindings = [binding for block in module["main"].body.blocks for binding in block.bindings]
    calls = [binding.value for binding in bindings if isinstance(binding.value, relax.Call)]
    return [call.op.name.removeprefix("relax.") for call in calls]


def functions(module: Any) -> dict[str, Any]:
    """The TIR functions by name."""
    return {name.name_hint: item for name, item in module.functions.items() if isinstance(item, tirx.PrimFunc)}


def random(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Standard normal float32."""
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def evaluate(module: Any, *arguments: np.ndarray[Any, Any], decisions: dict[str, Any] | None = None) -> Any:
    """What `main` computes after lowering, default schedules (or `decisions` by key) and compilation."""
    return _run(module, arguments, decisions).numpy()


def evaluate_all(module: Any, *arguments: np.ndarray[Any, Any]) -> list[Any]:
    """What a `main` that returns a tuple computes."""
    return [result.numpy() for result in _run(module, arguments)]


def _run(module: Any, arguments: tuple[np.ndarray[Any, Any], ...], decisions: dict[str, Any] | None = None) -> Any:
    with TARGET:
        module = relax.transform.LegalizeOps()(run_pass(lambda same: same, module))
    scheduled, _ = schedule_module(module, TARGET, decisions or {})
    machine = relax.VirtualMachine(compile_module(scheduled, TARGET), tvm.cpu())
    return machine["main"](*[tvm.runtime.tensor(argument) for argument in arguments])
