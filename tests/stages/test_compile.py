"""compile and weights: the same bytes in other processes, folders, zones and hash seeds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from chain import run_chain
from test_zoo import model_of
run_chain(model_of("residual"), Path(sys.argv[1]), "O2", "x86-64-v3")
"""


def test_two_builds_are_byte_identical(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    outputs = []
    for number, (zone, seed) in enumerate([("UTC", "0"), ("Asia/Tokyo", "77")]):
        folder = tmp_path / ("x" * (number + 1))
        environment = {**os.environ, "TZ": zone, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", SCRIPT, str(folder), str(root / "tests"), str(root)]
        subprocess.run(command, env=environment, cwd=tmp_path, check=True, capture_output=True)
        names = ("lib.so", "weights/model.safetensors", "manifest.json")
        outputs.append([(folder / "package" / name).read_bytes() for name in names])
    assert outputs[0] == outputs[1]
