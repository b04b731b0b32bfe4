"""The checker's word is true: whatever order it calls legal computes what PyTorch computes."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from pydoit import passes
from pydoit.execution import Executor, difference
from pydoit.importers.spec import ModelSpec
from pydoit.passes.order import Setting
from pydoit.passes.running import run_passes
from pydoit.passes.sampling import neighbour, random_order
from pydoit.stages import import_
from pydoit.target import ResolvedTarget, make_tvm_target

TARGET = ResolvedTarget(kind="cpu", arch="x86-64-v3", threads=2)
SAMPLE, ALL = 8, 500
"""Orders a model: in every run, and in the long one."""


class Cnn(nn.Module):
    """Uneven padding, batch norms, ReLU6, a residual, a depthwise convolution, a pooling, a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, stride=2, bias=False)
        self.norm1 = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.norm2 = nn.BatchNorm2d(8)
        self.pointwise = nn.Conv2d(8, 8, 1)
        self.classifier = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.relu6(self.norm1(self.first(nn.functional.pad(x, (0, 1, 0, 1)))))
        x = x + self.pointwise(torch.relu(self.norm2(self.depthwise(x))))
        return self.classifier(nn.functional.max_pool2d(x, 2).mean((2, 3)))


class Transformer(nn.Module):
    """Embedding, masked attention of two heads, layer norm, GELU, parallel products."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(17, 16)
        self.query, self.key, self.value = (nn.Linear(16, 16) for _ in range(3))
        self.output = nn.Linear(16, 16)
        self.norm = nn.LayerNorm(16)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        heads = [layer(x).reshape(1, 6, 2, 8).transpose(1, 2) for layer in (self.query, self.key, self.value)]
        attended = nn.functional.scaled_dot_product_attention(*heads, attn_mask=mask[:, None, None, :].bool())
        x = self.norm(x + self.output(attended.transpose(1, 2).reshape(1, 6, 16)))
        return self.norm(x + self.down(nn.functional.gelu(self.up(x))))


def seeded(kind: type[nn.Module]) -> nn.Module:
    torch.manual_seed(3)
    model = kind().eval()
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.uniform_(layer.running_var, 0.5, 1.5)
            nn.init.normal_(layer.running_mean)
            nn.init.normal_(layer.weight)
    return model


def cnn() -> nn.Module:
    """A factory."""
    return seeded(Cnn)


def transformer() -> nn.Module:
    """A factory."""
    return seeded(Transformer)


MODELS: dict[str, dict[str, Any]] = {
    "cnn": {"x": {"shape": (1, 3, 12, 12), "dtype": "float32"}},
    "transformer": {
        "tokens": {"shape": (1, 6), "dtype": "int64", "range": (0, 16)},
        "mask": {"shape": (1, 6), "dtype": "int64", "range": (0, 1)},
    },
}


class Imported:
    """A model's module, and PyTorch's outputs for the executor's sample."""

    def __init__(self, name: str, folder: Path) -> None:
        import json

        from pydoit import lifting
        from pydoit.runtime.aligned import map_weights
        from pydoit.tvm_compat import load_json

        spec = ModelSpec.model_validate({"source": "torch", "factory": f"{__name__}:{name}", "inputs": MODELS[name]})
        (folder / "fetch/model").mkdir(parents=True)
        (folder / "import").mkdir()
        import_.run(import_.Spec.model_validate(spec.model_dump()), {"fetch": folder / "fetch"}, folder / "import")
        described = json.loads((folder / "import/spec.json").read_bytes())
        module = load_json((folder / "import/module.json").read_text())
        self.module = lifting.mark_inputs(module, len(described["inputs"]))
        params = map_weights(folder / "import/params.safetensors")
        self.executor = Executor(described, spec.inputs, params, TARGET)
        given = [torch.from_numpy(array) for array in self.executor.sample()]
        with torch.no_grad():
            self.wanted = [globals()[name]()(*given).numpy()]

    def fault(self, order: tuple[passes.Entry, ...]) -> str:
        """In what the order's results differ from PyTorch's; empty where they agree."""
        with make_tvm_target(TARGET):
            module, _, _ = run_passes(order, self.module)
        return difference(self.executor.outputs(module), self.wanted, 1e-4, ["output"])


@pytest.fixture(scope="module", params=MODELS)
def imported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Imported:
    return Imported(request.param, tmp_path_factory.mktemp(request.param))


def check(imported: Imported, seeds: range) -> None:
    faults = {}
    for seed in seeds:
        random = Random(seed)
        if seed % 2:
            order = random_order(random, Setting(), 20)
        else:
            order = tuple(passes.PRESETS["O3"])
            for _ in range(8):
                order = neighbour(random, order, Setting())
        try:
            fault = imported.fault(order)
        except Exception as error:  # noqa: BLE001 - a legal order that cannot be built is a fault as well
            fault = f"{type(error).__name__}: {str(error).strip().splitlines()[-1:]}"
        if fault:
            faults[seed] = (fault, order)
    assert not faults, "\n".join(f"{seed}: {fault}\n   {order}" for seed, (fault, order) in faults.items())


def test_presets_and_random_legal_orders_agree_with_pytorch(imported: Imported) -> None:
    for preset in passes.PRESETS.values():
        assert imported.fault(preset) == ""
    check(imported, range(SAMPLE))


@pytest.mark.slow
def test_500_random_legal_orders_agree_with_pytorch(imported: Imported) -> None:
    check(imported, range(ALL))


def test_the_comparison_sees_a_difference(imported: Imported) -> None:
    wanted = imported.wanted
    assert difference([wanted[0] + np.float32(0.1)], wanted, 1e-4, ["output"])
