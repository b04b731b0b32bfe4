"""weights: run the transform that optimize lifted on the imported parameters; the compiled `main` takes the result."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydoit.frozen import Frozen
from pydoit.target import ResolvedTarget

TOOLS = ("apache-tvm", "apache-tvm-ffi", "numpy", "safetensors")
READS = {"optimize": ("transform.json", "spec.json"), "import": ("params.safetensors",)}

# The transform moves and scales values; this level runs on every machine that builds, and gives the same bytes on all.
HOST = ResolvedTarget(kind="cpu", arch="x86-64-v2")


class Spec(Frozen):
    """What the weights are laid out for; the layout itself is in optimize's transform."""

    target: ResolvedTarget
    """The recipe's target."""


def run(spec: Spec, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Write model.safetensors with the tensors that spec.json calls weights, in any order, by name."""
    from pydoit import weight_file
    from pydoit.runtime.aligned import map_weights
    from pydoit.tvm_compat import load_json

    described = json.loads((inputs["optimize"] / "spec.json").read_bytes())
    params = map_weights(inputs["import"] / "params.safetensors")
    module = load_json((inputs["optimize"] / "transform.json").read_text(encoding="utf-8"))
    names = [weight["name"] for weight in described["weights"]]
    if len(module.functions):
        tensors = _transform(module, [params[param["name"]] for param in described["params"]])
    else:
        tensors = [params[param["name"]] for param in described["params"]]
    weights = dict(zip(names, tensors, strict=True))
    weight_file.write(out / "model.safetensors", weights)
    return {"tensors": len(weights), "bytes": sum(array.nbytes for array in weights.values())}


def _transform(module: Any, params: list[Any]) -> list[Any]:
    """Compile `transform` for this machine and run it on numpy arrays; return numpy arrays."""
    from pydoit.kernels.apply import schedule_module
    from pydoit.kernels.lowering import compile_module
    from pydoit.target import make_tvm_target
    from pydoit.tvm_compat import relax, tvm

    target = make_tvm_target(_host())
    scheduled, _ = schedule_module(module, target, {})
    machine = relax.VirtualMachine(compile_module(scheduled, target), tvm.cpu())
    result = machine["transform"]([tvm.runtime.tensor(array) for array in params])
    return [tensor.numpy() for tensor in result]


def _host() -> ResolvedTarget:
    """Return the portable target for x86, whatever this machine is otherwise."""
    import platform

    return HOST if platform.machine() in ("x86_64", "AMD64") else ResolvedTarget(kind="cpu", arch="generic")
