"""Tiny models for tests, and an unscheduled compilation of them, so that a test takes seconds."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

CPU = {"kind": "cpu", "arch": "x86-64-v3", "threads": 2}


class SmallNet(nn.Module):
    """Convolution, batch norm and a classifier; two named outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 6, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(6)
        self.classifier = nn.Linear(6, 5)

    def forward(self, image: torch.Tensor, scale: torch.Tensor) -> dict[str, torch.Tensor]:
        features = torch.relu(self.norm(self.convolution(image))).mean((2, 3))
        return {"features": features, "logits": self.classifier(features) * scale}


def small_net(folder: Path) -> nn.Module:
    """A factory with weights of its own, the same in every process."""
    torch.manual_seed(1)
    return SmallNet()


class ReshapedWrong(nn.Module):
    """Fails on anything but 12 elements."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(3, 4)


def reshaped_wrong() -> nn.Module:
    """A factory without an argument."""
    return ReshapedWrong()


def not_a_module(folder: Path) -> int:
    """A factory that returns the wrong thing."""
    return 3


class Constant(nn.Module):
    """Gives the same output for every input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 0 + 1


def constant() -> nn.Module:
    """A factory whose verification would prove nothing."""
    return Constant()


class Branching(nn.Module):
    """Takes another way for other values, which no export can follow."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if float(x.sum()) > 0 else x - 1


def branching() -> nn.Module:
    """A factory of a model that torch.export refuses."""
    return Branching()


class Cumulative(nn.Module):
    """Two operators that TVM's importer lacks."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.logcumsumexp(x, 0) + torch.special.i0(x) + torch.special.i0(x + 1)


def cumulative() -> nn.Module:
    """A factory of an unsupported model."""
    return Cumulative()


SMALL_NET: dict[str, Any] = {
    "source": "torch",
    "factory": "small_models:small_net",
    "inputs": {
        "scale": {"shape": [1, 1], "dtype": "float32", "range": [0.5, 2.0]},
        "image": {"shape": [1, 3, 8, 8], "dtype": "float32"},
    },
}


def compile_plainly(imported: Path, folder: Path) -> dict[str, Path]:
    """Compile an import stage's output without schedules; the inputs of the later stages by stage name."""
    import tvm
    from tvm import relax

    from pydoit.profiling import FILE
    from pydoit.profiling.costs import document, entry_costs

    stages = {name: folder / name for name in ("optimize", "compile", "weights")}
    for path in stages.values():
        path.mkdir(parents=True)
    module = tvm.ir.load_json((imported / "module.json").read_text())
    target = tvm.target.Target({"kind": "llvm", "mcpu": CPU["arch"]})
    with target:
        lowered = relax.transform.LegalizeOps()(module)
        executable = tvm.compile(lowered, target)
        costs = document(entry_costs(lowered), lowered, {})
    (stages["compile"] / FILE).write_text(json.dumps(costs))
    executable.export_library(str(stages["compile"] / "lib.so"))
    spec = json.loads((imported / "spec.json").read_text())
    (stages["optimize"] / "spec.json").write_text(json.dumps({**spec, "weights": spec["params"]}))
    shutil.copyfile(imported / "params.safetensors", stages["weights"] / "model.safetensors")
    return stages


def build(model: dict[str, Any], folder: Path, fetched: Path | None = None) -> dict[str, Path]:
    """Import and compile `model`; the inputs of verify, profile and package."""
    from pydoit.stages import import_

    fetched = fetched or folder / "fetch"
    (fetched / "model").mkdir(parents=True, exist_ok=True)
    imported = folder / "import"
    imported.mkdir(parents=True)
    import_.run(import_.Spec.model_validate(model), {"fetch": fetched}, imported)
    return {"fetch": fetched, **compile_plainly(imported, folder)}


def package(stages: dict[str, Path], out: Path) -> Path:
    """The artifact folder of a compiled model."""
    from pydoit.stages import package as package_stage

    out.mkdir()
    package_stage.run(package_stage.Spec.model_validate({"recipe": "small", "target": CPU}), stages, out)
    return out


def ramp(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """The values with which examples/cpp/main.cpp fills an input."""
    index = np.arange(int(np.prod(shape)))
    values = (index % 16) / 16.0 if dtype == "float32" else 1 + index % 16
    return values.astype(dtype).reshape(shape)


class Dropping(nn.Module):
    """Drops elements even when it is evaluated."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(x, 0.5, training=True) + torch.randn_like(x)


def dropping(folder: Path) -> nn.Module:
    return Dropping()


class Nested(nn.Module):
    """Takes a list of dicts and a flag, and has a buffer that is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.arange(1, 13) / 7, persistent=False)
        self.register_buffer("order", torch.arange(12).flip(0))

    def forward(self, past: list[dict[str, torch.Tensor]], twice: bool) -> dict[str, torch.Tensor]:
        total = sum(layer["key"] * layer["value"] for layer in past) * self.scale
        return {"total": total * 2 if twice else total, "turned": total[self.order]}


def nested(folder: Path) -> nn.Module:
    return Nested()
