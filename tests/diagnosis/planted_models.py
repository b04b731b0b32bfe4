"""Small models, each with one thing planted that makes it slow; factories of recipes, for the slow test of the diagnosis."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


class Convolution(nn.Module):
    """One convolution with much arithmetic."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(128, 128, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


class Grouped(nn.Module):
    """Convolutions whose groups are too small for a register tile."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(192, 192, 5, padding=2, groups=64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


class Weights(nn.Module):
    """Matrices that no cache holds, each read for one row."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4096, 4096, bias=False) for _ in range(12))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x) * 0.5
        return x


class Passes(nn.Module):
    """One pass over a large tensor after the other."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for step in range(6):
            x = (x * 1.01 + 0.5).abs() if step % 2 else torch.maximum(x, x * 0.9)
        return x


class Strided(nn.Module):
    """Each row of the result is a column of the input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.transpose(0, 1).contiguous() + 1.0


class Scattered(nn.Module):
    """Reads single numbers from all over a large table."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.register_buffer("table", torch.rand(1 << 25, generator=generator))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.table[x] * 2.0


class Crumbs(nn.Module):
    """Hundreds of operators on a few numbers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for step in range(150):
            x = torch.sin(x) if step % 2 else x * 0.99
        return x


class Chain(nn.Module):
    """Every number needs the one before."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(x, 1)


class Lopsided(nn.Module):
    """Three long rows for two threads."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1)


class Plain(nn.Module):
    """A small net, for what is planted in its build."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def _seeded(kind: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return kind().eval()


def convolution() -> nn.Module:
    return _seeded(Convolution)


def grouped() -> nn.Module:
    return _seeded(Grouped)


def weights() -> nn.Module:
    return _seeded(Weights)


def passes() -> nn.Module:
    return _seeded(Passes)


def strided() -> nn.Module:
    return _seeded(Strided)


def scattered() -> nn.Module:
    return _seeded(Scattered)


def crumbs() -> nn.Module:
    return _seeded(Crumbs)


def chain() -> nn.Module:
    return _seeded(Chain)


def lopsided() -> nn.Module:
    return _seeded(Lopsided)


def plain() -> nn.Module:
    return _seeded(Plain)


@dataclass(frozen=True)
class Dawdle:
    """A pass that takes long."""

    def __call__(self, module: Any) -> Any:
        time.sleep(8)
        return module.with_attr("dawdled", 1)


@dataclass(frozen=True)
class Waver:
    """A pass that changes something each time."""

    def __call__(self, module: Any) -> Any:
        count = int(module.attrs["wavered"]) if module.attrs and "wavered" in module.attrs else 0
        return module.with_attr("wavered", count + 1)


@dataclass(frozen=True)
class There:
    """A pass that the next one undoes."""

    def __call__(self, module: Any) -> Any:
        return module.with_attr("there", 1)


@dataclass(frozen=True)
class BackAgain:
    """Undoes it."""

    def __call__(self, module: Any) -> Any:
        return module.without_attr("there")
