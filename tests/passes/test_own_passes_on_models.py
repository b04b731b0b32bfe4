"""The passes that rewrite whole patterns on small models: the same results as PyTorch's, from fewer functions."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name that torch's users know
from chain import results, run_chain
from torch import nn

from pydoit import importers, passes
from pydoit.dims import extents_of_sample
from pydoit.importers.spec import ModelSpec
from pydoit.passes import Entry, Setting, check_order, name_of
from pydoit.random_tensors import random_sample
from pydoit.tvm_compat import load_json, relax

WIDTH, HEADS, HIDDEN = 64, 4, 96


class RmsNorm(nn.Module):
    """As transformers writes it, with the weight first."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(WIDTH) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.to(torch.float32)
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class GateAndUp(nn.Module):
    """SwiGLU of two products."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(WIDTH, HIDDEN, bias=False) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.silu(self.gate(x)) * self.up(x)


class GateUp(nn.Module):
    """SwiGLU of the halves of one product, with SiLU written out."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_up = nn.Linear(WIDTH, 2 * HIDDEN, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return gate * torch.sigmoid(gate) * up


class Layer(nn.Module):
    """One layer of a Llama, without positions."""

    def __init__(self, norm: nn.Module, gated: nn.Module) -> None:
        super().__init__()
        self.before, self.after, self.gated = norm, nn.RMSNorm(WIDTH, eps=1e-6), gated
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        h = self.before(x)
        query, key, value = (
            product(h).view(*h.shape[:2], HEADS, -1).transpose(1, 2) for product in (self.query, self.key, self.value)
        )
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        x = x + self.out(attended.transpose(1, 2).reshape(x.shape))
        return x + self.down(self.gated(self.after(x)))


class Llama(nn.Module):
    """Two layers under a mask that is written as tokenizers and exporters do, by what is blocked."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(RmsNorm(), GateAndUp()), Layer(nn.RMSNorm(WIDTH, eps=1e-6), GateUp())])
        self.norm = nn.RMSNorm(WIDTH, eps=1e-6)

    def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        length = x.shape[1]
        causal = torch.tril(torch.ones(length, length, dtype=torch.bool))
        blocked = ~(causal & (keep.bool().to(torch.int64) != 0)[:, None, None, :])
        for layer in self.layers:
            x = layer(x, ~blocked)
        return self.norm(x)


class ChannelsLast(nn.Module):
    """Convolutions of a framework that has channels last: a transpose before and after each."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.scale = nn.Parameter(torch.rand(16) + 0.5)
        self.head = nn.Linear(16, 5)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.first(image.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        x = F.relu(x) * self.scale
        x = torch.tanh(x + self.second(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1))
        return self.head(x.mean((1, 2)))


def make_llama() -> nn.Module:
    torch.manual_seed(1)
    return Llama().eval()


def make_channels_last() -> nn.Module:
    torch.manual_seed(1)
    return ChannelsLast().eval()


@dataclass(frozen=True)
class Case:
    """A model, and how many functions one inference calls without and with the passes."""

    make: Callable[[], nn.Module]
    inputs: dict[str, dict[str, Any]]
    functions: tuple[int, int]
    changed: frozenset[str]
    """The new passes that change it."""
    dims: dict[str, dict[str, int]] | None = None

    @property
    def spec(self) -> dict[str, Any]:
        factory = f"test_own_passes_on_models:{self.make.__name__}"
        return {"source": "torch", "factory": factory, "inputs": self.inputs, "dims": self.dims or {}}


def tokens(*extents: int | str) -> dict[str, dict[str, Any]]:
    mask = {"shape": extents, "dtype": "int64", "range": (0, 1)}
    return {"x": {"shape": (*extents, WIDTH), "dtype": "float32"}, "keep": mask}


IN_LLAMA = frozenset(("SimplifyBooleans", "FuseRmsNorm", "FuseSwiGLU"))
CASES = {
    "llama": Case(make_llama, tokens(2, 12), (39, 34), IN_LLAMA),
    "llama of any length": Case(
        make_llama, tokens("batch", "length"), (46, 39), IN_LLAMA,
        {"batch": {"min": 1, "max": 4}, "length": {"min": 2, "max": 40}},
    ),
    "channels last": Case(
        make_channels_last, {"image": {"shape": (1, 8, 8, 3), "dtype": "float32"}}, (6, 4), frozenset({"PropagateTranspose"})
    ),
}  # fmt: skip

NEW = ("SimplifyBooleans", "FuseRmsNorm", "FuseSwiGLU", "PropagateTranspose", "ShareConstants", "FuseOpsGuarded")
BASE = tuple(use for use in passes.PRESETS["O2"] if name_of(use) not in NEW)
PLACES = {
    "FuseSafeSoftmax": ("SimplifyBooleans", "FuseSafeSoftmax", "FuseRmsNorm", "FuseSwiGLU"),
    "PackWeights": ("PropagateTranspose", "PackWeights"),
    "LegalizeForCpu": ("ShareConstants", "LegalizeForCpu"),
}


def with_passes(fusion: Entry = "FuseOpsGuarded") -> tuple[Entry, ...]:
    """O2 with all of them."""
    order: list[Entry] = []
    for use in BASE:
        order += [fusion] if use == "FuseOps" else PLACES.get(name_of(use), (use,))
    return tuple(order)


def functions(out: dict[str, Path]) -> int:
    """How many functions one inference calls."""
    main = load_json((out["optimize"] / "module.json").read_text(encoding="utf-8"))["main"]
    bindings = [binding.value for block in main.body.blocks for binding in block.bindings]
    return sum(isinstance(value, relax.Call) and value.op.name == "relax.call_tir" for value in bindings)


def changed(out: dict[str, Path]) -> set[str]:
    """The new passes that changed the model, without fusion, which every model needs."""
    log = json.loads((out["optimize"] / "passes.json").read_bytes())["passes"]
    return {entry["name"] for entry in log if entry["changed"] and entry["name"] in NEW[:-1]}


def built(case: Case, folder: Path, order: Sequence[Entry]) -> dict[str, Path]:
    """Build it and compare what it computes with PyTorch."""
    spec = ModelSpec.model_validate(case.spec)
    out = run_chain(case.spec, folder, order=order)
    reference = importers.reference(spec, folder / "fetch/model")
    for number in range(4):
        sample = random_sample(spec.inputs, 3, number, extents_of_sample(spec.dims, 3, number))
        for name, wanted in reference(sample).items():
            np.testing.assert_allclose(results(out, **sample)[name], wanted, rtol=0, atol=1e-4)
    return out


def test_the_order_is_legal() -> None:
    assert check_order(with_passes(), Setting()) == []


@pytest.mark.parametrize("name", CASES)
def test_fewer_functions_and_equal_results(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    base, new = built(case, tmp_path / "base", BASE), built(case, tmp_path / "new", with_passes())
    assert (functions(base), functions(new)) == case.functions
    assert changed(new) == case.changed


def test_tight_limits_of_fusion_change_no_result(tmp_path: Path) -> None:
    case = CASES["llama of any length"]
    out = built(case, tmp_path, with_passes({"name": "FuseOpsGuarded", "max_operators": 3, "max_inputs": 3}))
    assert functions(out) > case.functions[1]
