"""Small transformers architectures through the whole chain agree with eager float32."""

from __future__ import annotations

from pathlib import Path

import pytest
from architectures import ARCHITECTURES, check

BOUND = 1e-4
"""Largest difference as a part of the output's standard deviation."""
QUICK = ("gpt2", "mixtral", "vit", "resnet", "clip")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", QUICK)
def test_architecture_agrees_with_eager(name: str, tmp_path: Path) -> None:
    assert check(name, tmp_path)["error"] < BOUND


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if name not in QUICK])
def test_every_architecture_agrees_with_eager(name: str, tmp_path: Path) -> None:
    assert check(name, tmp_path)["error"] < BOUND
