"""Small models of every kind, with odd sizes, for tests that run the whole chain from import to compiled results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name that torch's users know
from torch import nn

Shapes = dict[str, tuple[tuple[int, ...], str]]


class Net(nn.Module):
    """A module of named parts and a forward function."""

    def __init__(self, function: Callable[..., Any], **parts: nn.Module) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x)


class TwoInputs(nn.Module):
    """Token ids and a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(31, 24)
        self.attention = nn.MultiheadAttention(24, 3, batch_first=True)
        self.norm = nn.LayerNorm(24)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
        states = self.embedding(ids)
        mixed, _ = self.attention(states, states, states, key_padding_mask=mask == 0, need_weights=False)
        states = self.norm(states + mixed)
        return {"states": states, "pooled": (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)}


@dataclass(frozen=True)
class Case:
    """A model and its inputs: name -> (shape, dtype)."""

    build: Callable[[], nn.Module]
    inputs: Shapes


def image(*shape: int) -> Shapes:
    return {"x": (shape, "float32")}


def conv(c: int, o: int, k: int, **options: Any) -> Callable[[], nn.Module]:
    return lambda: Net(lambda net, x: F.relu(net.norm(net.conv(x))), conv=nn.Conv2d(c, o, k, **options), norm=nn.BatchNorm2d(o))


def attention(heads: int, width: int) -> Callable[[], nn.Module]:
    def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = (part.view(batch, length, heads, width).transpose(1, 2) for part in net.qkv(x).chunk(3, -1))
        mixed = torch.softmax(q @ k.transpose(-1, -2) / width**0.5, -1) @ v
        return net.out(mixed.transpose(1, 2).reshape(batch, length, heads * width)) + x

    return lambda: Net(forward, qkv=nn.Linear(heads * width, 3 * heads * width), out=nn.Linear(heads * width, heads * width))


def pointwise(function: Callable[[torch.Tensor], Any]) -> Callable[[], nn.Module]:
    return lambda: Net(lambda net, x: function(x))


CASES: dict[str, Case] = {
    "mlp-odd": Case(lambda: Net(lambda n, x: n.b(F.gelu(n.a(x))), a=nn.Linear(17, 31), b=nn.Linear(31, 5)), image(3, 17)),
    "mlp-one": Case(lambda: Net(lambda n, x: n.b(torch.tanh(n.a(x))), a=nn.Linear(1, 1), b=nn.Linear(1, 1)), image(1, 1)),
    "mlp-deep": Case(
        lambda: Net(lambda n, x: n.b(F.silu(n.a(x))) + x, a=nn.Linear(64, 200), b=nn.Linear(200, 64)), image(33, 64)
    ),
    "mlp-4d": Case(lambda: Net(lambda n, x: torch.sigmoid(n.a(x)), a=nn.Linear(7, 48, bias=False)), image(2, 3, 5, 7)),
    "mlp-vector": Case(lambda: Net(lambda n, x: n.a(x), a=nn.Linear(48, 16)), image(48)),
    "gelu-tanh": Case(lambda: Net(lambda n, x: F.gelu(n.a(x), approximate="tanh"), a=nn.Linear(40, 40)), image(7, 40)),
    "conv-1x1": Case(conv(5, 17, 1), image(1, 5, 9, 7)),
    "conv-3x3-odd": Case(conv(3, 31, 3, padding=1), image(2, 3, 13, 11)),
    "conv-7x7-stride2": Case(conv(3, 64, 7, stride=2, padding=3, bias=False), image(1, 3, 33, 35)),
    "conv-rectangular": Case(conv(4, 8, (1, 5), padding=(0, 2)), image(1, 4, 6, 19)),
    "conv-dilated": Case(conv(8, 16, 3, padding=2, dilation=2), image(1, 8, 15, 15)),
    "conv-grouped": Case(conv(12, 18, 3, padding=1, groups=3), image(1, 12, 8, 8)),
    "conv-depthwise": Case(conv(17, 17, 3, padding=1, groups=17), image(2, 17, 9, 9)),
    "conv-depthwise-multiplier": Case(conv(6, 12, 3, stride=2, padding=1, groups=6), image(1, 6, 11, 11)),
    "conv-no-padding": Case(conv(16, 32, 3), image(1, 16, 5, 5)),
    "conv-one-pixel": Case(conv(32, 48, 1), image(1, 32, 1, 1)),
    "conv-reflect": Case(conv(3, 8, 3, padding=1, padding_mode="reflect"), image(1, 3, 8, 8)),
    "conv1d": Case(lambda: Net(lambda n, x: F.relu(n.a(x)), a=nn.Conv1d(5, 9, 3, padding=1)), image(2, 5, 21)),
    "conv3d": Case(lambda: Net(lambda n, x: n.a(x), a=nn.Conv3d(2, 4, 3, padding=1)), image(1, 2, 5, 6, 7)),
    "conv-transposed": Case(
        lambda: Net(lambda n, x: n.a(x), a=nn.ConvTranspose2d(6, 5, 3, stride=2, padding=1, output_padding=1)),
        image(1, 6, 7, 5),
    ),
    "residual": Case(
        lambda: Net(lambda n, x: F.relu(n.b(F.relu(n.a(x))) + x), a=nn.Conv2d(24, 12, 1), b=nn.Conv2d(12, 24, 3, padding=1)),
        image(1, 24, 10, 10),
    ),
    "squeeze-excite": Case(
        lambda: Net(
            lambda n, x: x * torch.sigmoid(n.b(F.silu(n.a(x.mean((2, 3), keepdim=True))))),
            a=nn.Conv2d(20, 5, 1),
            b=nn.Conv2d(5, 20, 1),
        ),
        image(1, 20, 6, 6),
    ),
    "relu6": Case(lambda: Net(lambda n, x: F.relu6(n.a(x) * 3), a=nn.Conv2d(3, 10, 3, stride=2)), image(1, 3, 12, 12)),
    "max-pool": Case(pointwise(lambda x: F.max_pool2d(x, 3, 2, 1)), image(1, 5, 11, 11)),
    "max-pool-ceil": Case(pointwise(lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True)), image(1, 5, 10, 10)),
    "average-pool": Case(pointwise(lambda x: F.avg_pool2d(x, 3, 2, 1)), image(1, 5, 11, 11)),
    "average-pool-inside": Case(pointwise(lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)), image(1, 5, 11, 11)),
    "adaptive-pool": Case(pointwise(lambda x: F.adaptive_avg_pool2d(x, (3, 2))), image(1, 7, 9, 8)),
    "layer-norm": Case(lambda: Net(lambda n, x: n.a(x), a=nn.LayerNorm(37)), image(3, 5, 37)),
    "layer-norm-two-axes": Case(lambda: Net(lambda n, x: n.a(x), a=nn.LayerNorm((5, 6))), image(3, 5, 6)),
    "group-norm": Case(lambda: Net(lambda n, x: n.a(x), a=nn.GroupNorm(3, 12)), image(2, 12, 5, 5)),
    "instance-norm": Case(lambda: Net(lambda n, x: n.a(x), a=nn.InstanceNorm2d(6, affine=True)), image(2, 6, 5, 7)),
    "batch-norm-alone": Case(lambda: Net(lambda n, x: n.a(x), a=nn.BatchNorm2d(7)), image(2, 7, 4, 4)),
    "softmax-last": Case(pointwise(lambda x: torch.softmax(x, -1)), image(3, 5, 33)),
    "softmax-middle": Case(pointwise(lambda x: torch.softmax(x, 1)), image(3, 5, 33)),
    "log-softmax": Case(pointwise(lambda x: torch.log_softmax(x, -1)), image(4, 10)),
    "attention-7": Case(attention(3, 8), image(2, 7, 24)),
    "attention-33": Case(attention(2, 17), image(1, 33, 34)),
    "attention-sdpa": Case(
        lambda: Net(lambda n, x: F.scaled_dot_product_attention(*n.a(x).chunk(3, -1)), a=nn.Linear(16, 48)), image(1, 2, 9, 16)
    ),
    "attention-causal": Case(pointwise(lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True)), image(1, 2, 9, 16)),
    "tokens": Case(TwoInputs, {"ids": ((3, 11), "int64"), "mask": ((3, 11), "int64")}),
    "tokens-and-convolution": Case(
        lambda: Net(
            lambda n, x: n.a(x)[0, torch.tensor(1)] + n.b(x.flatten(1))[:, None], a=nn.Conv2d(2, 4, 1), b=nn.Linear(24, 4)
        ),
        image(1, 2, 3, 4),
    ),
    "concat-split": Case(
        lambda: Net(lambda n, x: torch.cat([n.a(x[:, :3]), x[:, 3:]], 1).flip(2), a=nn.Conv2d(3, 4, 3, padding=1)),
        image(1, 8, 6, 6),
    ),
    "upsample-nearest": Case(pointwise(lambda x: F.interpolate(x, scale_factor=2, mode="nearest")), image(1, 3, 5, 4)),
    "upsample-bilinear": Case(
        pointwise(lambda x: F.interpolate(x, size=(9, 7), mode="bilinear", align_corners=False)), image(1, 3, 5, 4)
    ),
    "pixel-shuffle": Case(pointwise(lambda x: F.pixel_shuffle(x, 2)), image(1, 8, 3, 5)),
    "reductions": Case(pointwise(lambda x: (x.sum(0), x.max(-1).values, x.mean(), x.argmax(1), x.var(1))), image(5, 7, 9)),
    "amax": Case(pointwise(lambda x: x.amax(-1)), image(5, 7)),
    "log-cumulative": Case(pointwise(lambda x: x.logcumsumexp(-1)), image(5, 7)),
    "bool-products": Case(pointwise(lambda x: ((x > -0.8) * (x < 0.9)).all(-1, keepdim=True)), image(9, 4)),
    "empty-parts": Case(pointwise(lambda x: torch.cat([x[..., :4], x[..., 4:4], x], -1)), image(3, 8)),
    "scatter": Case(pointwise(lambda x: x.scatter(1, x.argmax(1, keepdim=True), 2.5)), image(5, 7)),
    "upsample-concat": Case(
        lambda: Net(
            lambda n, x: torch.cat([n.a(x), n.b(x)], 1),
            a=nn.ConvTranspose2d(6, 5, 3, stride=2),
            b=nn.ConvTranspose2d(6, 4, 3, stride=2),
        ),
        image(1, 6, 7, 5),
    ),
    "matmul-batched": Case(pointwise(lambda x: x @ x.transpose(-1, -2)), image(2, 3, 7, 13)),
    "matmul-vector": Case(pointwise(lambda x: x[0] @ x.transpose(0, 1)), image(5, 19)),
    "einsum": Case(pointwise(lambda x: torch.einsum("bij,bkj->bik", x, x * 2)), image(2, 6, 10)),
    "elementwise": Case(
        pointwise(lambda x: (x.exp().log1p() * x.abs().sqrt() - x.clamp(-0.5, 0.5) ** 3).where(x > 0, x.erf() + x.cos())),
        image(3, 41),
    ),
    "crop-convolution": Case(
        lambda: Net(lambda n, x: n.a(F.pad(x, (-1, -1, -1, -1))), a=nn.Conv2d(3, 4, 3, padding=1)), image(1, 3, 8, 8)
    ),
    "masked-rows": Case(
        pointwise(lambda x: F.scaled_dot_product_attention(x, x, x, attn_mask=torch.arange(16)[:, None] > torch.arange(16))),
        image(1, 2, 16, 8),
    ),
    "lstm": Case(lambda: Net(lambda n, x: n.a(x)[0], a=nn.LSTM(6, 5, batch_first=True)), image(2, 4, 6)),
    "rnn": Case(lambda: Net(lambda n, x: n.a(x)[0], a=nn.RNN(6, 5, batch_first=True)), image(2, 4, 6)),
    "transformer-layer": Case(
        lambda: Net(lambda n, x: n.a(x), a=nn.TransformerEncoderLayer(24, 3, 40, batch_first=True)), image(2, 7, 24)
    ),
    "broadcast": Case(pointwise(lambda x: x[:, None] * x[None, :, :1] + x.sum(-1, keepdim=True)[:, None]), image(6, 5)),
    "comparison": Case(pointwise(lambda x: ((x > 0) & (x < 0.5)) | (x == 1)), image(4, 9)),
    "pad": Case(pointwise(lambda x: F.pad(x, (1, 2, 3, 0), value=0.5)), image(1, 2, 5, 6)),
    "cumulative-sum": Case(pointwise(lambda x: x.cumsum(1)), image(3, 12)),
    "gather": Case(pointwise(lambda x: x[:, torch.tensor([3, 0, 2])]), image(4, 5)),
    "tied-weights": Case(lambda: Net(lambda n, x: F.linear(F.relu(n.a(x)), n.a.weight.t()), a=nn.Linear(20, 30)), image(2, 20)),
    "identity": Case(pointwise(lambda x: x), image(2, 3)),
    "scalar-output": Case(lambda: Net(lambda n, x: n.a(x).sum(), a=nn.Linear(8, 8)), image(3, 8)),
}


def make(name: str) -> Callable[[Path], nn.Module]:
    """A factory of the case with seeded weights and live batch-norm statistics."""

    def build(folder: Path) -> nn.Module:
        torch.manual_seed(3)
        module = CASES[name].build().eval()
        for part in module.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.running_mean.normal_(0, 0.3)
                part.running_var.uniform_(0.5, 2)
                nn.init.normal_(part.weight, 1, 0.2)
                nn.init.normal_(part.bias, 0, 0.2)
        return module

    return build


def __getattr__(name: str) -> Callable[[Path], nn.Module]:
    """`zoo:case_conv_1x1` is the factory of the case "conv-1x1"."""
    if name.startswith("case_"):
        return make(name.removeprefix("case_").replace("_", "-"))
    raise AttributeError(name)
