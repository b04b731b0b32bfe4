"""Factories of the torch recipes: the model's folder -> an nn.Module in its own weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydoit.importers import checkpoint

if TYPE_CHECKING:
    from torch import nn


def efficientnet_lite0(model: Path) -> nn.Module:
    """EfficientNet-Lite0 for 224x224 pictures; float32 [1, 3, 224, 224] -> logits [1, 1000]."""
    from efficientnet_lite_pytorch import EfficientNet

    network: nn.Module = EfficientNet.from_name("efficientnet-lite0")
    checkpoint.load_into(network, next(model.glob("*.pth")))
    return network
