"""Runs a module at any level between import and compile, on the imported parameters: what its outputs are right now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydoit import lifting
from pydoit.errors import StageError
from pydoit.importers.spec import Input
from pydoit.passes import split_use
from pydoit.passes.info import Entry
from pydoit.target import ResolvedTarget, make_tvm_target

Arrays = Sequence[NDArray[Any]]
MAX_REL = 1e-3
"""Difference between a module's outputs before and after a pass, relative to the largest magnitude, that is no rounding."""


@dataclass
class Executor:
    """Compiles and runs versions of one model's module on this machine's CPU."""

    described: Mapping[str, Any]
    """The import's spec.json."""
    inputs: Mapping[str, Input]
    """The recipe's inputs, from whose ranges values are drawn."""
    params: Mapping[str, NDArray[Any]]
    """The import's parameters by name."""
    target: ResolvedTarget
    seed: int = 0
    """Seed of the drawn inputs."""
    decisions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Schedule decisions of tuning records by the functions' keys."""

    def sample(self) -> list[NDArray[Any]]:
        """One input by the recipe's shapes (symbolic extents at their largest) and ranges."""
        from pydoit.random_tensors import random_sample

        extents = {name: bound["max"] for name, bound in self.described["dims"].items()}
        made = random_sample(self.inputs, self.seed, 0, extents)
        return [made[item["name"]] for item in self.described["inputs"]]

    def outputs(self, module: Any, inputs: Arrays | None = None) -> list[NDArray[Any]]:
        """What `main` gives for these inputs, or for `sample()`."""
        from pydoit.tvm_compat import tvm

        machine, weights = self.machine(module)
        given = [tvm.runtime.tensor(array) for array in (self.sample() if inputs is None else inputs)]
        return _arrays(machine["main"](*given, *weights))

    def machine(self, module: Any) -> tuple[Any, list[Any]]:
        """A virtual machine with `main`, and the weights that it takes after the inputs."""
        from pydoit.tvm_compat import tvm

        main, transform = lifting.split(finished(module, self.target))
        params = [tvm.runtime.tensor(self.params[item["name"]]) for item in self.described["params"]]
        weights = list(self._compiled(transform)["transform"](params)) if len(transform.functions) else params
        return self._compiled(main), weights

    def _compiled(self, module: Any) -> Any:
        from pydoit.tvm_compat import relax, tvm

        return relax.VirtualMachine(compiled(module, self.target, self.decisions), tvm.cpu())


def compiled(module: Any, target: ResolvedTarget, decisions: Mapping[str, Mapping[str, Any]]) -> Any:
    """The module lowered, scheduled and compiled as the compile stage does it."""
    from pydoit.kernels.apply import schedule_module
    from pydoit.kernels.lowering import compile_module
    from pydoit.tvm_compat import relax

    made = make_tvm_target(target)
    with made:
        module = relax.transform.RewriteDataflowReshape()(relax.transform.LegalizeOps()(module))
    scheduled, _ = schedule_module(module, made, decisions)
    return compile_module(scheduled, made)


def run_function(
    module: Any, name: str, given: Arrays, result: NDArray[Any], target: ResolvedTarget, decisions: Mapping[str, Any]
) -> NDArray[Any] | None:
    """What the TIR function of that name computes from `given`; None where the module has none. `result` gives the shape."""
    from pydoit.tvm_compat import IRModule, tirx, tvm

    found = [function for variable, function in module.functions_items() if variable.name_hint == name]
    if not found or not isinstance(found[0], tirx.PrimFunc):
        return None
    alone = IRModule({name: found[0].with_attr("global_symbol", name)})
    library = compiled(alone, target, decisions)
    arguments = [tvm.runtime.tensor(array) for array in (*given, np.zeros_like(result))]
    library[name](*arguments)
    return np.asarray(arguments[-1].numpy())


def finished(module: Any, target: ResolvedTarget) -> Any:
    """The module with groups that wait for FuseTIR made functions."""
    from pydoit.passes.running import apply_pass
    from pydoit.tvm_compat import relax

    functions = [function for _, function in module.functions_items() if isinstance(function, relax.Function)]
    if not any(function.attrs is not None and "Primitive" in function.attrs for function in functions):
        return module
    with make_tvm_target(target):
        return apply_pass("FuseTIR", module)


@dataclass
class NumericsCheck:
    """Compares a module's outputs before and after each pass that changed it (a `passes.running.Watch`)."""

    executor: Executor
    max_rel: float = MAX_REL
    _known: list[NDArray[Any]] | None = None

    def __call__(self, number: int, use: Entry, before: Any, after: Any) -> None:
        """Raises StageError that names the pass, the output and the difference."""
        wanted = self._known if self._known is not None else self.executor.outputs(before)
        found = self.executor.outputs(after)
        fault = difference(found, wanted, self.max_rel, [item["name"] for item in self.executor.described["outputs"]])
        if fault:
            name = split_use(use)[0]
            raise StageError(f'pass "{name}" (order[{number}]) changes results: {fault}; move or remove it, or mend it')
        self._known = found


def difference(found: Arrays, wanted: Arrays, max_rel: float, names: Sequence[str]) -> str:
    """In words, the first output that differs by more than rounding; empty where all agree."""
    if len(found) != len(wanted):
        return f"{len(found)} outputs, not {len(wanted)}"
    for name, mine, theirs in zip(names, found, wanted, strict=False):
        if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
            return f"output {name!r} is {mine.dtype} {list(mine.shape)}, not {theirs.dtype} {list(theirs.shape)}"
        wrong = int((~np.isfinite(mine.astype(np.float64)) & np.isfinite(theirs.astype(np.float64))).sum())
        if wrong:
            return f"{wrong} values of output {name!r} are NaN or infinite"
        both = np.isfinite(theirs.astype(np.float64))
        scale = float(np.abs(theirs[both].astype(np.float64)).max(initial=0.0)) or 1.0
        largest = float(np.abs(mine[both].astype(np.float64) - theirs[both].astype(np.float64)).max(initial=0.0))
        if largest > max_rel * scale:
            return f"output {name!r} differs by {largest:.3g}, {largest / scale:.2g} of its largest value"
    return ""


def _arrays(result: Any) -> list[NDArray[Any]]:
    items = [result] if hasattr(result, "numpy") else list(result)
    return [item.numpy() for item in items]
