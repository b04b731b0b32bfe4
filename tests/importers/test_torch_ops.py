"""Every converter of our own against eager PyTorch on odd shapes: through import and LegalizeOps, then compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name that torch's users know
from torch import nn

from pydoit.importers import torch as importer
from pydoit.importers import torch_ops
from pydoit.importers.spec import ModelSpec

MODEL: dict[str, nn.Module] = {}


class Net(nn.Module):
    """A function of one or several tensors as a module."""

    def __init__(self, function: Callable[..., Any], count: int) -> None:
        super().__init__()
        self.function = function
        self.count = count

    def forward(self, a: torch.Tensor, b: torch.Tensor | None = None, c: torch.Tensor | None = None) -> Any:
        return self.function(*(a, b, c)[: self.count])


@dataclass(frozen=True)
class Case:
    """A function and its inputs; arrays of whole numbers are drawn below `high`."""

    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...] = ("float32",)
    high: int = 3


def one(function: Callable[..., Any], *shape: int, dtype: str = "float32", high: int = 3) -> Case:
    return Case(function, (shape,), (dtype,), high)


def indexed(function: Callable[..., Any], data: tuple[int, ...], *indices: tuple[int, ...], high: int = 3) -> Case:
    return Case(function, (data, *indices), ("float32", *["int64"] * len(indices)), high)


INTEGER = {"dtype": "int64", "high": 9}
CASES: dict[str, Case] = {
    "amax": one(lambda a: a.amax(-1), 5, 7),
    "amax-two": one(lambda a: a.amax((0, 2), keepdim=True), 3, 5, 7),
    "amin-all": one(lambda a: a.amin(), 3, 5),
    "max-dim": one(lambda a: tuple(a.max(1)), 3, 5, 7),
    "min-dim": one(lambda a: tuple(a.min(-1, keepdim=True)), 3, 5, 7),
    "any": one(lambda a: (a > 0.9).any(), 3, 5),
    "any-numbers": one(lambda a: a.round().any(1), 3, 5),
    "all": one(lambda a: (a > -0.5).all(-1, keepdim=True), 5, 7),
    "all-dims": one(lambda a: (a > -0.9).all(0), 3, 5, 7),
    "prod": one(lambda a: a.prod(1), 3, 5),
    "prod-integers": one(lambda a: a.prod(1), 3, 5, **INTEGER),
    "sum-bool": one(lambda a: (a > 0).sum(1), 3, 7),
    "sum-all": one(lambda a: a.sum(), 3, 7),
    "mean-integers": one(lambda a: a.float().mean((0, 1)), 3, 7, **INTEGER),
    "cumsum-bool": one(lambda a: (a > 0).cumsum(-1), 3, 7),
    "cumprod": one(lambda a: a.cumprod(0), 3, 7),
    "var-mean": one(lambda a: torch.var_mean(a, (1,), correction=1), 3, 7),
    "var-mean-all": one(lambda a: torch.var_mean(a, correction=0, keepdim=True), 3, 7),
    "clamp": one(lambda a: a.clamp(-0.25, 0.5), 3, 7),
    "clamp-crossed": one(lambda a: a.clamp(0.5, -0.25), 3, 7),
    "clamp-low": one(lambda a: a.clamp(min=0), 3, 7),
    "clamp-integers": one(lambda a: a.clamp(min=2), 3, 7, **INTEGER),
    "clamp-integers-both": one(lambda a: a.clamp(3, 5), 3, 7, **INTEGER),
    "clamp-tensor": Case(lambda a, b: a.clamp(b, b + 0.25), ((3, 7), (7,)), ("float32", "float32")),
    "clamp-high": one(lambda a: torch.clamp_max(a, 0.125), 3, 7),
    "divide-integers": one(lambda a: a / 4, 3, 7, **INTEGER),
    "divide-int32": Case(lambda a, b: a / (b + 1), ((3, 7), (3, 7)), ("int32", "int32"), 9),
    "divide-floor": one(lambda a: torch.div(a - 4, 3, rounding_mode="floor"), 3, 7, **INTEGER),
    "divide-trunc": one(lambda a: torch.div(a - 4, 3, rounding_mode="trunc"), 3, 7, **INTEGER),
    "divide-floor-floats": one(lambda a: a // 0.3, 3, 7),
    "divide-trunc-floats": one(lambda a: torch.div(a, 0.3, rounding_mode="trunc"), 3, 7),
    "selu": one(F.selu, 3, 7),
    "celu": one(lambda a: F.celu(a * 3, 0.5), 3, 7),
    "elu": one(lambda a: F.elu(a * 3, 0.5), 3, 7),
    "silu": one(F.silu, 3, 7),
    "log-integers": one(lambda a: (a + 1).log(), 3, 7, **INTEGER),
    "logs": one(lambda a: (a.abs() + 1).log2() + (a.abs() + 1).log10() + a.abs().log1p(), 3, 7),
    "sqrt-integers": one(lambda a: a.sqrt() + a.exp() + torch.sigmoid(a), 3, 7, dtype="int64", high=4),
    "pow": one(lambda a: (a**2, a**3, a.abs() ** 0.5, (a.abs() + 1) ** -0.5, a.abs() ** 1.7, a**0), 3, 7),
    "pow-integers": one(lambda a: a**5, 3, 7, **INTEGER),
    "index-one": indexed(lambda a, b: a[:, b], (5, 3, 7), (4,)),
    "index-negative": indexed(lambda a, b: a[b - 2], (5, 3), (4,)),
    "index-two": indexed(lambda a, b, c: a[b, c], (5, 3, 7), (4, 1), (2,)),
    "index-two-later": indexed(lambda a, b, c: a[:, b, c], (2, 5, 3, 7), (4,), (4,)),
    "index-apart": indexed(lambda a, b, c: a[b, :, c], (5, 3, 7), (4,), (2, 4)),
    "index-rows": indexed(lambda a, b: a[torch.arange(3), b], (3, 4, 5), (3,)),
    "index-matrix": indexed(lambda a, b: a[b], (5, 7), (2, 3)),
    "index-select": indexed(lambda a, b: a.index_select(1, b), (5, 3, 7), (4,)),
    "select-last": one(lambda a: (a[:, -1], a[-2]), 5, 3, 7),
    "index-put": indexed(lambda a, b: a.index_put((b,), torch.ones(())), (5, 3), (4,)),
    "index-put-add": indexed(lambda a, b: a.index_put((b,), torch.full((4, 3), 0.5), accumulate=True), (5, 3), (4,)),
    "index-put-two": indexed(lambda a, b, c: a.index_put((b, c), torch.zeros(2)), (5, 3, 2), (4, 1), (4,)),
    "index-put-later": indexed(lambda a, b: torch.ops.aten.index_put(a, [None, b], torch.zeros(4, 7)), (2, 3, 7), (4,)),
    "index-put-mask": one(lambda a: a.index_put((a > 0,), torch.tensor(-1.0)), 5, 3),
    "masked-scatter": Case(lambda a, b: a.masked_scatter(a > 0, b), ((5, 3), (4, 5)), ("float32", "float32")),
    "scatter": indexed(lambda a, b: torch.zeros(5, 7).scatter(1, b, a), (5, 3), (5, 1), high=6),
    "scatter-value": indexed(lambda a, b: a.scatter(0, b, 2.5), (5, 3), (1, 3)),
    "scatter-add": indexed(lambda a, b: a.scatter_add(1, b, a), (5, 3), (5, 3)),
    "scatter-reduce-max": indexed(lambda a, b: a.scatter_reduce(1, b, -a, "amax"), (5, 3), (5, 3)),
    "scatter-reduce-mean": indexed(lambda a, b: a.scatter_reduce(1, b, a * 2, "mean", include_self=False), (5, 3), (5, 3)),
    "scatter-reduce-prod": indexed(lambda a, b: a.scatter_reduce(0, b, a, "prod", include_self=False), (5, 3), (5, 3)),
    "gather": indexed(lambda a, b: a.gather(1, b), (5, 3), (5, 2)),
    "topk": one(lambda a: tuple(a.topk(3, -1)), 5, 7),
    "topk-unsorted": one(lambda a: a.topk(3, 0, sorted=False).values.sum(0), 5, 7),
    "topk-smallest": one(lambda a: tuple(a.topk(2, 0, largest=False)), 5, 7),
    "sort": one(lambda a: tuple(a.sort(1, descending=True)), 5, 7),
    "sort-stable": one(lambda a: tuple(a.round().sort(dim=0, stable=True)), 5, 7),
    "cat-empty": one(lambda a: torch.cat([a[:, :0], a, a[:, 3:3], a], 1), 5, 7),
    "cat-types": one(lambda a: torch.cat([a, a.round().long()], 1), 5, 7),
    "avg-pool-divisor": one(lambda a: F.avg_pool2d(a, 3, 2, 1, divisor_override=5), 1, 3, 8, 11),
    "avg-pool-divisor-ceil": one(lambda a: F.avg_pool2d(a, (3, 2), 2, (1, 0), True, divisor_override=4), 1, 3, 8, 11),
    "avg-pool": one(lambda a: F.avg_pool2d(a, (3, 2), 2, (1, 0), True, False), 1, 3, 8, 11),
    "avg-pool-unbatched": one(lambda a: F.avg_pool2d(a, 2), 3, 8, 11),
    "max-pool-indices": one(lambda a: F.max_pool2d(a, 3, 2, 1, return_indices=True), 2, 3, 8, 11),
    "max-pool-indices-ceil": one(lambda a: F.max_pool2d(a, (2, 3), 2, 0, ceil_mode=True, return_indices=True), 1, 3, 9, 12),
    "max-pool-indices-dilated": one(lambda a: F.max_pool2d(a, 3, 1, 1, 2, return_indices=True), 1, 2, 9, 7),
    "nearest-2.5": one(lambda a: F.interpolate(a, scale_factor=2.5, mode="nearest"), 1, 3, 5, 7),
    "nearest-size": one(lambda a: F.interpolate(a, size=(7, 4), mode="nearest"), 1, 3, 5, 7),
    "nearest-whole": one(lambda a: F.interpolate(a, scale_factor=(2, 3), mode="nearest"), 1, 3, 5, 7),
    "nearest-1d": one(lambda a: F.interpolate(a, size=11, mode="nearest"), 1, 3, 7),
    "nearest-3d": one(lambda a: F.interpolate(a, scale_factor=1.7, mode="nearest"), 1, 2, 3, 4, 5),
    "nearest-exact": one(lambda a: F.interpolate(a, size=(8, 11), mode="nearest-exact"), 1, 3, 5, 7),
    "bilinear": one(lambda a: F.interpolate(a, scale_factor=1.7, mode="bilinear"), 1, 3, 5, 7),
    "bilinear-corners": one(lambda a: F.interpolate(a, size=(8, 3), mode="bilinear", align_corners=True), 1, 3, 5, 7),
    "bicubic": one(lambda a: F.interpolate(a, size=(8, 11), mode="bicubic"), 1, 3, 5, 7),
    "bilinear-antialias": one(lambda a: F.interpolate(a, size=(3, 4), mode="bilinear", antialias=True), 1, 3, 8, 11),
    "grid-sample": Case(lambda a, b: F.grid_sample(a, b, align_corners=False), ((3, 5, 4, 6), (3, 9, 4, 2)), ("float32",) * 2),
    "grid-sample-border": Case(
        lambda a, b: F.grid_sample(a, b * 1.5, "nearest", "border", True), ((1, 5, 4, 6), (1, 3, 4, 2)), ("float32",) * 2
    ),
    "bool-arithmetic": one(lambda a: ((a > 0) * (a < 0.5), (a > 0) + (a < -0.5), (a > 0) ^ (a > 0.5)), 5, 7),
    "masked-fill": one(lambda a: a.masked_fill(a > 0, float("-inf")).softmax(-1)[:, :3].nan_to_num(), 5, 7),
    "tril": one(lambda a: a.tril(-1) + a.triu(1), 5, 7),
    "remainder": one(lambda a: (a % 0.3, torch.fmod(a, 0.3), torch.remainder(a, -0.3)), 5, 7),
    "einsum": one(lambda a: torch.einsum("bij,bkj->ikb", a, a), 3, 5, 7),
    "unfold": one(lambda a: a.unfold(1, 3, 2), 5, 7),
    "im2col": one(lambda a: F.unfold(a, 3, padding=1, stride=2), 1, 3, 5, 7),
    "roll": one(lambda a: a.roll((2, -1), (0, 1)), 5, 7),
    "pads": one(lambda a: (F.pad(a, (2, 1), "reflect"), F.pad(a, (2, 1), "replicate"), F.pad(a, (1, 2), "circular")), 1, 3, 7),
    "norm": one(lambda a: (F.normalize(a, dim=1), a.norm(dim=0), a.norm(1, dim=1), a.norm(float("inf"))), 5, 7),
    "one-hot": one(lambda a: F.one_hot(a, 9), 5, 7, **INTEGER),
    "strided": one(lambda a: (a[::2, 1:6:2], a.flip(0, 1), a.unflatten(1, (7, 1)), a.movedim(0, 1)), 5, 7),
    "repeat": one(lambda a: (a.repeat(2, 1, 3), a.repeat_interleave(3, 1), a.expand(2, 5, 7)), 5, 7),
    "bucketize": one(lambda a: torch.bucketize(a, torch.tensor([-0.5, 0.0, 0.25])), 5, 7),
    "logsumexp": one(lambda a: (a.logsumexp(1), F.log_softmax(a, 0), F.logsigmoid(a), F.softplus(a, 2.0, 0.5)), 5, 7),
    "activations": one(lambda a: (F.hardswish(a * 4), F.mish(a), F.hardsigmoid(a * 4), F.softsign(a), F.relu6(a * 9)), 5, 7),
    "more-activations": one(lambda a: (F.gelu(a, approximate="tanh"), F.glu(a[:, :6]), F.leaky_relu(a, 0.3), F.threshold(a, 0.1, 7.0),
                                       F.hardtanh(a), F.softshrink(a), F.hardshrink(a), F.tanhshrink(a)), 5, 7),
    "std": one(lambda a: (a.std(1), a.var(0, correction=0), a.std()), 5, 7),
    "outer": one(lambda a: (torch.outer(a[0], a[:, 0]), a.diagonal(1), torch.trace(a[:, :5]), a.T @ a, torch.kron(a, a[:1])), 5, 7),
    "erf": one(lambda a: (torch.erf(a), torch.erfc(a), torch.expm1(a), a.tan(), a.atan2(a + 1), a.sinh(), a.frac(), a.sign()), 5, 7),
    "argmax": one(lambda a: (a.argmax(), a.argmin(1, keepdim=True), a.argsort(1)), 5, 7),
    "addcmul": one(lambda a: (torch.addcmul(a, a, a, value=0.5), torch.addcdiv(a, a, a + 2), torch.lerp(a, -a, 0.3)), 5, 7),
    "cdist": Case(lambda a, b: torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist"), ((5, 7), (3, 7)), ("float32", "float32")),
    "group-norm": one(lambda a: F.group_norm(a, 3), 2, 6, 5),
    "norms-plain": one(lambda a: (F.layer_norm(a, (5,)), F.group_norm(a, 3), F.instance_norm(a)), 2, 6, 5),
    "bicubic-antialias": one(lambda a: F.interpolate(a, size=(3, 4), mode="bicubic", antialias=True), 1, 3, 8, 11),
    "as-strided": one(lambda a: a.as_strided((3, 4), (2, 5), 1), 5, 7),
    "cdist-1": Case(lambda a, b: torch.cdist(a, b, 1.0), ((2, 5, 7), (2, 3, 7)), ("float32", "float32")),
    "adaptive": one(lambda a: (F.adaptive_avg_pool2d(a, (3, 2)), F.adaptive_max_pool2d(a, 2)), 1, 3, 8, 6),
    "pools": one(lambda a: (F.max_pool1d(a, 3, 2, 1), F.avg_pool1d(a, 3, 2, 1), F.adaptive_avg_pool1d(a, 5)), 2, 3, 11),
}  # fmt: skip


def model(folder: Any) -> nn.Module:
    return MODEL["model"]


def sample(case: Case) -> dict[str, np.ndarray[Any, Any]]:
    random = np.random.default_rng(11)
    arrays = {}
    for name, shape, dtype in zip("abc", case.shapes, (*case.dtypes, *case.dtypes), strict=False):
        whole = random.integers(0, case.high, shape).astype(dtype)
        arrays[name] = random.uniform(-1, 1, shape).astype(dtype) if dtype == "float32" else whole
    return arrays


def evaluate(case: Case) -> tuple[list[Any], list[Any], dict[str, int]]:
    """What eager PyTorch gives, what the imported module gives, and its operators."""
    from pydoit.kernels.lowering import compile_module
    from pydoit.target import ResolvedTarget, make_tvm_target
    from pydoit.tvm_compat import relax, tvm

    arrays = sample(case)
    MODEL["model"] = Net(case.function, len(arrays))
    inputs = {name: {"shape": list(array.shape), "dtype": str(array.dtype)} for name, array in arrays.items()}
    inputs = {n: {**i, "range": [0, case.high - 1]} if i["dtype"] != "float32" else i for n, i in inputs.items()}
    spec = ModelSpec.model_validate({"source": "torch", "factory": f"{__name__}:model", "inputs": inputs})
    expected = importer.reference(spec, None)(arrays)  # type: ignore[arg-type]
    imported = importer.load(spec, None)  # type: ignore[arg-type]
    target = make_tvm_target(ResolvedTarget(kind="cpu", arch="x86-64-v2"))
    with target:
        module = relax.transform.LegalizeOps()(relax.transform.FoldConstant()(imported.module))
    machine = relax.VirtualMachine(compile_module(module, target), tvm.cpu())
    found = machine["main"](*(tvm.runtime.tensor(arrays[name]) for name in imported.inputs))
    return list(expected.values()), [item.numpy() for item in found], imported.operators()


@pytest.mark.parametrize("name", CASES)
def test_matches_eager(name: str) -> None:
    expected, found, _ = evaluate(CASES[name])
    assert len(expected) == len(found)
    for wanted, given in zip(expected, found, strict=True):
        assert given.shape == wanted.shape
        assert given.dtype == wanted.dtype
        np.testing.assert_allclose(given, wanted, rtol=2e-5, atol=2e-6)


def test_every_converter_names_an_operator_of_torch() -> None:
    for name in torch_ops.convert_map():
        packet, _, overload = name.partition(".")
        assert hasattr(getattr(torch.ops.aten, packet), overload)
