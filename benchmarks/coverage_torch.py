"""The transformers architectures of tests/architectures.py through import, optimize (O2), compile (x86-64-v4) and runtime.

Each one runs in a process of its own: a crash or a hang is a row of the table, not the end of the run.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 900.0
"""An architecture that takes longer has failed."""
BOUND = 1e-4
"""Largest difference from eager float32, as a part of the output's standard deviation."""

sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT))


def run(options: argparse.Namespace) -> str | None:
    """Try the architectures that the filter keeps and print a line each; the document's part when all were tried."""
    from architectures import ARCHITECTURES

    results: dict[str, dict[str, Any]] = {}
    for name in (name for name in ARCHITECTURES if fnmatch.fnmatch(name, options.filter)):
        results[name] = _try(name, SECONDS)
        print(_row(name, results[name]), flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    return _section(results) if len(results) == len(ARCHITECTURES) else None


def _try(name: str, timeout: float) -> dict[str, Any]:
    command = [sys.executable, "-W", "ignore", __file__, name]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, env=environment)
    except subprocess.TimeoutExpired:
        return {"reason": f"no result within {timeout:g} s"}
    last = done.stdout.strip().splitlines()[-1:] or [""]
    try:
        return dict(json.loads(last[0]))
    except (json.JSONDecodeError, TypeError):
        return {"reason": f"the process ended with status {done.returncode}: {(done.stderr.strip().splitlines() or [''])[-1]}"}


def _child(name: str) -> int:
    import torch
    from architectures import check

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        try:
            result: dict[str, Any] = dict(check(name, Path(folder)))
        except Exception as error:  # noqa: BLE001 - whatever fails is the row's text
            lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
            result = {"reason": lines[0][:300]}
    print(json.dumps(result))
    return 0


def _passed(result: dict[str, Any]) -> bool:
    return "error" in result and result["error"] <= BOUND


def _row(name: str, result: dict[str, Any]) -> str:
    from architectures import ARCHITECTURES

    architecture = ARCHITECTURES[name]
    if "error" not in result:
        status, error = f"failed: {result['reason']}".replace("|", "\\|"), ""
    else:
        # the last bits differ between processors: only the order of magnitude is the same everywhere
        status = "passed" if _passed(result) else "failed: differs from PyTorch"
        error = "< 1e-5" if result["error"] < 1e-5 else f"{result['error']:.0e}"
    parameters = f"{result['parameters']:,}" if "parameters" in result else ""
    return f"| {name} | {architecture.auto_class} | {parameters} | {status} | {error} |"


def _section(results: dict[str, dict[str, Any]]) -> str:
    import torch
    import transformers

    passed = sum(_passed(result) for result in results.values())
    lines = [
        "## transformers architectures through torch.export",
        "",
        f"{passed} of {len(results)} import, compile at preset O2 and agree with eager float32 within 1e-4 of the output's",
        "standard deviation. Small configs of odd sizes with random weights; `tests/architectures.py` lists them, and",
        "`python benchmarks/coverage.py torch` makes this table",
        f"(here with torch {torch.__version__.partition('+')[0]}, transformers {transformers.__version__}).",
        "",
        "| architecture | class | parameters | result | error / std |",
        "|---|---|---|---|---|",
        *(_row(name, result) for name, result in results.items()),
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(_child(sys.argv[1]))
