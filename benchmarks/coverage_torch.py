"""Tries every architecture of tests/architectures.py through the whole chain and writes the torch part of docs/coverage.md.

    python benchmarks/coverage_torch.py [NAME ...] [--timeout SECONDS]

Each one runs in a process of its own: a crash or a hang is a row of the table, not the end of the run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs/coverage.md"
BEGIN, END = "<!-- torch -->", "<!-- /torch -->"
BOUND = 1e-4
"""Largest difference from eager float32, as a part of the output's standard deviation."""

sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT))


def run(arguments: list[str]) -> int:
    """Try the architectures, print a line each, and write the table when all of them were tried."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds for one architecture")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        return _child(options.names[0])
    from architectures import ARCHITECTURES

    results: dict[str, dict[str, Any]] = {}
    for name in options.names or ARCHITECTURES:
        results[name] = _try(name, options.timeout)
        print(_row(name, results[name]), flush=True)
    if not options.names:
        write_section(DOCUMENT, _section(results))
    return 0 if all(_passed(result) for result in results.values()) else 1


def write_section(document: Path, section: str) -> None:
    """Replace what stands between the markers, or add it at the end."""
    text = document.read_text(encoding="utf-8") if document.exists() else "# Coverage\n"
    before, found, rest = text.partition(BEGIN)
    after = rest.partition(END)[2] if found else "\n"
    separator = "" if found else "\n"
    document.write_text(f"{before}{separator}{BEGIN}\n{section}{END}{after}", encoding="utf-8")


def _try(name: str, timeout: float) -> dict[str, Any]:
    command = [sys.executable, "-W", "ignore", __file__, "--child", name]
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
        "`python benchmarks/coverage_torch.py` makes this table",
        f"(here with torch {torch.__version__.partition('+')[0]}, transformers {transformers.__version__}).",
        "",
        "| architecture | class | parameters | result | error / std |",
        "|---|---|---|---|---|",
        *(_row(name, result) for name, result in results.items()),
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
