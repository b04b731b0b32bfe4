"""Compiles small Relax modules through OffloadOneDnn to a library with oneDNN beside it, and runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from pydoit import lifting, weight_file
from pydoit.passes.running import run_passes
from pydoit.stages import compile as compile_stage
from pydoit.stages.weights import _transform
from pydoit.target import ResolvedTarget, make_tvm_target
from pydoit.tvm_compat import relax, save_json

CPU = ResolvedTarget(kind="cpu", arch="x86-64-v3")
LOWERING = (
    "PackWeights", "LiftTransformParams", "DeadCodeElimination", "LegalizeForCpu", "AnnotateTIROpPattern", "FuseOps",
    "FuseTIR", "DeadCodeElimination", "RewriteDataflowReshape",
)  # fmt: skip
Arrays = dict[str, np.ndarray[Any, Any]]


def build(module: Any, weights: Arrays, precision: str, folder: Path) -> Path:
    """Write lib.so, libdnnl.so.3 and model.safetensors of a module of NHWC convolutions and products."""
    folder.mkdir(parents=True, exist_ok=True)
    offload = {"name": "OffloadOneDnn", "conv2d": "onednn", "matmul": "onednn", "precision": precision}
    with make_tvm_target(CPU):
        optimized, _, _ = run_passes(["FoldConstant", offload, *LOWERING], module)
    main, transform = lifting.split(optimized)
    described = lifting.describe_weights(main, transform, [{"name": name} for name in weights])
    (folder / "module.json").write_text(save_json(main))
    (folder / "records.json").write_text('{"schema": 1, "target": {"arch": "x86-64-v3"}, "records": []}')
    spec = compile_stage.Spec(target=CPU, onednn=True)
    compile_stage.run(spec, {"optimize": folder, "tune": folder}, folder)
    arrays = _transform(transform, list(weights.values())) if len(transform.functions) else list(weights.values())
    weight_file.write(
        folder / "model.safetensors", {item["name"]: array for item, array in zip(described, arrays, strict=True)}
    )
    function = main["main"]
    count = int(function.attrs["num_input"])
    inputs = [_described(var.name, var.ty) for var in list(function.params)[:count]]
    results = function.ret_ty.fields if hasattr(function.ret_ty, "fields") else [function.ret_ty]
    outputs = [_described(f"output{index}", kind) for index, kind in enumerate(results)]
    (folder / "spec.json").write_text(json.dumps({"inputs": inputs, "outputs": outputs, "weights": described}))
    return folder


def module_with_batch(build_body: Any, inputs: dict[str, tuple[Any, ...]], weights: dict[str, tuple[int, ...]]) -> Any:
    """A module whose extents that are names are symbolic, bounded by 8; `main` returns a tuple."""
    from pydoit.tvm_compat import tirx

    symbols: dict[str, Any] = {}

    def extent(size: Any) -> Any:
        return symbols.setdefault(size, tirx.Var(size, "int64")) if isinstance(size, str) else size

    shapes = {name: tuple(map(extent, shape)) for name, shape in {**inputs, **weights}.items()}
    variables = {name: relax.Var(name, relax.TensorType(shape, "float32")) for name, shape in shapes.items()}
    attributes: dict[str, Any] = {"num_input": len(inputs)}
    if symbols:
        attributes["tir_var_upper_bound"] = dict.fromkeys(symbols, 8)
    builder = relax.BlockBuilder()
    with builder.function("main", list(variables.values()), attrs=attributes):
        with builder.dataflow():
            values = build_body(builder, variables)
            result = builder.emit_output(relax.Tuple(values))
        builder.emit_func_output(result)
    return builder.get()


def _described(name: str, kind: Any) -> dict[str, Any]:
    shape = [int(size) if hasattr(size, "value") else str(size) for size in kind.shape]
    return {"name": name, "shape": shape, "dtype": str(kind.dtype)}
