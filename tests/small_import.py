"""A small net as the import stage would write it: a convolution, a mean, a dense layer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from relax_modules import module_of, random
from safetensors.numpy import save_file

from pydoit.tvm_compat import relax, save_json

SHAPES: dict[str, tuple[int, ...]] = {"conv.weight": (16, 3, 3, 3), "head.weight": (16, 8), "head.bias": (8,)}


def net(x: Any, conv: Any, head: Any, bias: Any) -> Any:
    hidden = relax.op.nn.relu(relax.op.nn.conv2d(x, conv, padding=1))
    pooled = relax.op.reshape(relax.op.mean(hidden, axis=[2, 3]), [1, 16])
    return relax.op.add(relax.op.matmul(pooled, head), bias)


def write_import(folder: Path) -> Path:
    """Write module.json, params.safetensors and spec.json; return the folder."""
    names = {name.replace(".", "_"): shape for name, shape in SHAPES.items()}
    module = relax.transform.Normalize()(module_of(net, {"x": (1, 3, 8, 8)}, names))
    (folder / "module.json").write_text(save_json(module))
    save_file({name: random(*shape) for name, shape in SHAPES.items()}, folder / "params.safetensors")
    params = [{"name": name, "shape": list(shape), "dtype": "float32"} for name, shape in SHAPES.items()]
    inputs = [{"name": "x", "shape": [1, 3, 8, 8], "dtype": "float32"}]
    outputs = [{"name": "y", "shape": [1, 8], "dtype": "float32"}]
    spec = {"schema": 1, "entry": "main", "dims": {}, "inputs": inputs, "outputs": outputs, "params": params}
    (folder / "spec.json").write_text(json.dumps(spec))
    return folder
