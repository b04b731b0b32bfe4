"""TorchScript archives: trust, hidden state as inputs and outputs, constants that decide control flow, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from chain import results, run_chain
from torch import nn

from pydoit import importers
from pydoit.errors import StageError, UserError
from pydoit.importers.spec import ModelSpec


class Filter(nn.Module):
    """Keeps what it last saw, counts its calls, and has two rates."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 7)
        self.register_buffer("last", torch.zeros(3, 7))
        self.calls = 0

    def forward(self, x: torch.Tensor, rate: int) -> torch.Tensor:
        if x.dim() != 2:
            raise ValueError("two axes")
        y = self.layer(x)
        if rate == 2:
            y = y * 0.5
        for index in range(rate):
            y = y + index * self.last
        self.last = y
        self.calls += 1
        return torch.relu(y)


class Branch(nn.Module):
    """Depends on a value."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool(x.sum() > 0):
            return x
        return -x


def spec(**changes: Any) -> dict[str, Any]:
    inputs = {"x": {"shape": [3, 5], "dtype": "float32"}, "last": {"shape": [3, 7], "dtype": "float32"}}
    return {"source": "torchscript", "trusted": True, "constants": {"rate": 2}, "inputs": inputs, **changes}


def saved(model: nn.Module, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    torch.jit.script(model.eval()).save(str(folder / "model.jit"))
    return folder


pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def test_state_is_an_input_and_an_output(tmp_path: Path) -> None:
    saved(Filter(), tmp_path / "fetch/model")
    out = run_chain(spec(), tmp_path)
    reference = importers.reference(ModelSpec.model_validate(spec()), tmp_path / "fetch/model")
    random = np.random.default_rng(0)
    state = random.normal(size=(3, 7)).astype("float32")
    for _ in range(3):
        sample = {"x": random.normal(size=(3, 5)).astype("float32"), "last": state}
        expected, found = reference(sample), results(out, **sample)
        assert list(found) == ["output", "last"]
        for name, wanted in expected.items():
            np.testing.assert_allclose(found[name], wanted, rtol=1e-5, atol=1e-6)
        state = found["last"]


def test_traced_modules_and_their_names(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.ReLU()).eval()
    torch.jit.trace(net, torch.zeros(1, 3, 9, 7)).save(str(tmp_path / "net.pt"))
    inputs = {"input": {"shape": [1, 3, 9, 7], "dtype": "float32"}}
    imported = importers.load(ModelSpec.model_validate(spec(constants={}, inputs=inputs)), tmp_path)
    assert set(imported.params) == {name for name, value in net.state_dict().items() if value.is_floating_point()}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trusted": False}, "set model.trusted = true"),
        ({"inputs": {"x": {"shape": [3, 5], "dtype": "float32"}}}, r"\[model.inputs.last\] shape = \[3, 7\]"),
        ({"constants": {}}, "also needs the input 'rate'"),
        ({"constants": {"rat": 2}}, "model.constants.rat: the model takes no input 'rat'; did you mean 'rate'?"),
    ],
)
def test_specs_that_do_not_fit(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        importers.load(ModelSpec.model_validate(spec(**changes)), saved(Filter(), tmp_path))


def test_control_flow_on_values_is_refused(tmp_path: Path) -> None:
    inputs = {"x": {"shape": [3, 5], "dtype": "float32"}}
    with pytest.raises(StageError, match=r"torch.export cannot trace the model.+depends on values"):
        importers.load(ModelSpec.model_validate(spec(constants={}, inputs=inputs)), saved(Branch(), tmp_path))


def test_files_that_are_no_archives(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected one TorchScript file"):
        importers.load(ModelSpec.model_validate(spec()), tmp_path)
    (tmp_path / "model.pt").write_bytes(b"PK\x03\x04 no archive")
    with pytest.raises(UserError, match=r"'model.pt' is no TorchScript archive"):
        importers.load(ModelSpec.model_validate(spec()), tmp_path)
