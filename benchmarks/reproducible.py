"""Builds every checked-in recipe twice from nothing, each time in other surroundings: are the artifacts the same bytes?"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from build import copy_workspace

from pydoit.workspace import all_addresses, open_workspace


def check(workspace: Path, cache: Path, recipe: str) -> dict[str, object]:
    """One row: whether the two builds are the same, and what doit says."""
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "doit", "build", recipe, "--check-reproducible"], cwd=workspace,
        env={**os.environ, "MODELBUILD_CACHE": str(cache)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = (done.stdout or done.stderr).strip().splitlines()
    return {"recipe": recipe, "same": done.returncode == 0, "seconds": round(time.perf_counter() - started, 1), "said": said}


def main() -> int:
    """Print a row a recipe as JSON; 1 when one differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipes", nargs="*", help="recipes and variants; all without")
    parser.add_argument("--cache", type=Path, help="a store that may hold what was fetched before")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="modelbuild-reproducible-") as folder:
        workspace = copy_workspace(Path(folder))
        rows = []
        for recipe in options.recipes or all_addresses(open_workspace(workspace)):
            rows.append(check(workspace, options.cache or Path(folder) / "cache", recipe))
            print(json.dumps(rows[-1]), flush=True)
    return 0 if all(row["same"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
