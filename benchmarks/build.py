"""Times the build system itself: a build with nothing to do, `doit list` over 200 recipes, a cold build of minilm."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
RECIPES = ("minilm", "efficientnet-lite0", "opennsfw", "resnet50")


def doit(workspace: Path, cache: Path, *arguments: str) -> float:
    """Run doit; returns wall seconds of the whole process."""
    environment = {**os.environ, "MODELBUILD_CACHE": str(cache)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its byte code
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "doit", *arguments], cwd=workspace, env=environment, check=True, capture_output=True)
    return time.perf_counter() - started


def copy_workspace(folder: Path) -> Path:
    """The checked-in recipes in a folder of their own."""
    shutil.copytree(ROOT / "recipes", folder / "recipes", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "modelbuild.toml", folder)
    (folder / "benchmarks").mkdir()
    shutil.copy(ROOT / "benchmarks/peers.json", folder / "benchmarks")
    return folder


def summary(name: str, seconds: list[float], bar: float) -> dict[str, object]:
    """One row: median, least and largest seconds beside what is asked for."""
    return {"name": name, "median_s": round(statistics.median(seconds), 3), "min_s": round(min(seconds), 3),
            "max_s": round(max(seconds), 3), "n": len(seconds), "bar_s": bar}  # fmt: skip


def measure(repeat: int) -> list[dict[str, object]]:
    """All rows; builds the four recipes once."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="modelbuild-bench-") as text:
        folder, cache = Path(text), Path(text) / "cache"
        (folder / "four").mkdir()
        four = copy_workspace(folder / "four")
        rows.append(summary("cold build of minilm", [doit(four, cache, "build", "minilm")], 120.0))
        doit(four, cache, "build", *RECIPES)
        doit(four, cache, "build", *RECIPES)
        rows.append(summary("build of four, nothing to do", [doit(four, cache, "build", *RECIPES) for _ in range(repeat)], 0.5))
        (folder / "many").mkdir()
        many = copy_workspace(folder / "many")
        recipe = (many / "recipes/minilm.toml").read_text()
        for number in range(200 - len(RECIPES)):
            (many / f"recipes/copy{number}.toml").write_text(recipe)
        doit(many, cache, "list")
        rows.append(summary("list of 200 recipes", [doit(many, cache, "list") for _ in range(repeat)], 1.0))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows = measure(arguments.repeat)
    for row in rows:
        print(f"{row['name']:<30} median {row['median_s']:>8} s  min {row['min_s']:>8}  max {row['max_s']:>8}"
              f"  n {row['n']}  asked for <= {row['bar_s']} s")  # fmt: skip
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
