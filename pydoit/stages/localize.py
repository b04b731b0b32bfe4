"""localize: two versions of a model run side by side to the first kernel whose result differs; no part of a build."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydoit.errors import StageError
from pydoit.execution import MAX_REL, Executor, difference
from pydoit.frozen import Frozen
from pydoit.importers.spec import Input
from pydoit.target import ResolvedTarget, make_tvm_target

TOOLS = ("apache-tvm", "apache-tvm-ffi", "numpy")
READS = {"import": ("module.json", "spec.json", "params.safetensors")}

Order = tuple[str | dict[str, Any], ...]


class Spec(Frozen):
    """The two versions."""

    good: Order
    """Passes of the good one."""
    bad: Order
    """Passes of the bad one; the same where it is bad from the start."""
    good_records: dict[str, dict[str, Any]] = {}
    """Schedule decisions of the good one by the functions' keys."""
    bad_records: dict[str, dict[str, Any]] = {}
    """Those of the bad one."""
    target: ResolvedTarget
    """What the passes optimize for."""
    inputs: dict[str, Input]
    """The recipe's inputs."""
    seed: int = 0
    """Seed of their values."""
    folder: str
    """Where the reproduction goes."""


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a kernel."""

    name: str
    arguments: list[NDArray[Any]]
    """As they are after the call, results last."""


def run(spec: Spec, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Return {"kernel": name, or "" where none can be named}; save the modules, the kernel's inputs and a script."""
    from pydoit import lifting
    from pydoit.passes.running import run_passes
    from pydoit.runtime.aligned import map_weights
    from pydoit.tvm_compat import load_json, save_json

    described = json.loads((inputs["import"] / "spec.json").read_bytes())
    module = load_json((inputs["import"] / "module.json").read_text(encoding="utf-8"))
    module = lifting.mark_inputs(module, len(described["inputs"]))
    params = map_weights(inputs["import"] / "params.safetensors")
    versions, calls = [], []
    for order, records in ((spec.good, spec.good_records), (spec.bad, spec.bad_records)):
        with make_tvm_target(spec.target):
            version, _, _ = run_passes(order, module)
        executor = Executor(described, spec.inputs, params, spec.target, spec.seed, records)
        versions.append(version)
        calls.append(trace(executor, version))
    found = [call for call in (first_not_finite(calls[1]), first_difference(*calls)) if call is not None]
    kernel = min(found, key=calls[1].index, default=None)
    folder = Path(spec.folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, version in zip(("good", "bad"), versions, strict=True):
        (folder / f"{name}.json").write_text(save_json(version), encoding="utf-8")
    _save(folder, spec, inputs, kernel)
    return {"kernel": kernel.name if kernel else ""}


def trace(executor: Executor, module: Any) -> list[Call]:
    """The calls of one run on the executor's sample."""
    from pydoit.tvm_compat import tvm

    machine, weights = executor.machine(module)
    calls: list[Call] = []

    def instrument(_function: Any, name: str, is_before: bool, _result: Any, *arguments: Any) -> None:
        if not is_before and not str(name).startswith("vm.builtin."):
            arrays = [item.numpy().copy() for item in arguments if hasattr(item, "numpy")]
            calls.append(Call(str(name), arrays))

    machine.set_instrument(instrument)
    machine["main"](*[tvm.runtime.tensor(array) for array in executor.sample()], *weights)
    if not calls:
        raise StageError("no kernel ran")
    return calls


def first_not_finite(calls: Sequence[Call]) -> Call | None:
    """The first call whose result has NaN or infinity though none of its inputs has."""
    for call in calls:
        *given, result = call.arguments or [np.zeros(0)]
        if not _finite(result) and all(_finite(array) for array in given):
            return call
    return None


def first_difference(good: Sequence[Call], bad: Sequence[Call]) -> Call | None:
    """The first call of the bad version whose result differs from that of the good version's call of the same name.

    Calls are matched in their order; where the versions call other kernels from some place on, the search goes on behind
    it with calls that both have, since a pass may have joined or split kernels before the fault.
    """
    waiting: dict[str, list[Call]] = {}
    for call in good:
        waiting.setdefault(call.name, []).append(call)
    for call in bad:
        if not waiting.get(call.name):
            continue
        other = waiting[call.name].pop(0)
        if other.arguments and call.arguments and difference(call.arguments[-1:], other.arguments[-1:], MAX_REL, ["result"]):
            return call
    return None


def _finite(array: NDArray[Any]) -> bool:
    return array.dtype.kind not in "fc" or bool(np.isfinite(array).all())


def _save(folder: Path, spec: Spec, inputs: Mapping[str, Path], kernel: Call | None) -> None:
    """What the script needs: spec.json, and the arguments of the kernel, or the parameters where none is named."""
    (folder / "spec.json").write_bytes((inputs["import"] / "spec.json").read_bytes())
    (folder / "recipe.json").write_text(spec.model_dump_json(indent=1), encoding="utf-8")
    for name in ("kernel.npz", "params.safetensors"):
        (folder / name).unlink(missing_ok=True)
    if kernel is not None:
        arrays: dict[str, Any] = {f"argument{number}": array for number, array in enumerate(kernel.arguments[:-1])}
        np.savez(folder / "kernel.npz", name=np.array(kernel.name), result=kernel.arguments[-1], **arrays)
    (folder / "params.safetensors").symlink_to((inputs["import"] / "params.safetensors").resolve())
    (folder / "reproduce.py").write_text(SCRIPT, encoding="utf-8")


SCRIPT = '''"""Shows the difference: runs good.json and bad.json on the same input; then the kernel that differs, alone."""

import json
from pathlib import Path

import numpy as np

from pydoit.execution import Executor, difference, run_function
from pydoit.importers.spec import Input
from pydoit.runtime.aligned import map_weights
from pydoit.target import ResolvedTarget
from pydoit.tvm_compat import load_json

HERE = Path(__file__).resolve().parent
recipe = json.loads((HERE / "recipe.json").read_text())
described = json.loads((HERE / "spec.json").read_text())
target = ResolvedTarget.model_validate(recipe["target"])
inputs = {name: Input.model_validate(item) for name, item in recipe["inputs"].items()}
params = map_weights(HERE / "params.safetensors")
modules = {name: load_json((HERE / f"{name}.json").read_text()) for name in ("good", "bad")}
outputs = {}
for name, module in modules.items():
    executor = Executor(described, inputs, params, target, recipe["seed"], recipe[f"{name}_records"])
    outputs[name] = executor.outputs(module)
names = [item["name"] for item in described["outputs"]]
print("model:", difference(outputs["bad"], outputs["good"], 1e-3, names) or "the outputs agree")
if (HERE / "kernel.npz").is_file():
    saved = np.load(HERE / "kernel.npz")
    name = str(saved["name"])
    given = [saved[f"argument{number}"] for number in range(len(saved.files) - 2)]
    for version, module in modules.items():
        result = run_function(module, name, given, saved["result"], target, recipe[f"{version}_records"])
        if result is not None:
            fault = difference([result], [saved["result"]], 1e-3, ["result"])
            print(f"kernel {name}, {version}:", fault or "as in the bad run")
'''
