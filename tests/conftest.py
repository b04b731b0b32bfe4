"""Shared by all tests: a small workspace with a real model, its own store, and a way to run doit in it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

FACTORY = '''\
"""Models of the test workspace."""

from pathlib import Path

from safetensors.torch import load_file
from torch import nn

from recipes.parts import block


def build(folder: Path) -> nn.Module:
    net = nn.Sequential(block(3, 8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    net.load_state_dict(load_file(folder / "tiny.safetensors"))
    return net
'''

PARTS = '''\
"""Imported by the factory, so that the closure of a module is tested."""

from torch import nn


def block(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU())
'''

RECIPE = """\
schema = 1
description = "a tiny net"

[model]
source = "torch"
path = "models"
factory = "recipes.tiny_net:build"

[model.inputs.input]
shape = [1, 3, 8, 8]

[passes]
preset = "O1"

[verify]
samples = 2

[profile]
warmup = 1
repeat = 3
"""


@dataclass
class TestWorkspace:
    """A workspace folder with its own store."""

    __test__ = False
    root: Path
    cache: Path

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def edit(self, name: str, old: str, new: str) -> None:
        path = self.root / name
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")

    def report(self, recipe: str = "tiny") -> dict[str, Any]:
        """What `doit report --format json` prints."""
        shown = self.doit("report", recipe, "--format", "json")
        assert shown.returncode == 0, shown.stderr
        report: dict[str, Any] = json.loads(shown.stdout)
        return report

    def fetched(self, recipe: str) -> Path:
        """The model's files in the store, laid out by name."""
        entries = [json.loads(path.read_bytes()) for path in self.cache.glob("actions/*/*.json")]
        key = next(stage["key"] for stage in self.report(recipe)["stages"] if stage["name"] == "fetch")
        outputs = next(entry["outputs"] for entry in entries if entry["key"] == key)
        folder = self.root / "fetched" / recipe
        for name, blob in outputs.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.cache / "blobs" / blob["sha256"][:2] / blob["sha256"], folder / name)
        return folder / "model"

    def build(self, *arguments: str) -> dict[str, str]:
        """Build `tiny` successfully; returns stage -> status."""
        done = self.doit("build", *(arguments or ("tiny",)))
        assert done.returncode == 0, done.stdout + done.stderr
        recipe = arguments[0] if arguments else "tiny"
        return {stage["name"]: stage["status"] for stage in self.report(recipe)["stages"]}

    def environment(self, **variables: str) -> dict[str, str]:
        return {**os.environ, "MODELBUILD_CACHE": str(self.cache), **variables}

    def doit(self, *arguments: str, cwd: str = ".", **variables: str) -> subprocess.CompletedProcess[str]:
        """Run `doit` as a user does, in a process of its own."""
        return subprocess.run(
            [sys.executable, "-m", "doit", *arguments], cwd=self.root / cwd, env=self.environment(**variables),
            capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip


def write_weights(path: Path, seed: int = 0) -> None:
    """Random weights of the tiny net; the same seed gives the same bytes."""
    random = np.random.default_rng(seed)
    shapes = {"0.0.weight": (8, 3, 3, 3), "0.0.bias": (8,), "3.weight": (5, 8), "3.bias": (5,)}
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: random.normal(size=shape).astype("float32") for name, shape in shapes.items()}, path)


def make_workspace(folder: Path) -> TestWorkspace:
    """A workspace with the recipe `tiny`."""
    workspace = TestWorkspace(folder / "workspace", folder / "cache")
    workspace.write("modelbuild.toml", 'schema = 1\ndefault = ["tiny"]\n')
    workspace.write("recipes/tiny_net.py", FACTORY)
    workspace.write("recipes/parts.py", PARTS)
    workspace.write("recipes/tiny.toml", RECIPE)
    write_weights(workspace.root / "models/tiny.safetensors")
    return workspace


@pytest.fixture
def workspace(tmp_path: Path) -> TestWorkspace:
    return make_workspace(tmp_path)


@pytest.fixture(scope="module")
def module_workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestWorkspace]:
    """One workspace for the tests of a module that build on one another."""
    return make_workspace(tmp_path_factory.mktemp("module"))
