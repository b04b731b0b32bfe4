"""Symbolic dimensions: one library for all extents within the bounds, equal to PyTorch at each, checked at each call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name that torch's users know
from chain import run_chain, verified
from torch import nn
from zoo import Net, TwoInputs, attention

from pydoit.errors import StageError, UserError
from pydoit.runtime import load


@dataclass(frozen=True)
class Case:
    """A model whose input shapes hold names of dimensions."""

    build: Callable[[], nn.Module]
    inputs: dict[str, tuple[tuple[int | str, ...], str]]
    dims: dict[str, tuple[int, int]]


def convolutions() -> nn.Module:
    def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(net.norm(net.first(x)))
        x = net.pool(F.hardswish(net.depthwise(x)))
        return net.last(x).mean((2, 3))

    return Net(
        forward, first=nn.Conv2d(3, 16, 3, stride=2, padding=1), norm=nn.BatchNorm2d(16), pool=nn.MaxPool2d(2),
        depthwise=nn.Conv2d(16, 16, 5, padding=2, groups=16), last=nn.Conv2d(16, 10, 1),
    )  # fmt: skip


CASES = {
    "mlp-batch": Case(
        lambda: Net(lambda n, x: n.b(F.gelu(n.a(x))), a=nn.Linear(17, 48), b=nn.Linear(48, 5)),
        {"x": (("batch", 17), "float32")}, {"batch": (1, 9)},
    ),
    "attention-both": Case(attention(3, 8), {"x": (("batch", "length", 24), "float32")}, {"batch": (1, 3), "length": (1, 40)}),
    "masked": Case(
        TwoInputs,
        {"ids": (("batch", "length"), "int64"), "mask": (("batch", "length"), "int64")},
        {"batch": (1, 3), "length": (2, 33)},
    ),
    "images": Case(
        convolutions, {"x": (("batch", 3, "height", "width"), "float32")},
        {"batch": (1, 2), "height": (8, 40), "width": (8, 40)},
    ),
    "upsampled": Case(
        lambda: upsampled(), {"x": ((1, 3, "height", "width"), "float32")}, {"height": (4, 30), "width": (4, 50)}
    ),
    "by-size": Case(
        lambda: Net(lambda net, x: x * 2 if x.shape[0] > 4 else x * 3), {"x": (("batch", 5), "float32")}, {"batch": (1, 9)}
    ),
    "sequence-only": Case(attention(2, 16), {"x": ((1, "length", 32), "float32")}, {"length": (5, 64)}),
}  # fmt: skip


def spec_of(case: Case, factory: str) -> dict[str, Any]:
    ranges = {"ids": (0, 30), "mask": (1, 1)}
    inputs = {n: {"shape": shape, "dtype": dtype, "range": ranges.get(n)} for n, (shape, dtype) in case.inputs.items()}
    dims = {name: {"min": low, "max": high} for name, (low, high) in case.dims.items()}
    return {"source": "torch", "factory": factory, "inputs": inputs, "dims": dims, "weights": "random:0"}


def make(name: str) -> nn.Module:
    torch.manual_seed(0)
    return CASES[name].build()


for _name in CASES:  # a factory for each case, as recipes name them
    globals()["make_" + _name.replace("-", "_")] = partial(make, _name)


@pytest.mark.parametrize("preset", ["O0", "O2"])
@pytest.mark.parametrize("name", [name for name in CASES if name != "by-size"])
def test_one_library_serves_all_extents(name: str, preset: str, tmp_path: Path) -> None:
    spec = spec_of(CASES[name], f"test_dims:make_{name.replace('-', '_')}")
    out = run_chain(spec, tmp_path / "out", preset)
    measured = verified(spec, out, tmp_path, samples=20, max_abs=1e-4)
    assert measured["passed"]
    assert measured["samples"] == 20


def upsampled() -> nn.Module:
    def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
        x = F.interpolate(net.first(x), scale_factor=2, mode="bilinear")
        return F.interpolate(x, scale_factor=3, mode="nearest")

    return Net(forward, first=nn.Conv2d(3, 4, 3))


def test_bounds_that_the_model_does_not_keep_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"model.dims: the model does not take all extents alike .*narrow the bounds"):
        run_chain(spec_of(CASES["by-size"], "test_dims:make_by_size"), tmp_path)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("masked")
    return run_chain(spec_of(CASES["masked"], "test_dims:make_masked"), folder, "O1")["package"]


@pytest.mark.parametrize(
    ("ids", "mask", "message"),
    [
        ((4, 5), (4, 5), r"axis 0 \(batch\) is 4, not within 1..3"),
        ((2, 34), (2, 34), r"axis 1 \(length\) is 34, not within 2..33"),
        ((2, 1), (2, 1), r"axis 1 \(length\) is 1, not within 2..33"),
        ((2, 5), (2, 6), r"axis 1 \(length\) is 6, but 5 elsewhere"),
        ((2, 5, 1), (2, 5), r"has 3 axes, not 2"),
    ],
)
def test_a_call_outside_the_bounds_is_refused(
    artifact: Path, ids: tuple[int, ...], mask: tuple[int, ...], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        load(artifact)(ids=np.ones(ids, np.int64), mask=np.ones(mask, np.int64))


def test_the_manifest_names_dimensions_and_bounds(artifact: Path) -> None:
    model = load(artifact)
    assert model.dims == {"batch": (1, 3), "length": (2, 33)}
    assert [spec.shape for spec in model.inputs] == [("batch", "length"), ("batch", "length")]
    assert [spec.shape for spec in model.outputs] == [("batch", "length", 24), ("batch", 24)]
