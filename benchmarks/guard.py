"""How often the regression guard is wrong on a real model: `python benchmarks/guard.py [--runs 100] [--slower 0.05]`.

Builds a model of some milliseconds twice, once with a twentieth more layers, and runs what `doit bench` runs: the model beside
a copy of itself, then beside the slower one. Asked: at most 2 of 100 equal ones `worse`, at least 90 of 100 slower ones.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path

LAYERS = 20
FACTORY = """
import torch
from torch import nn


def _net(layers: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Conv2d(64, 64, 3, padding=1) for _ in range(layers))).eval()


def plain() -> nn.Module:
    return _net({plain})


def slower() -> nn.Module:
    return _net({slower})
"""
RECIPE = """
schema = 1
[model]
source = "torch"
factory = "recipes.nets:{name}"
inputs.input = {{ shape = [1, 64, 28, 28] }}
[target]
threads = 2
[verify]
samples = 2
[verify.tolerance]
max_abs = 1e-3
cosine = 0.9999
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--slower", type=float, default=0.05)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        _make(root, LAYERS, round(LAYERS * (1 + options.slower)))
        shutil.copytree(root / "artifacts/plain", root / "copy")
        for other in ("copy", "artifacts/slower"):
            found: Counter[str] = Counter()
            started = time.monotonic()
            for number in range(options.runs):
                found[_verdict(root, "artifacts/plain", other)] += 1
                print(f"{other}: {number + 1} of {options.runs}, {dict(found)}, {time.monotonic() - started:.0f} s", flush=True)


def _make(root: Path, plain: int, slower: int) -> None:
    (root / "recipes").mkdir()
    (root / "modelbuild.toml").write_text("schema = 1\n")
    (root / "recipes/nets.py").write_text(FACTORY.format(plain=plain, slower=slower))
    for name in ("plain", "slower"):
        (root / f"recipes/{name}.toml").write_text(RECIPE.format(name=name))
    subprocess.run(["doit", "build", "plain", "slower"], cwd=root, check=True)


def _verdict(root: Path, first: str, second: str) -> str:
    done = subprocess.run(
        ["doit", "bench", first, second], cwd=root, capture_output=True, text=True, env=os.environ, check=False
    )
    return done.stdout.strip().rpartition("verdict: ")[2] or "failed"


if __name__ == "__main__":
    main()
